"""Object code mapped by LLVM, for architectures whose relocations are not known here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from autotune.codegen.elf import ObjectFile
from autotune.errors import BuildError


class LlvmMapped:
    """Objects in execution engines: one for all, but for those whose symbols collide. Raises BuildError."""

    def __init__(self, objects: Sequence[ObjectFile], lookup: Callable[[str], int]) -> None:
        _initialize()
        # Made first: an engine is what lets LLVM see the symbols of the process.
        self._engines: list[Any] = [_new_engine()]
        self._used: list[set[str]] = [set()]
        self._owner: list[int] = []
        for index, each in enumerate(objects):
            self._add(index, each, lookup)
        for engine in self._engines:
            engine.finalize_object()

    def address(self, index: int, name: str) -> int:
        """Return the address of a function of object ``index``, 0 where this name is not a function's."""
        return int(self._engines[self._owner[index]].get_function_address(name))

    def _add(self, index: int, made: ObjectFile, lookup: Callable[[str], int]) -> None:
        """Place one object into the first engine where none of its symbols is taken."""
        import llvmlite.binding as llvm

        symbols = made.exported
        for name in symbols.undefined:
            llvm.add_symbol(name, lookup(name))
        free = (s for s, used in enumerate(self._used) if used.isdisjoint(symbols.defined))
        slot = next(free, len(self._engines))
        if slot == len(self._engines):
            self._engines.append(_new_engine())
            self._used.append(set())
        try:
            self._engines[slot].add_object_file(llvm.ObjectFileRef.from_data(made.data))
        except (RuntimeError, ValueError) as error:
            raise BuildError(f"object {index} cannot be loaded: {error}") from error
        self._used[slot] |= symbols.defined
        self._owner.append(slot)


@cache
def _initialize() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _new_engine() -> Any:
    """Return an execution engine of an empty module; it owns what is added to it."""
    import llvmlite.binding as llvm

    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


__all__ = ["LlvmMapped"]
