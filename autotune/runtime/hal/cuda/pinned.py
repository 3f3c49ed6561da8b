"""Memory of this process that NVIDIA's devices copy from and to themselves: pages that the system cannot move."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune import cuda

_EVERY_CONTEXT = 1
"""CU_MEMHOSTALLOC_PORTABLE: pinned for all devices."""


@dataclass(frozen=True)
class Pages:
    """Pinned memory."""

    address: int
    nbytes: int


class CudaPinnedMemory:
    """The source of blocks of pinned memory; ``enter`` makes the device's context the calling thread's."""

    def __init__(self, enter: Callable[[], None]) -> None:
        self._enter = enter

    def allocate(self, nbytes: int) -> Pages:
        """Return a block; raises MemoryError."""
        self._enter()
        try:
            return Pages(int(cuda.call("cuMemHostAlloc", max(nbytes, 1), _EVERY_CONTEXT)), nbytes)
        except cuda.CudaError as error:
            if error.code == cuda.OUT_OF_MEMORY:
                raise MemoryError(str(error)) from error
            raise

    def release(self, storage: Pages) -> None:
        """Free it."""
        self._enter()
        cuda.call("cuMemFreeHost", storage.address)

    def host_view(self, storage: Pages) -> NDArray[np.uint8]:
        """Return the pages as an array of bytes, without a copy."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * storage.nbytes).from_address(storage.address))


__all__ = ["CudaPinnedMemory", "Pages"]
