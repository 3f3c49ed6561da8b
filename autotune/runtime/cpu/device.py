"""The CPU as a device: what it has, and memory laid out for it."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import BuildError
from autotune.files import pages_of
from autotune.rounding import round_up
from autotune.target import Target

ALIGNMENT = 64
"""Bytes: the alignment of arenas, constants, scratch memory and fresh outputs (a cache line)."""

HUGE_PAGE = 2 << 20
"""Bytes: memory of a model is spread over fewer entries of the TLB on pages of this size."""
_SMALL = 4 << 20
"""Bytes up to which constants are put side by side; NumPy asks for huge pages itself for larger arrays."""

_BYTES = np.dtype(np.uint8)


@dataclass(frozen=True)
class Host:
    """This machine as code and artifacts see it."""

    name: str
    cores: int
    target: Target

    @staticmethod
    @cache
    def here() -> Host:
        """Return this machine's CPU, with the cores that this process may use."""
        target = Target.detect()
        return Host(target.device, target.cores, target)


def scratch_bytes(each: Iterable[int], workers: int) -> int:
    """Return scratch memory of all workers for kernels that need so many bytes ``each``: no two workers share a pair of
    cache lines.

    >>> scratch_bytes([100, 130], workers=2)
    512
    """
    return workers * round_up(max(each, default=0), 2 * ALIGNMENT)


def allocate(nbytes: int) -> NDArray[np.uint8]:
    """Return the aligned uninitialised memory; keep the array alive as long as its address is used.

    Raises BuildError where there is not so much.
    """
    memory = _uninitialised(nbytes + ALIGNMENT)
    start = -address_of(memory) % ALIGNMENT
    return memory[start : start + nbytes]


def _uninitialised(nbytes: int) -> NDArray[np.uint8]:
    try:
        return np.empty(nbytes, _BYTES)
    except MemoryError as error:
        raise no_memory(nbytes) from error


def allocate_pages(nbytes: int) -> NDArray[np.uint8]:
    """Return the aligned memory that holds zeros, on huge pages as far as it fills them and the system has any.

    Raises BuildError where there is not so much.
    """
    if nbytes < HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return allocate(nbytes)
    try:
        pages = mmap.mmap(-1, round_up(nbytes, HUGE_PAGE) + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise no_memory(nbytes) from error
    with suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    start = -address_of(memory) % HUGE_PAGE
    return memory[start : start + nbytes]


def no_memory(nbytes: int) -> BuildError:
    """Return the error for memory that is not there."""
    return BuildError(f"there is no memory for {nbytes} bytes ({nbytes / 2**30:.1f} GiB)")


class Memory:
    """The source of a module's own memory; who watches it makes another."""

    def allocate(self, nbytes: int, use: str) -> NDArray[np.uint8]:
        """Return the aligned memory to write to; ``use`` says what for."""
        return allocate_pages(nbytes)

    def shares(self, nbytes: int, workers: int) -> tuple[NDArray[np.uint8], int]:
        """Return scratch memory of ``nbytes`` for each worker, and how many bytes it is from one's to
        the next one's."""
        whole = scratch_bytes([nbytes], workers)
        return self.allocate(whole, "scratch memory"), whole // workers

    def constants(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return dense, aligned arrays of these values, which are only read; see :func:`constant_places`.

        What lies in a mapping already, as :mod:`autotune.runtime.artifacts.artifact` reads it, stays there.
        """
        places = constant_places([0 if pages_of(array) else array.nbytes for array in arrays])
        return [
            aligned(array) if place is None or pages_of(array) else _copied(array, place)
            for array, place in zip(arrays, places, strict=True)
        ]


def constant_places(sizes: Sequence[int]) -> list[NDArray[np.uint8] | None]:
    """Return memory for constants of these sizes: small ones lie side by side on huge pages; None where any will do."""
    small = sum(round_up(nbytes, ALIGNMENT) for nbytes in sizes if nbytes < _SMALL)
    if small < HUGE_PAGE:
        return [None] * len(sizes)
    memory, at = allocate_pages(small), 0
    found: list[NDArray[np.uint8] | None] = []
    for nbytes in sizes:
        if nbytes >= _SMALL:
            found.append(None)
            continue
        found.append(memory[at : at + nbytes])
        at += round_up(nbytes, ALIGNMENT)
    return found


def _copied(array: NDArray[Any], place: NDArray[np.uint8]) -> NDArray[Any]:
    copy = place.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


HOST_MEMORY = Memory()


def allocate_array(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> tuple[NDArray[Any], int]:
    """Return an aligned uninitialised array of ``nbytes`` bytes, and its address; raises BuildError."""
    memory = _uninitialised(nbytes + ALIGNMENT)
    address = address_of(memory)
    start = -address % ALIGNMENT
    return np.ndarray(shape, dtype, memory, start), address + start


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` itself when it is dense and aligned, else an aligned copy."""
    if array.flags.c_contiguous and address_of(array) % ALIGNMENT == 0:
        return array
    copy, _ = allocate_array(array.shape, array.dtype, array.nbytes)
    copy[...] = array
    return copy


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first element of an array."""
    return _address(array) if MEMORY is None else MEMORY[id(array) + _DATA >> 3]


def _address(array: NDArray[Any]) -> int:
    """Return the same by NumPy's documented way, which takes 1-3 µs."""
    return int(array.__array_interface__["data"][0])


_DATA = object.__basicsize__
"""The place in an array object of the address of its data: first in NumPy's stable binary interface,
behind what all Python objects start with."""


def _words() -> ctypes.Array[ctypes.c_int64] | None:
    """Return the memory of this process as int64, to read the field above in 0.1 µs.

    None where ids are not addresses, or where NumPy says something else about a few arrays.
    """
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or _DATA % 8:
        return None
    words = (ctypes.c_int64 * (1 << 59)).from_address(0)
    probes: list[NDArray[Any]] = [np.zeros(3, np.float32), np.zeros((2, 70_000), np.int8)[1:], np.zeros(0)]
    agree = all(words[id(probe) + _DATA >> 3] == _address(probe) for probe in probes)
    return words if agree else None


MEMORY = _words()
"""The memory of this process as int64, or None; ids of objects are addresses in it."""


__all__ = [
    "ALIGNMENT",
    "HOST_MEMORY",
    "HUGE_PAGE",
    "MEMORY",
    "Host",
    "Memory",
    "address_of",
    "aligned",
    "allocate",
    "allocate_array",
    "allocate_pages",
    "constant_places",
    "no_memory",
    "scratch_bytes",
]
