"""The cost of running beside the kernels: measured with kernels that do nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from autotune.runtime.cpu.device import Host
from autotune.runtime.image import Binding, Command, DispatchInfo, ModuleImage, TensorSpec
from autotune.runtime.module import Module
from autotune.suggest import counted

_EMPTY_KERNEL = """
define void @nothing(ptr %table, i64 %begin, i64 %end, ptr %scratch) {
  ret void
}
"""
_CHAIN = 1000


@dataclass(frozen=True)
class Overhead:
    """One measured cost: minimum and median over ``n`` samples, in nanoseconds."""

    name: str
    target_ns: float
    minimum_ns: float
    median_ns: float
    n: int


def measure(samples: int = 2000, workers: int = 2) -> list[Overhead]:
    """Return the cost of a dispatch, a fork-join round and a call from Python; takes about a second.

    A dispatch on one worker and the barrier between two dispatches on ``workers`` are shares of a
    chain of a thousand. A fork-join is a run of one command on workers that still spin. The call
    passes one input and allocates one output.
    """
    alone, together = chain_times(_CHAIN, 1, 1, samples // 10), chain_times(_CHAIN, 8, workers, samples // 10)
    results = [
        _summary("dispatch, one worker", 500.0, alone / _CHAIN),
        _summary(f"dispatch and barrier, {counted(workers, 'worker')}", 2000.0, together / _CHAIN),
        _summary(f"fork-join, {counted(workers, 'worker')}", 2000.0, chain_times(1, 8, workers, samples)),
    ]
    for threads in dict.fromkeys((1, workers)):
        name = f"call from Python, {counted(threads, 'worker')}"
        results.append(_summary(name, 10_000.0, _call_times(threads, samples)))
    return results


def _summary(name: str, target_ns: float, times: np.ndarray) -> Overhead:
    return Overhead(name, target_ns, float(times.min()), float(median(times)), times.size)


def chain_times(commands: int, tiles: int, workers: int, samples: int) -> np.ndarray:
    """Return nanoseconds of each of ``samples`` runs of a chain of commands that do nothing, of ``tiles`` each."""
    with Module(_image(commands, tiles), workers) as module:
        return module.time([np.zeros(1, np.float32)], warmup=20, repeat=samples)


def _call_times(workers: int, samples: int) -> np.ndarray:
    """Return nanoseconds of each call of a one-command module, seen from Python."""
    x = np.zeros(1, np.float32)
    times = np.zeros(samples, np.int64)
    with Module(_image(1, 8), workers) as module:
        for _ in range(20):
            module(x)
        for index in range(samples):
            begin = time.perf_counter_ns()
            module(x)
            times[index] = time.perf_counter_ns() - begin
    return times


def _image(commands: int, tiles: int) -> ModuleImage:
    """Return a model of ``commands`` dispatches that do nothing."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    code = bytes(machine.emit_object(llvm.parse_assembly(_EMPTY_KERNEL)))
    table = (Binding("input", 0, 0, 4), Binding("output", 0, 0, 4))
    return ModuleImage(
        name="overhead",
        target=Host.here().target,
        inputs=(TensorSpec("x", (1,), "float32"),),
        outputs=(TensorSpec("y", (1,), "float32"),),
        objects=(code,),
        constants=(),
        commands=(Command(0, 0, "nothing", table, tiles, 0),) * commands,
        dispatches=(DispatchInfo("nothing", "", "elementwise", "default", "[]"),),
        arena_bytes=0,
    )


__all__ = ["Overhead", "chain_times", "measure"]
