"""Runs OpenCL code by pyopencl, with a fence around every buffer."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import DispatchCode, Kernel
from autotune.codegen.gpu.starts import read_starts
from autotune.opencl import device, devices, target_of
from autotune.pocl import options
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.te.tensor import Tensor
from tests.schedule.machine import FENCE, PATTERN, FenceError


def installed() -> bool:
    """Return whether there is pyopencl."""
    try:
        import pyopencl  # noqa: F401
    except ImportError:
        return False
    return True


needs_opencl = pytest.mark.skipif(
    not installed(), reason="pyopencl is not installed: pip install 'autotune-compiler[opencl]'"
)


@cache
def opencl_target() -> Target:
    """The first OpenCL device."""
    assert devices(), "pyopencl is installed, but finds no device"
    return target_of(device("opencl"))


@cache
def _queue() -> tuple[Any, Any]:
    import pyopencl as cl

    context = cl.Context([device("opencl")])
    return context, cl.CommandQueue(context)


class DeviceCode:
    """The code of a dispatch, compiled by the device's driver."""

    def __init__(self, code: DispatchCode) -> None:
        import pyopencl as cl

        self.starts = read_starts(code.object_code, "opencl")
        context, self.queue = _queue()
        source = code.object_code.decode()
        self.program = cl.Program(context, source).build(options(device("opencl"), source), cache_dir=False)

    def run(self, kernel: Kernel, memories: Sequence[Any], begin: int, end: int) -> None:
        """Run tiles on bytes of memory, which are copied there and back."""
        import pyopencl as cl

        if begin >= end:
            return
        start = self.starts[kernel.symbol]
        assert start.launch == kernel.launch
        assert start.buffers == len(memories)
        group = start.launch.block
        whole = [n * m for n, m in zip(start.launch.blocks(end - begin), group, strict=True)]
        arguments, copies = list[Any](), []
        for memory in memories:
            fenced = np.full(memory.size + 2 * FENCE, PATTERN, np.uint8)
            fenced[FENCE : FENCE + memory.size] = memory
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            buffer = cl.Buffer(_queue()[0], flags, hostbuf=fenced)
            copies.append((memory, fenced, buffer))
            arguments += [buffer, np.uint64(FENCE)]
        entry = cl.Kernel(self.program, kernel.symbol)
        entry(self.queue, whole, group, *arguments, np.int64(begin), np.int64(end))
        for memory, fenced, buffer in copies:
            cl.enqueue_copy(self.queue, fenced, buffer)
            if (fenced[:FENCE] != PATTERN).any() or (fenced[-FENCE:] != PATTERN).any():
                raise FenceError(f"kernel {kernel.symbol} wrote outside of a buffer")
            memory[...] = fenced[FENCE:-FENCE]


def bytes_of(array: Any, nbytes: int) -> Any:
    """Memory from the first element of an array on."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(array.ctypes.data))


def run_on_device(
    schedule: Schedule,
    args: list[Tensor],
    arrays: Mapping[str, Any],
    *,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
    target: Target | None = None,
) -> dict[str, Any]:
    """Values of the outputs by name; ``arrays`` are the inputs. Raises what compiling raises."""
    strides = strides or {}
    code = compile_schedule(schedule, args, target or opencl_target(), constants=constants, strides=strides)
    memories = [np.full(max(spec.nbytes, 1), PATTERN, np.uint8) for spec in code.buffers]
    views = []
    for spec, memory in zip(code.buffers, memories, strict=True):
        flat = memory.view(spec.dtype)
        steps = strides.get(spec.name)
        if steps is None:
            view = flat[: int(np.prod(spec.shape))].reshape(spec.shape)
        else:
            view = np.lib.stride_tricks.as_strided(flat, spec.shape, [s * flat.itemsize for s in steps])
        views.append(view)
        if spec.role == "input":
            view[...] = arrays[spec.name]
    loaded = DeviceCode(code)
    for kernel in code.kernels:
        loaded.run(kernel, [memories[b] for b in kernel.buffers], 0, kernel.tiles)
    return {
        spec.name: view.copy()
        for spec, view in zip(code.buffers, views, strict=True)
        if spec.role == "output"
    }
