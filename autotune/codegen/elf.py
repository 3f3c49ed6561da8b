"""A look into a relocatable ELF object before it is mapped: its symbols, with all ranges checked.

The dynamic loader of LLVM trusts its input: a truncated object crashes the process and an undefined
symbol becomes a call to address zero. Both are found here and raised as BuildError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from autotune.errors import BuildError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATABLE = 1
_SYMTAB, _STRTAB, _NOBITS = 2, 3, 8
_LOCAL = 0
_MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True)
class ObjectSymbols:
    """Global symbols of an object: what it defines and what it needs from the process."""

    arch: str
    defined: frozenset[str]
    undefined: frozenset[str]


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def read_symbols(data: bytes) -> ObjectSymbols:
    """Symbols of a 64-bit little-endian ELF object; raises BuildError when it is damaged."""
    try:
        arch, sections = _sections(data)
        defined: set[str] = set()
        undefined: set[str] = set()
        for section in sections:
            if section.kind == _SYMTAB:
                _collect(data, section, sections, defined, undefined)
    except (struct.error, IndexError, ValueError) as error:
        raise BuildError(f"damaged object file: {error}") from error
    return ObjectSymbols(arch, frozenset(defined), frozenset(undefined))


def _sections(data: bytes) -> tuple[str, list[_Section]]:
    """Architecture and section headers, each with its range inside ``data``."""
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
        _, kind, _, _, offset, size, link, _, _, _ = _SECTION.unpack_from(data, start + index * entry_size)
        if kind not in (0, _NOBITS) and offset + size > len(data):
            raise ValueError(f"section {index} ends at {offset + size}, the file at {len(data)}")
        sections.append(_Section(kind, offset, size, link))
    return _MACHINES[machine], sections


def _collect(
    data: bytes,
    table: _Section,
    sections: list[_Section],
    defined: set[str],
    undefined: set[str],
) -> None:
    """Add the global names of one symbol table."""
    strings = sections[table.link]
    if strings.kind != _STRTAB or table.size % _SYMBOL.size:
        raise ValueError("malformed symbol table")
    names = data[strings.offset : strings.offset + strings.size]
    body = memoryview(data)[table.offset : table.offset + table.size]
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(body):
        if info >> 4 == _LOCAL:
            continue
        text = names[name : names.index(b"\0", name)].decode("ascii")
        (defined if section else undefined).add(text)


__all__ = ["ObjectSymbols", "read_symbols"]
