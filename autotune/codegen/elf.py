"""Relocatable ELF objects, read before they are mapped: sections, symbols and relocations, with all ranges checked.

A truncated object, or a symbol that nobody has, must be an error and not a crash: what is wrong is raised as
BuildError. The format is that of the System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from autotune.errors import BuildError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_RELOCATABLE = 1
_SYMTAB, _STRTAB, _RELA, _NOBITS, _REL = 2, 3, 4, 8, 9
_LOCAL = 0
_MACHINES = {62: "x86_64", 183: "aarch64"}

WRITE, ALLOCATE, EXECUTE, THREAD_LOCAL = 1, 2, 4, 0x400
"""Flags of a section."""
UNDEFINED, ABSOLUTE = 0, 0xFFF1
"""Sections of a symbol that are none: its address is another's business, or its value."""


@dataclass(frozen=True)
class ObjectSymbols:
    """Global symbols of an object: what it defines and what it needs from the process."""

    arch: str
    defined: frozenset[str]
    undefined: frozenset[str]


@dataclass(frozen=True)
class Section:
    """A section: its bytes are ``size`` from ``offset`` of the file, or zeros where it is not ``stored``."""

    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int

    @property
    def stored(self) -> bool:
        """Return whether the file has its bytes."""
        return self.kind != _NOBITS


@dataclass(frozen=True)
class Symbol:
    """A symbol: ``value`` bytes into a section."""

    name: str
    section: int
    value: int
    is_global: bool


@dataclass(frozen=True)
class Relocation:
    """A place, ``offset`` bytes into ``section``, that is set from the address of a symbol."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    """The parts of an object file; every range and number in it was checked to lie in the file."""

    arch: str
    data: bytes
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    @property
    def exported(self) -> ObjectSymbols:
        """Its global symbols."""
        named = [symbol for symbol in self.symbols if symbol.is_global]
        return ObjectSymbols(
            self.arch,
            frozenset(symbol.name for symbol in named if symbol.section != UNDEFINED),
            frozenset(symbol.name for symbol in named if symbol.section == UNDEFINED),
        )

    def relocations(self) -> list[Relocation]:
        """Return relocations of the sections that are mapped; raises BuildError where they are damaged."""
        try:
            return [
                relocation
                for section in self.sections
                if section.kind in (_RELA, _REL)
                for relocation in self._relocations(section)
            ]
        except (struct.error, IndexError, ValueError) as error:
            raise BuildError(f"damaged object file: {error}") from error

    def _relocations(self, table: Section) -> list[Relocation]:
        if not self.sections[table.info].flags & ALLOCATE:
            return []
        if table.kind == _REL or table.size % _RELOCATION.size:
            raise ValueError("malformed relocations")
        body = memoryview(self.data)[table.offset : table.offset + table.size]
        found = []
        for offset, info, addend in _RELOCATION.iter_unpack(body):
            symbol = info >> 32
            if symbol >= len(self.symbols):
                raise ValueError(f"relocation of symbol {symbol} of {len(self.symbols)}")
            found.append(Relocation(table.info, offset, info & 0xFFFFFFFF, symbol, addend))
        return found


def read_object(data: bytes) -> ObjectFile:
    """Return sections and symbols of a 64-bit little-endian ELF object; raises BuildError when it is damaged."""
    try:
        arch, sections = _sections(data)
        symbols: list[Symbol] = []
        for section in sections:
            if section.kind == _SYMTAB:
                if symbols:
                    raise ValueError("two symbol tables")
                symbols = _symbols(data, section, sections)
    except (struct.error, IndexError, ValueError) as error:
        raise BuildError(f"damaged object file: {error}") from error
    return ObjectFile(arch, data, tuple(sections), tuple(symbols))


def read_symbols(data: bytes) -> ObjectSymbols:
    """Return the global symbols of an object; raises BuildError when it is damaged."""
    return read_object(data).exported


def _sections(data: bytes) -> tuple[str, list[Section]]:
    """Return the architecture and section headers, each with its range inside ``data``."""
    fields = _HEADER.unpack_from(data, 0)
    ident, kind, machine, start, entry_size, count = (
        *fields[:3],
        fields[6],
        fields[11],
        fields[12],
    )
    if ident[:6] != b"\x7fELF\x02\x01" or kind != _RELOCATABLE or entry_size != _SECTION.size:
        raise ValueError("not a 64-bit little-endian relocatable ELF file")
    if machine not in _MACHINES:
        raise ValueError(f"unknown machine {machine}")
    if start + count * entry_size > len(data):
        raise ValueError(f"section headers behind the end of the file, which has {len(data)} bytes")
    sections = []
    for index in range(count):
        header = _SECTION.unpack_from(data, start + index * entry_size)
        _, kind, flags, _, offset, size, link, info, alignment, _ = header
        if kind not in (0, _NOBITS) and offset + size > len(data):
            raise ValueError(f"section {index} ends at {offset + size}, the file at {len(data)}")
        sections.append(Section(kind, flags, offset, size, link, info, alignment))
    return _MACHINES[machine], sections


def _symbols(data: bytes, table: Section, sections: list[Section]) -> list[Symbol]:
    """Return all symbols of a table; names are read of those that are global."""
    strings = sections[table.link]
    if strings.kind != _STRTAB or table.size % _SYMBOL.size:
        raise ValueError("malformed symbol table")
    names = data[strings.offset : strings.offset + strings.size]
    body = memoryview(data)[table.offset : table.offset + table.size]
    found = []
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(body):
        is_global = info >> 4 != _LOCAL
        text = names[name : names.index(b"\0", name)].decode("ascii") if is_global else ""
        found.append(Symbol(text, section, value, is_global))
    return found


__all__ = [
    "ABSOLUTE",
    "ALLOCATE",
    "EXECUTE",
    "THREAD_LOCAL",
    "UNDEFINED",
    "WRITE",
    "ObjectFile",
    "ObjectSymbols",
    "Relocation",
    "Section",
    "Symbol",
    "read_object",
    "read_symbols",
]
