"""Relocations of x86-64: what is written where an object refers to an address (System V ABI, AMD64 supplement, 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.errors import BuildError

Refers = Literal["symbol", "slot", "call"]
"""The target of a place: the symbol itself, a word that holds its address, or either it or a jump to it."""


@dataclass(frozen=True)
class RelocationForm:
    """The form of a place: its target, its bytes, whether it is a distance, and whether it has a sign."""

    refers: Refers
    width: int
    relative: bool
    signed: bool


_NAMES = {
    1: ("R_X86_64_64", RelocationForm("symbol", 8, relative=False, signed=False)),
    2: ("R_X86_64_PC32", RelocationForm("symbol", 4, relative=True, signed=True)),
    4: ("R_X86_64_PLT32", RelocationForm("call", 4, relative=True, signed=True)),
    9: ("R_X86_64_GOTPCREL", RelocationForm("slot", 4, relative=True, signed=True)),
    10: ("R_X86_64_32", RelocationForm("symbol", 4, relative=False, signed=False)),
    11: ("R_X86_64_32S", RelocationForm("symbol", 4, relative=False, signed=True)),
    24: ("R_X86_64_PC64", RelocationForm("symbol", 8, relative=True, signed=True)),
    41: ("R_X86_64_GOTPCRELX", RelocationForm("slot", 4, relative=True, signed=True)),
    42: ("R_X86_64_REX_GOTPCRELX", RelocationForm("slot", 4, relative=True, signed=True)),
}

SLOT = 8
"""Bytes from a jump to the word that holds its destination."""


def form(kind: int) -> RelocationForm:
    """Return the form of a kind of relocation; raises BuildError for one that is not known."""
    if kind not in _NAMES:
        known = ", ".join(name for name, _ in _NAMES.values())
        raise BuildError(f"relocation of kind {kind}; known are {known}")
    return _NAMES[kind][1]


def encoded(kind: int, address: int, place: int) -> bytes:
    """Return the bytes at ``place`` that refer to ``address``; raises BuildError where that is too far."""
    how = form(kind)
    value = address - place if how.relative else address
    if how.width == 8:
        return (value & (1 << 64) - 1).to_bytes(8, "little")
    try:
        return value.to_bytes(how.width, "little", signed=how.signed)
    except OverflowError as error:
        raise BuildError(f"{_NAMES[kind][0]}: {address:#x} is too far from {place:#x}") from error


def jump(address: int) -> bytes:
    """Return 16 bytes: ``jmp [rip + 2]``, two bytes of padding, and the destination in the word at :data:`SLOT`."""
    return b"\xff\x25\x02\x00\x00\x00\x90\x90" + address.to_bytes(8, "little")


__all__ = ["SLOT", "Refers", "RelocationForm", "encoded", "form", "jump"]
