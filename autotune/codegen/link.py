"""Maps relocatable objects into the process: sections side by side, then references between them and to the process.

Each object stands for itself: it sees its own symbols and those of the process, never another object's. Code is
executable and not writable, constants are neither; every range is checked before a byte is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.codegen.elf import (
    ABSOLUTE,
    ALLOCATE,
    EXECUTE,
    THREAD_LOCAL,
    UNDEFINED,
    WRITE,
    ObjectFile,
    Relocation,
    Symbol,
)
from autotune.codegen.executable_memory import PAGE, ExecutableMemory
from autotune.codegen.relocations import SLOT, encoded, form, jump
from autotune.errors import BuildError
from autotune.rounding import round_up

_KINDS = (EXECUTE, 0, WRITE)
"""Sections with the same of these flags lie together, in this order."""
_LINE = 64
_MOST_BYTES = 1 << 30
"""Of machine code: a place reaches any other with 32 bits."""

Lookup = Callable[[str], int]
"""Address of a symbol of the process."""


@dataclass
class _Placed:
    """The parts of one object, as offsets into the memory."""

    object: ObjectFile
    sections: dict[int, int] = field(default_factory=dict)
    jumps: dict[int, int] = field(default_factory=dict)
    """By symbol: a jump to it and a word with its address."""
    relocations: list[Relocation] = field(default_factory=list)


class LinkedCode:
    """Objects in memory; addresses are valid while this is alive. Raises BuildError with the number of an object."""

    def __init__(self, objects: Sequence[ObjectFile], lookup: Lookup) -> None:
        self._lookup = lookup
        self._placed = [_Placed(each) for each in objects]
        size, self._bounds = 0, dict[int, tuple[int, int]]()
        for index, placed in enumerate(self._placed):
            _numbered(index, self._read, placed)
        for kind in _KINDS:
            begin = size
            for placed in self._placed:
                size = self._place(placed, kind, size)
            size = round_up(size, PAGE)
            self._bounds[kind] = begin, size
        if size > _MOST_BYTES:
            raise BuildError(f"{size} bytes of machine code; at most {_MOST_BYTES} are mapped together")
        self._memory = ExecutableMemory(size)
        for index, placed in enumerate(self._placed):
            _numbered(index, self._write, placed)
        for kind in (EXECUTE, 0):
            self._memory.protect(*self._bounds[kind], execute=kind == EXECUTE)

    def address(self, index: int, name: str) -> int:
        """Return the address of a function of object ``index``, 0 where this name is not a function's."""
        placed = self._placed[index]
        for symbol in placed.object.symbols:
            if symbol.is_global and symbol.name == name:
                section = symbol.section
                if section in placed.sections and placed.object.sections[section].flags & EXECUTE:
                    return self._memory.address + placed.sections[section] + symbol.value
        return 0

    def _read(self, placed: _Placed) -> None:
        """Read the relocations of an object, each of a kind that is known and inside of its section."""
        made, sections = placed.object, placed.object.sections
        for section in sections:
            if section.flags & ALLOCATE and section.flags & THREAD_LOCAL:
                raise BuildError("memory of threads, which machine code here has not")
            if section.flags & ALLOCATE and section.flags & EXECUTE and section.flags & WRITE:
                raise BuildError("a section that is both executable and writable")
        for symbol in made.symbols:
            if symbol.section not in (UNDEFINED, ABSOLUTE):
                if symbol.section >= len(sections):
                    raise BuildError(f"symbol {symbol.name[:80]!r} in section {symbol.section}")
                if symbol.value > sections[symbol.section].size:
                    raise BuildError(f"symbol {symbol.name[:80]!r} behind the end of its section")
        placed.relocations = made.relocations()
        for relocation in placed.relocations:
            section = sections[relocation.section]
            if relocation.offset + form(relocation.kind).width > section.size or not section.stored:
                raise BuildError(f"a relocation behind the end of section {relocation.section}")

    def _place(self, placed: _Placed, kind: int, size: int) -> int:
        """Give the sections of a kind their places from ``size`` on; returns the end."""
        for number, section in enumerate(placed.object.sections):
            if section.flags & ALLOCATE and section.flags & (EXECUTE | WRITE) == kind:
                size = round_up(size, max(_LINE, min(section.alignment, PAGE)))
                placed.sections[number] = size
                size += section.size
        if kind == EXECUTE:
            size = round_up(size, len(jump(0)))
            for relocation in placed.relocations:
                if relocation.symbol not in placed.jumps and self._indirect(placed, relocation):
                    placed.jumps[relocation.symbol] = size
                    size += len(jump(0))
        return size

    def _indirect(self, placed: _Placed, relocation: Relocation) -> bool:
        """Return whether a place refers to a jump or to a word that holds the address."""
        refers = form(relocation.kind).refers
        undefined = placed.object.symbols[relocation.symbol].section == UNDEFINED
        return refers == "slot" or (refers == "call" and undefined)

    def _write(self, placed: _Placed) -> None:
        """Put one object where it was placed, and set what it refers to."""
        made, memory = placed.object, self._memory
        for number, at in placed.sections.items():
            section = made.sections[number]
            if section.stored:
                memory.write(at, made.data[section.offset : section.offset + section.size])
        for number, at in placed.jumps.items():
            memory.write(at, jump(self._address(placed, made.symbols[number])))
        for relocation in placed.relocations:
            at = placed.sections[relocation.section] + relocation.offset
            to = self._destination(placed, relocation) + relocation.addend
            memory.write(at, encoded(relocation.kind, to, memory.address + at))

    def _destination(self, placed: _Placed, relocation: Relocation) -> int:
        if not self._indirect(placed, relocation):
            return self._address(placed, placed.object.symbols[relocation.symbol])
        slot = SLOT if form(relocation.kind).refers == "slot" else 0
        return self._memory.address + placed.jumps[relocation.symbol] + slot

    def _address(self, placed: _Placed, symbol: Symbol) -> int:
        if symbol.section == ABSOLUTE:
            return symbol.value
        if symbol.section == UNDEFINED:
            found = self._lookup(symbol.name)
            if not found:
                raise BuildError(f"it needs {symbol.name[:80]!r}, which this process does not have")
            return found
        if symbol.section not in placed.sections:
            raise BuildError(f"symbol {symbol.name[:80]!r} in a section that is not mapped")
        return self._memory.address + placed.sections[symbol.section] + symbol.value


def _numbered(index: int, step: Callable[[_Placed], None], placed: _Placed) -> None:
    """Do a step for an object; what is wrong with it names the object."""
    try:
        step(placed)
    except BuildError as error:
        raise BuildError(f"object {index} cannot be loaded: {error}") from error


__all__ = ["LinkedCode", "Lookup"]
