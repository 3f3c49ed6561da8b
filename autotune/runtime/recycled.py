"""Arrays whose memory is used again once nobody has them: fresh pages cost more than what is written to them."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LEAST = 128 << 10
"""Bytes below which the C library has memory at hand."""


class Recycled:
    """Makes arrays; the memory of at most ``most`` that are gone is kept. Any thread may ask.

    Memory is taken in steps of an eighth of a power of two, so that an array that grows finds that of the one before.
    """

    def __init__(self, most: int) -> None:
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=most)
        self._held: dict[int, tuple[weakref.ref[NDArray[Any]], NDArray[np.uint8]]] = {}

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised array."""
        kind = np.dtype(dtype)
        nbytes = math.prod(shape) * kind.itemsize
        if nbytes < _LEAST:
            return np.empty(shape, kind)
        step = 1 << (nbytes.bit_length() - 4)
        memory = self._memory(-(-nbytes // step) * step)
        # Views of it have this array as their base, not the memory: that is behind a memoryview.
        whole = np.frombuffer(memory.data, np.uint8)
        held = weakref.ref(whole, self._gone)
        self._held[id(held)] = held, memory
        return whole[:nbytes].view(kind).reshape(shape)

    def _memory(self, nbytes: int) -> NDArray[np.uint8]:
        for _ in range(len(self._free)):
            try:
                memory = self._free.popleft()
            except IndexError:  # another thread took it
                break
            if memory.size == nbytes:
                return memory
            self._free.append(memory)
        return np.empty(nbytes, np.uint8)

    def _gone(self, held: weakref.ref[NDArray[Any]]) -> None:
        """Note an end; this may be called between any two steps of the interpreter, so that no lock is taken."""
        self._free.append(self._held.pop(id(held))[1])


__all__ = ["Recycled"]
