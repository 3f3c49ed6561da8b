"""Workers that are made slow, to see how work is split among unequal ones: kernels that spin when they are done.

A worker tells itself by its scratch memory. What the executor runs is the same code as ever; one that is not slowed
only calls one function more a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from autotune.codegen.jit import LoadedCode
from autotune.codegen.llvm import compile_ir
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.addresses import at
from autotune.runtime.cpu.atomics import call_kernel, clock_ns, load, pause
from autotune.runtime.cpu.device import address_of
from autotune.runtime.cpu.program import Program
from autotune.runtime.cpu.translate.functions import native
from autotune.runtime.cpu.translate.module import llvm_ir
from autotune.target import Target

_KERNEL, _TABLE, _SCRATCH, _STRIDE, _EXTRA = range(5)
"""The pointer table of a slowed kernel."""
_SLOTS = 5
_ONE = 1024
"""Extra time is in parts of so many."""


@native
def slowed(table: int, begin: int, end: int, scratch: int) -> None:
    """Another kernel, after which the worker that runs it spins for a part of the time that it took."""
    worker = (scratch - load(at(table, _SCRATCH))) // load(at(table, _STRIDE))
    extra = load(at(load(at(table, _EXTRA)), worker))
    began = clock_ns() if extra else 0
    call_kernel(load(at(table, _KERNEL)), load(at(table, _TABLE)), begin, end, scratch)
    if extra:
        now = clock_ns()
        until = now + (now - began) * extra // 1024
        while clock_ns() < until:
            pause()


class SlowedWorkers:
    """The workers of a program, slowed from now on; all at full speed to begin with.

    The program must not run while this is made, and not outlive it.
    """

    def __init__(self, program: Program) -> None:
        memory = program.memory[0].view(np.int64)
        count, workers = int(memory[layout.COUNT]), int(memory[layout.TEAM])
        stride = int(memory[layout.SCRATCH_STRIDE])
        if not stride:
            raise ValueError("workers without scratch memory are all alike")
        self._extra = np.zeros(workers, np.int64)
        self._tables = np.zeros((count, _SLOTS), np.int64)
        first = (int(memory[layout.COMMANDS]) - program.address) // 8
        kernel = _code().address(0, slowed.symbol)
        for number, table in enumerate(self._tables):
            row = memory[first + number * layout.COMMAND_SLOTS :]
            table[:] = (
                row[layout.KERNEL],
                row[layout.TABLE],
                memory[layout.SCRATCH],
                stride,
                address_of(self._extra),
            )
            row[layout.KERNEL], row[layout.TABLE] = kernel, address_of(table)

    def slow(self, factors: Sequence[float]) -> None:
        """Slow each worker by a factor, 1 or more."""
        self._extra[:] = [round((factor - 1.0) * _ONE) for factor in factors]


@cache
def _code() -> LoadedCode:
    return LoadedCode([compile_ir(llvm_ir([slowed]), Target.detect())])


__all__ = ["SlowedWorkers", "slowed"]
