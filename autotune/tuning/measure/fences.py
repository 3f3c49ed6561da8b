"""Fenced memory: it shows writes to where nothing must be written.

Every piece lies between two zones that hold a pattern, and what is only to be read is a copy whose original is kept.
Reading both again costs less than a run does. (Protected pages would stop the writer on the spot, but only whole pages
can be protected: an element beside an output could still be written.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.graph.ir import Array
from autotune.rounding import round_up
from autotune.runtime.cpu.device import ALIGNMENT, Memory, address_of

ZONE = 4096
"""Bytes of a zone: a row too many of most tiles ends within it."""
_CHUNK = 1 << 18
"""Bytes that are compared at a time, so that they stay in a cache."""
_PATTERN = np.random.default_rng(0).integers(0, 256, ZONE, np.uint8)


@dataclass(frozen=True, eq=False)
class Piece:
    """Memory between two zones; ``original`` is what it must still hold, None where it may be written."""

    use: str
    whole: NDArray[np.uint8]
    original: NDArray[np.uint8] | None = None

    def harm(self) -> str:
        """Return what was written here that must not be, or nothing."""
        before = np.flatnonzero(self.whole[:ZONE] != _PATTERN)
        if before.size:
            return f"wrote beside its {self.use}, from {ZONE - int(before[0])} bytes before their begin"
        after = np.flatnonzero(self.whole[-ZONE:] != _PATTERN)
        if after.size:
            return f"wrote beside its {self.use}, up to {int(after[-1]) + 1} bytes behind their end"
        memory = self.whole[ZONE:-ZONE]
        if self.original is not None and not _equal(memory, self.original):
            return f"changed its {self.use}"
        return ""


class Fences(Memory):
    """Memory of a module that is watched; ``allocate`` and ``constants`` are what a module asks for."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def allocate(self, nbytes: int, use: str) -> NDArray[np.uint8]:
        """Return memory that may be written, filled with the pattern of its zones."""
        return self._fenced(nbytes, use, None)

    def shares(self, nbytes: int, workers: int) -> tuple[NDArray[np.uint8], int]:
        """Return scratch memory with zones around the share of each worker, which begin right behind its last byte."""
        stride = round_up(nbytes + 2 * ZONE, 2 * ALIGNMENT)
        memory = _aligned(stride * workers)
        for worker in range(workers):
            self._watch("scratch memory", memory[worker * stride :][: nbytes + 2 * ZONE])
        return memory[ZONE:], stride

    def forget(self) -> None:
        """Put the pattern in the place of all that was written."""
        for piece in self._pieces:
            if piece.original is None:
                fill(piece.whole)

    def constants(self, arrays: Sequence[Array]) -> list[Array]:
        """Return copies that must not be written."""
        return [self.copy(array, "constants") for array in arrays]

    def copy(self, array: Array, use: str) -> Array:
        """Return a copy that must not be written."""
        dense = np.ascontiguousarray(array)
        memory = self._fenced(dense.nbytes, use, dense.reshape(-1).view(np.uint8))
        return np.ndarray(array.shape, dense.dtype, memory)  # of a scalar, ascontiguousarray makes a vector

    def array(self, shape: tuple[int, ...], dtype: str, use: str) -> Array:
        """Return an array that may be written."""
        kind = np.dtype(dtype)
        memory = self.allocate(int(np.prod(shape, dtype=np.int64)) * kind.itemsize, use)
        return np.ndarray(shape, kind, memory)

    def harm(self) -> str:
        """Return the first thing found that somebody wrote where he must not, or nothing."""
        return next(filter(None, (piece.harm() for piece in self._pieces)), "")

    def _fenced(self, nbytes: int, use: str, original: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        return self._watch(use, _aligned(nbytes + 2 * ZONE), original)

    def _watch(
        self, use: str, whole: NDArray[np.uint8], original: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        fill(whole, original)
        self._pieces.append(Piece(use, whole, original))
        return whole[ZONE:-ZONE]


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    return memory[-address_of(memory) % ALIGNMENT :][:nbytes]


def fill(whole: NDArray[np.uint8], original: NDArray[np.uint8] | None = None) -> None:
    """Write the pattern to both zones, and ``original`` or more of the pattern between them."""
    whole[:ZONE] = whole[-ZONE:] = _PATTERN
    inner = whole[ZONE:-ZONE]
    inner[...] = np.resize(_PATTERN, inner.size) if original is None else original


def _equal(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    return all(np.array_equal(one[i : i + _CHUNK], other[i : i + _CHUNK]) for i in range(0, len(one), _CHUNK))


__all__ = ["ZONE", "Fences", "Piece", "fill"]
