"""Memory of this process that OpenCL devices copy from and to themselves: the driver's, mapped as long as it lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import DeviceError, DeviceLostError
from autotune.opencl import pyopencl
from autotune.runtime.hal.opencl.errors import driver_errors


@dataclass(frozen=True, eq=False)
class Mapped:
    """A buffer of the driver's in this process's memory, and its bytes there."""

    buffer: Any
    mapping: Any
    view: NDArray[np.uint8]


class OpenclPinnedMemory:
    """The source of blocks of such memory, of device ``name``: ``CL_MEM_ALLOC_HOST_PTR``, mapped."""

    def __init__(self, name: str, context: Any) -> None:
        self._name = name
        self._context = context
        self._queue = pyopencl().CommandQueue(context)

    def allocate(self, nbytes: int) -> Mapped:
        """Return a block; raises MemoryError."""
        cl = pyopencl()
        flags, both = cl.mem_flags, cl.map_flags.READ | cl.map_flags.WRITE
        try:
            with driver_errors(self._name):
                buffer = cl.Buffer(self._context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, max(nbytes, 1))
                view, _ = cl.enqueue_map_buffer(
                    self._queue, buffer, both, 0, (nbytes,), np.uint8, is_blocking=True
                )
        except DeviceLostError:
            raise
        except DeviceError as error:
            raise MemoryError(str(error)) from error
        return Mapped(buffer, view.base, view)

    def release(self, storage: Mapped) -> None:
        """Free it; raises DeviceError."""
        with driver_errors(self._name):
            storage.mapping.release(self._queue)
            self._queue.finish()
            storage.buffer.release()

    def host_view(self, storage: Mapped) -> NDArray[np.uint8]:
        """Return the mapped memory as an array of bytes, without a copy."""
        return storage.view


__all__ = ["Mapped", "OpenclPinnedMemory"]
