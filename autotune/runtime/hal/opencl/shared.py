"""OpenCL devices that are processors of this machine: buffers over this process's memory, without a copy.

OpenCL lets a driver keep a copy of memory that a buffer was made over (``CL_MEM_USE_HOST_PTR``), so whether it does is
tried. Where it does not, such a device has this process's memory space: kernels read and write the arrays of callers
and of CPU devices where they lie.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from autotune.opencl import devices, kind, pyopencl
from autotune.runtime.cpu.device import allocate_pages
from autotune.runtime.hal.buffer import HOST_SPACE, Allocation
from autotune.settings import current

_TRIED = 1 << 12
_ODD = 4
"""Bytes behind the alignment of fresh memory: arrays of callers begin at any element."""
_EMPTY = np.zeros(64, np.uint8)


def space_of(number: int) -> str:
    """Return the memory space of device ``number``; openings of a device share its memory."""
    if current().opencl_memory != "own" and shares_memory(number):
        return HOST_SPACE
    return own_space(number)


def own_space(number: int) -> str:
    """Return the space of memory of its own."""
    return f"opencl {number}"


@cache
def shares_memory(number: int) -> bool:
    """Return whether a device reads and writes this process's memory where it lies, wherever that begins."""
    device = devices()[number]
    return kind(device) == "cpu" and all(_in_place(device, begin) for begin in (0, _ODD))


@cache
def context_of(device: Any) -> Any:
    """Return one a device, so that all openings of it share its memory."""
    return pyopencl().Context([device])


def wrapped(context: Any, allocation: Allocation) -> Any:
    """Return a buffer over an allocation in this process's memory: made once, and there as long as that is."""
    made = allocation.wrappers.get(context)
    return allocation.wrappers.setdefault(context, _over(context, allocation.view)) if made is None else made


def _over(context: Any, memory: np.ndarray[Any, Any] | None) -> Any:
    assert memory is not None
    cl = pyopencl()
    flags = cl.mem_flags
    access = flags.READ_WRITE if memory.flags.writeable else flags.READ_ONLY
    return cl.Buffer(context, access | flags.USE_HOST_PTR, hostbuf=memory if memory.nbytes else _EMPTY)


def _in_place(device: Any, begin: int) -> bool:
    """Return whether commands find what this process wrote after the buffer was made, and it what they
    write, unasked."""
    cl, context = pyopencl(), context_of(device)
    memory = allocate_pages(_TRIED + begin)[begin:]
    memory.fill(1)
    try:
        buffer, queue = _over(context, memory), cl.CommandQueue(context)
        memory[:] = 2
        found = np.zeros(_TRIED, np.uint8)
        cl.enqueue_copy(queue, found, buffer, is_blocking=True)
        cl.enqueue_fill_buffer(queue, buffer, np.uint8(3), 0, _TRIED)
        queue.finish()
    except cl.Error:
        return False
    return bool((found == 2).all() and (memory == 3).all())


__all__ = ["context_of", "own_space", "shares_memory", "space_of", "wrapped"]
