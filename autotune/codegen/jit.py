"""Maps object code into the process, without compiling anything, and finds its entry points."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from autotune import library
from autotune.codegen.elf import ObjectSymbols
from autotune.codegen.symbols import object_symbols
from autotune.errors import BuildError

_OF_DEVICES = {"nvptx64": "NVIDIA (`autotune devices`)", "opencl": "OpenCL (`autotune devices`)"}
"""What runs code that is no machine code of a processor, by its architecture."""


class LoadedCode:
    """Object files mapped executable; addresses are valid while this object is alive.

    Objects share one execution engine unless their symbols collide. Raises BuildError for a damaged
    object, one of another architecture, or one that needs a symbol that this process does not have.
    """

    def __init__(self, objects: Iterable[bytes]) -> None:
        _initialize()
        # Made first: an engine is what lets LLVM see the symbols of the process.
        self._engines: list[Any] = [_new_engine()]
        self._owner: list[int] = []
        self._symbols: list[ObjectSymbols] = []
        self._used: list[set[str]] = [set()]
        for index, data in enumerate(objects):
            self._add(index, data)
        for engine in self._engines:
            engine.finalize_object()

    def _add(self, index: int, data: bytes) -> None:
        """Place one object into the first engine where none of its symbols is taken."""
        import llvmlite.binding as llvm

        symbols = object_symbols(data)
        for name in library.library_symbols(symbols.undefined):
            llvm.add_symbol(name, library.address(name))
        _check(index, symbols)
        free = (s for s, used in enumerate(self._used) if used.isdisjoint(symbols.defined))
        slot = next(free, len(self._engines))
        if slot == len(self._engines):
            self._engines.append(_new_engine())
            self._used.append(set())
        try:
            self._engines[slot].add_object_file(llvm.ObjectFileRef.from_data(data))
        except (RuntimeError, ValueError) as error:
            raise BuildError(f"object {index} cannot be loaded: {error}") from error
        self._used[slot] |= symbols.defined
        self._owner.append(slot)
        self._symbols.append(symbols)

    def address(self, index: int, symbol: str) -> int:
        """Address of a function of object ``index``; raises BuildError when it has none."""
        if symbol not in self._symbols[index].defined:
            known = ", ".join(sorted(self._symbols[index].defined)) or "nothing"
            raise BuildError(f"object {index} has no symbol {symbol!r}; it defines {known}")
        address = int(self._engines[self._owner[index]].get_function_address(symbol))
        if not address:
            raise BuildError(f"symbol {symbol!r} of object {index} is not a function")
        return address

    def close(self) -> None:
        """Unmap the code; no address may be used afterwards."""
        self._engines.clear()
        self._symbols.clear()
        self._owner.clear()
        self._used.clear()


@cache
def _initialize() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _new_engine() -> Any:
    """An execution engine of an empty module; it owns what is added to it."""
    import llvmlite.binding as llvm

    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _check(index: int, symbols: ObjectSymbols) -> None:
    """Raise BuildError when the object cannot run in this process."""
    import llvmlite.binding as llvm

    host = llvm.get_process_triple().split("-")[0]
    if symbols.arch != host:
        remedy = (
            "" if symbols.arch not in _OF_DEVICES else f": it needs a device of {_OF_DEVICES[symbols.arch]}"
        )
        raise BuildError(f"object {index} is for {symbols.arch}, this process runs {host} code{remedy}")
    missing = sorted(n for n in symbols.undefined if not llvm.address_of_symbol(n))
    if missing:
        raise BuildError(
            f"object {index} needs symbols that this process does not have: {', '.join(missing)}"
        )


__all__ = ["LoadedCode"]
