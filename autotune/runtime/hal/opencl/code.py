"""Code of OpenCL devices: sources that the driver compiles, and kernels that are started."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.codegen.opencl.launch import Launch, read_launches
from autotune.errors import BuildError
from autotune.opencl import pyopencl
from autotune.pocl import options
from autotune.runtime.hal.buffer import Buffer
from autotune.runtime.hal.executable import Code, Entry

_LOG_LINES = 12


class Kernel:
    """An entry point; threads take turns to start it."""

    def __init__(self, kernel: Any, launch: Launch) -> None:
        self._kernel = kernel
        self._launch = launch
        self._lock = threading.Lock()

    def start(self, queue: Any, bindings: Sequence[Buffer], tiles: int) -> None:
        """Put it into a queue of the device; no tiles are nothing."""
        if not tiles:
            return
        whole, group = self._launch.sizes(tiles)
        arguments: list[Any] = []
        for buffer in bindings:
            arguments += [buffer.allocation.storage, np.uint64(buffer.offset)]
        with self._lock:
            self._kernel(queue, whole, group, *arguments, np.int64(0), np.int64(tiles))


def load(context: Any, code: Code) -> list[Kernel]:
    """The kernels of entry points; raises BuildError."""
    launches = [read_launches(each) for each in code.objects]
    programs = [_built(context, each.decode()) for each in code.objects]
    return [_kernel(launches[e.object_index], programs[e.object_index], e) for e in code.entries]


def _built(context: Any, source: str) -> Any:
    cl = pyopencl()
    try:
        return cl.Program(context, source).build(options(context.devices[0], source))
    except cl.Error as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise BuildError(
            "the OpenCL driver does not compile the code: " + "\n  ".join(lines[:_LOG_LINES])
        ) from error


def _kernel(launches: dict[str, Launch], program: Any, entry: Entry) -> Kernel:
    launch = launches.get(entry.symbol)
    if launch is None:
        raise BuildError(f"the object code has no kernel {entry.symbol!r}; it has {', '.join(launches)}")
    if launch.buffers != entry.bindings:
        raise BuildError(f"{entry.symbol} takes {launch.buffers} buffers, the model gives {entry.bindings}")
    return Kernel(pyopencl().Kernel(program, entry.symbol), launch)


__all__ = ["Kernel", "load"]
