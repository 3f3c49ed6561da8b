"""Code of OpenCL devices: sources that the driver compiles, and kernels that are started."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.codegen.gpu.starts import Start, read_starts
from autotune.errors import BuildError
from autotune.opencl import pyopencl
from autotune.pocl import options
from autotune.runtime.hal.executable import Code, EntryPoint

_LOG_LINES = 12


class OpenclKernel:
    """An entry point; one thread at a time starts it."""

    def __init__(self, kernel: Any, start: Start) -> None:
        self._kernel = kernel
        self._launch = start.launch
        self._buffers = start.buffers
        self._lock = threading.Lock()

    def start(self, queue: Any, bindings: Sequence[tuple[Any, int]], tiles: int) -> Any:
        """Put it into a queue of the device, which gives an event; no tiles are nothing, and None.

        Bindings are the driver's buffers, and at which byte of them.
        """
        return self._enqueued(queue, bindings, tiles, tiles) if tiles else None

    def compile(self, queue: Any, binding: Any, tiles: int) -> Any:
        """Start as many work items as so many tiles need, of which none does anything: drivers make machine code at the
        first start of a kernel, for its sizes. The driver's buffer ``binding`` stands for all."""
        return self._enqueued(queue, [(binding, 0)] * self._buffers, tiles, 0)

    def _enqueued(self, queue: Any, bindings: Sequence[tuple[Any, int]], tiles: int, end: int) -> Any:
        group = self._launch.block
        whole = [n * m for n, m in zip(self._launch.blocks(tiles), group, strict=True)]
        arguments: list[Any] = []
        for buffer, offset in bindings:
            arguments += [buffer, np.uint64(offset)]
        with self._lock:
            return self._kernel(queue, whole, group, *arguments, np.int64(0), np.int64(end))


def load(context: Any, code: Code) -> list[OpenclKernel]:
    """Return the kernels of entry points; raises BuildError."""
    starts = [read_starts(each, "opencl") for each in code.objects]
    programs = [_built(context, each.decode()) for each in code.objects]
    return [_kernel(starts[e.object_index], programs[e.object_index], e) for e in code.entries]


def _built(context: Any, source: str) -> Any:
    cl = pyopencl()
    try:
        return cl.Program(context, source).build(options(context.devices[0], source))
    except cl.Error as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise BuildError(
            "the OpenCL driver does not compile the code: " + "\n  ".join(lines[:_LOG_LINES])
        ) from error


def _kernel(starts: dict[str, Start], program: Any, entry: EntryPoint) -> OpenclKernel:
    start = starts.get(entry.symbol)
    if start is None:
        raise BuildError(f"the object code has no kernel {entry.symbol!r}; it has {', '.join(starts)}")
    if start.buffers != entry.bindings:
        raise BuildError(f"{entry.symbol} takes {start.buffers} buffers, the model gives {entry.bindings}")
    return OpenclKernel(pyopencl().Kernel(program, entry.symbol), start)


__all__ = ["OpenclKernel", "load"]
