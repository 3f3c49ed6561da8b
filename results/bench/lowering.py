"""How long a candidate takes to become machine code, stage by stage: what a tuning job does for every trial."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.bench.problem import Case
from autotune.bench.suites import operators
from autotune.codegen.llvm import compile_ir
from autotune.codegen.llvm.backend import emit_program
from autotune.compiler import distinct_workloads, divide
from autotune.graph.region import Workload
from autotune.lower.program import lower_schedule
from autotune.schedule import Trace, create_schedule
from autotune.target import Target
from search_spaces.spaces import space_for

SUITE: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("CBR", (1, 56, 56, 64, 64, 3, 1, 1)),
    ("CBR", (1, 14, 14, 256, 256, 3, 1, 1)),
    ("CBR", (1, 56, 56, 64, 128, 3, 2, 1)),
    ("CBR", (1, 56, 56, 64, 256, 1, 1, 0)),
    ("DEP", (1, 112, 112, 32, 3, 1, 1)),
    ("GMM", (1, 512, 512, 512)),
    ("SFM", (1024, 1024)),
)
"""Fused 3x3 and 1x1 convolutions, and one operator of each other kind of region."""
STAGES = ("program", "replay", "lower", "emit", "LLVM")
"""Tensor expressions of the region, its trace replayed, loops, LLVM IR text, object code."""


@dataclass(frozen=True)
class StageTimes:
    """Milliseconds of the repeated stages of one operator; ``lines`` is the length of the IR text."""

    name: str
    lines: int
    milliseconds: dict[str, list[float]]

    @property
    def minima(self) -> dict[str, float]:
        """The fastest repetition of each stage."""
        return {stage: min(times) for stage, times in self.milliseconds.items()}

    @property
    def medians(self) -> dict[str, float]:
        """The median repetition of each stage."""
        return {stage: statistics.median(times) for stage, times in self.milliseconds.items()}


def to_text(values: dict[str, float]) -> float:
    """Milliseconds from a trace to the text of its LLVM IR: all stages but the last."""
    return sum(values[stage] for stage in STAGES[:-1])


def cases(families: Sequence[str] = ()) -> list[Case]:
    """The operators of the suite, of some families or of all."""
    return [operators.case(f, p) for f, p in SUITE if not families or f in families]


def stage_times(case: Case, repeat: int) -> StageTimes:
    """Time the stages of an operator's largest region, with packed weights where its space has them.

    The schedule is otherwise the one that the region has without tuning. Raises what building raises.
    """
    from cost_models import analytic

    workload = _largest_region(case)
    target = Target.detect()
    space = space_for(workload, target)
    config = dict(analytic.default_config(space))
    if "pack" in config and space.broken(config | {"pack": True}) is None:
        config["pack"] = True
    trace = space.apply(workload.program(), config).trace
    times: dict[str, list[float]] = {stage: [] for stage in STAGES}
    lines = 0
    for _ in range(repeat):
        laps, lines = _once(workload, trace, target)
        for stage, (begin, end) in zip(STAGES, itertools.pairwise(laps), strict=True):
            times[stage].append(1e3 * (end - begin))
    return StageTimes(f"{case.family} {case.name}", lines, times)


def _largest_region(case: Case) -> Workload:
    parts = divide(case.build().graph)
    return max(distinct_workloads(parts), key=lambda workload: workload.flops)


def _once(workload: Workload, trace: Trace, target: Target) -> tuple[list[float], int]:
    """The seconds on the clock before, between and after the stages, and the lines of the text."""
    laps = [time.perf_counter()]
    program = workload.program()
    laps.append(time.perf_counter())
    schedule = trace.apply(create_schedule([tensor.op for tensor in program.outputs]))
    laps.append(time.perf_counter())
    loops = lower_schedule(schedule, program.args, constants=program.constants, strides=program.strides)
    laps.append(time.perf_counter())
    text, _ = emit_program(loops, target, "k")
    laps.append(time.perf_counter())
    compile_ir(text, target)
    laps.append(time.perf_counter())
    return laps, text.count("\n")


__all__ = ["STAGES", "SUITE", "StageTimes", "cases", "stage_times", "to_text"]
