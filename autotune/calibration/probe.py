"""Timing of micro-kernels: many short runs, of which the fastest count."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.codegen.jit import LoadedCode
from autotune.codegen.llvm import compile_ir
from autotune.target import Target

PAGE = 4096

Kernel = Callable[[int, int], None]
"""Takes an address and a number of steps; runs without the GIL."""
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_RUN_NS = 2e5
"""Long beside the clock's resolution, short beside the time slices of other processes."""
_STEADY = 1.25
"""A quarter of the runs within this ratio of the fastest: nobody else had the core."""


class Times(NamedTuple):
    """Nanoseconds of a step: of the fastest run, and of the run that a quarter of all are not slower than."""

    best: float
    quarter: float

    @property
    def steady(self) -> bool:
        """Return whether a quarter of the runs agrees with the fastest."""
        return self.quarter <= _STEADY * self.best

    @staticmethod
    def of(times: list[float]) -> Times:
        """Return the reading of several runs."""
        return Times(min(times), float(np.quantile(times, 0.25)))


@dataclass
class Probe:
    """Compiles micro-kernels for ``target``, which is this machine, and times them."""

    target: Target
    _loaded: list[LoadedCode] = field(default_factory=list)

    @property
    def lanes(self) -> int:
        """Float32 lanes of a vector."""
        return self.target.lanes("float32")

    def kernel(self, ir: str, name: str = "kernel") -> Kernel:
        """Return the machine code of a micro-kernel."""
        code = LoadedCode([compile_ir(ir, self.target)])
        self._loaded.append(code)
        function: Kernel = _KERNEL(code.address(0, name))
        return function

    def time(self, ir: str, address: int, runs: int = 24) -> Times:
        """Return nanoseconds of a step of a kernel that always goes over the same data."""
        kernel, steps = self.kernel(ir), 64
        while (elapsed := lap(kernel, address, steps)) < 0.5 * _RUN_NS:
            steps = int(steps * min(16.0, max(2.0, _RUN_NS / max(elapsed, 1.0))))
        return Times.of([lap(kernel, address, steps) / steps for _ in range(runs)])


def page_aligned(nbytes: int) -> NDArray[np.uint8]:
    """Return zeros that begin at a page: kernels of arithmetic take their data for whole vectors."""
    raw = np.zeros(nbytes + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + nbytes]


def lap(kernel: Kernel, address: int, steps: int) -> float:
    """Return nanoseconds of one run."""
    begin = time.perf_counter_ns()
    kernel(address, steps)
    return float(time.perf_counter_ns() - begin)


def lap_together(pool: ThreadPoolExecutor, kernel: Kernel, addresses: list[int], steps: int) -> float:
    """Return nanoseconds from the first start to the last end of runs on threads of their own, all begun together."""

    def run(address: int) -> tuple[int, int]:
        begin = time.perf_counter_ns()
        kernel(address, steps)
        return begin, time.perf_counter_ns()

    begins, ends = zip(*pool.map(run, addresses), strict=True)
    return float(max(ends) - min(begins))


__all__ = ["PAGE", "Kernel", "Probe", "Times", "lap", "lap_together", "page_aligned"]
