"""The time of a candidate to machine code, stage by stage: what a tuning job does for every trial."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, at
from autotune.bench.problem import BenchmarkCase
from autotune.bench.suites import operators
from autotune.bench.tables import number
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


def cases(families: Sequence[str] = ()) -> list[BenchmarkCase]:
    """The operators of the suite, of some families or of all."""
    return [operators.case(f, p) for f, p in SUITE if not families or f in families]


def stage_times(case: BenchmarkCase, repeat: int) -> list[Record]:
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
    about = {"operator": f"{case.family} {case.name}", "lines": lines}
    return [
        {
            **about,
            "stage": stage,
            "min_ms": min(found),
            "median_ms": statistics.median(found),
            "milliseconds": found,
        }
        for stage, found in times.items()
    ]


def _largest_region(case: BenchmarkCase) -> Workload:
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


def measure(say: Say, names: Sequence[str], repeat: int) -> Iterator[Sequence[Record]]:
    """Yield the records of one operator's stages after the other."""
    options.check_known(names, (family for family, _ in SUITE), "operator")
    for case in cases(names):
        say(f"{case.family} {case.name}: {repeat} times")
        yield stage_times(case, repeat)


def _view(title: str, column: str) -> TableView:
    *stages, last = STAGES

    def to_text(rows: FrameRows) -> float:
        return float(sum(at(column, stage=stage)(rows) for stage in stages))

    return TableView(
        title,
        ("operator",),
        (
            Column("operator", "operator"),
            *(Column(stage, at(column, stage=stage), number(1)) for stage in stages),
            Column("trace to text", to_text, number(1)),
            Column("lines", "lines"),
            Column(last, at(column, stage=last), number(1)),
        ),
    )


ABOUT = (
    "How long a candidate takes from its trace to machine code, on one core: what a tuning job does for every trial. "
    "program: the region's tensor expressions; replay: the trace on a fresh schedule; lower: loops; emit: the text of "
    "LLVM IR; LLVM: object code. The schedule is the untuned one with packed weights."
)

EXPERIMENT = Experiment(
    title="Lowering speed",
    about=ABOUT,
    summary="Measure milliseconds of each stage from a trace to machine code; NAMES are operator families.",
    example="CBR --repeat 50 -o results/lowering.md",
    options=(options.words(), options.number("--repeat", 20, "Times that each operator is lowered.")),
    measure=measure,
    views=(_view("Minimum, milliseconds", "min_ms"), _view("Median, milliseconds", "median_ms")),
)

__all__ = ["EXPERIMENT", "STAGES", "SUITE", "cases", "stage_times"]
