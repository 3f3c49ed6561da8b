"""Maps object code into the process, without compiling anything, and finds its entry points."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from autotune import library
from autotune.codegen.elf import ObjectFile, ObjectSymbols, read_object
from autotune.codegen.link import LinkedCode
from autotune.codegen.process_symbols import process_address
from autotune.codegen.symbols import object_symbols
from autotune.errors import BuildError
from autotune.hardware import architecture

_OF_DEVICES = {"nvptx64": "NVIDIA (`autotune devices`)", "opencl": "OpenCL (`autotune devices`)"}
"""The runner of code that is no machine code of a processor, by its architecture."""

_LINKED = ("x86_64",)
"""Architectures whose relocations :mod:`autotune.codegen.relocations` knows; LLVM maps the code of the others."""


class _Mapped(Protocol):
    """Objects in memory, whoever put them there."""

    def address(self, index: int, name: str) -> int:
        """Return the address of a function of an object; 0 where it has none of this name."""


class LoadedCode:
    """Object files mapped executable; addresses are valid while this object is alive.

    Raises BuildError for a damaged object, one of another architecture, or one that needs a symbol that this process
    does not have.
    """

    def __init__(self, objects: Iterable[bytes]) -> None:
        found = [_checked(index, data) for index, data in enumerate(objects)]
        self._symbols = [each.exported for each in found]
        self._mapped: _Mapped | None = _mapped(found)

    def address(self, index: int, symbol: str) -> int:
        """Return the address of a function of object ``index``; raises BuildError when it has none."""
        if symbol not in self._symbols[index].defined:
            known = ", ".join(sorted(self._symbols[index].defined)) or "nothing"
            raise BuildError(f"object {index} has no symbol {symbol!r}; it defines {known}")
        address = self._mapped.address(index, symbol) if self._mapped else 0
        if not address:
            raise BuildError(f"symbol {symbol!r} of object {index} is not a function")
        return address

    def close(self) -> None:
        """Unmap the code; no address may be used afterwards."""
        self._mapped = None
        self._symbols.clear()


def _mapped(objects: list[ObjectFile]) -> _Mapped:
    if os.name == "posix" and architecture() in _LINKED:
        return LinkedCode(objects, symbol_address)
    from autotune.codegen.llvm.loader import LlvmMapped

    return LlvmMapped(objects, symbol_address)


def symbol_address(name: str) -> int:
    """Return the address of a library kernel or of a function of the process; 0 where there is none of this name."""
    return library.address(name) if library.library_symbols([name]) else process_address(name)


def _checked(index: int, data: bytes) -> ObjectFile:
    """Return an object that can run in this process; raises BuildError."""
    symbols = object_symbols(data)  # of devices too, to say what they need
    _check(index, symbols)
    return read_object(data)


def _check(index: int, symbols: ObjectSymbols) -> None:
    """Raise BuildError when the object cannot run in this process."""
    if symbols.arch != architecture():
        remedy = (
            "" if symbols.arch not in _OF_DEVICES else f": it needs a device of {_OF_DEVICES[symbols.arch]}"
        )
        raise BuildError(
            f"object {index} is for {symbols.arch}, this process runs {architecture()} code{remedy}"
        )
    missing = sorted(name for name in symbols.undefined if not symbol_address(name))
    if missing:
        raise BuildError(
            f"object {index} needs symbols that this process does not have: {', '.join(missing)}"
        )


__all__ = ["LoadedCode", "symbol_address"]
