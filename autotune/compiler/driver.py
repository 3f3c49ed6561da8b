"""Model + target + database -> module image: each dispatch is looked up, built once and placed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.choice import Choice, choose, scheduled
from autotune.compiler.coverage import CoverageReport, coverage
from autotune.compiler.region import region_partition
from autotune.errors import MissError
from autotune.frontends.onnx import load
from autotune.frontends.onnx_read import ModelSource
from autotune.graph import evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.region import Workload
from autotune.passes.partition import Partition, PartitionOptions, partition
from autotune.passes.pipeline import Observer, run_passes, standard_passes
from autotune.passes.plan_memory import MemoryPlan
from autotune.runtime.image import ModuleImage
from autotune.schedule.trace import Trace
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.database.store import Database

Model: TypeAlias = "ModelSource | Graph"
Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the workloads built so far, their number, and the name of the next."""


@dataclass(frozen=True, eq=False)
class Compilation:
    """A compiled model and how it came about."""

    image: ModuleImage
    coverage: CoverageReport
    partition: Partition
    memory_plan: MemoryPlan


def compile_model(
    model: Model,
    *,
    target: Target | str | None = None,
    database: Database | str | Path | None = None,
    layout: str = "NHWC",
    require_hit: bool = False,
    schedules: Mapping[str, Trace] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ModuleImage:
    """Compile a model to an image that :class:`autotune.runtime.module.Module` runs.

    ``model`` is a path, ``"zoo:NAME"``, bytes, a ``ModelProto`` or a graph. Schedules come from
    ``schedules`` (workload key to trace), then from ``database``, then from the analytic model.

    Raises:
        ModelImportError: the model cannot be imported.
        MissError: with ``require_hit``, a dispatch has no tuned schedule.
    """
    return compile_in_detail(
        model,
        target=target,
        database=database,
        layout=layout,
        require_hit=require_hit,
        schedules=schedules,
        threads=threads,
        progress=progress,
    ).image


def compile_in_detail(
    model: Model,
    *,
    target: Target | str | None = None,
    database: Database | str | Path | None = None,
    layout: str = "NHWC",
    require_hit: bool = False,
    schedules: Mapping[str, Trace] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
    options: PartitionOptions | None = None,
) -> Compilation:
    """Like :func:`compile_model`, with everything that explains the result."""
    chosen_target = resolve_target(target, threads)
    parts = divide(model, layout=layout, observer=observer, options=options)
    with _Opened(database) as opened:
        choices = {
            workload.key: choose(workload, chosen_target, opened, schedules or {})
            for workload in distinct_workloads(parts)
        }
    report = coverage(parts, choices)
    if require_hit and report.missed:
        raise MissError(_miss_message(parts.name, report))
    built = build_workloads(list(choices.values()), chosen_target, progress)
    metadata = {"layout": layout, "coverage": report.to_json()}
    image, plan = assemble(parts, built, chosen_target, metadata)
    return Compilation(image, report, parts, plan)


def compile_region(
    workload: Workload,
    trace: Trace,
    target: Target,
    arrays: Sequence[Array],
    *,
    source: str = "given",
) -> ModuleImage:
    """A module of one dispatch with a given schedule.

    ``arrays`` are all inputs of the workload; the constant ones are built into the image. The
    module takes :func:`autotune.compiler.region.region_inputs` and what it returns goes through
    :func:`autotune.compiler.region.region_outputs`.

    Raises:
        ScheduleError: the trace does not apply.
        LoweringError: the schedule has no loop nest.
        BuildError: code generation failed.
    """
    parts = region_partition(workload, arrays)
    built = build_workloads([Choice(workload, trace, source)], target, None)
    return assemble(parts, built, target, {})[0]


def divide(
    model: Model,
    *,
    layout: str = "NHWC",
    observer: Observer | None = None,
    options: PartitionOptions | None = None,
) -> Partition:
    """Import a model, run the graph passes and divide it into dispatches."""
    graph = model if isinstance(model, Graph) else load(model)
    return partition(run_passes(graph, standard_passes(layout), observer), options)


def distinct_workloads(parts: Partition) -> list[Workload]:
    """The workloads of a partition, each once, in the order of their first dispatch."""
    return list({d.workload.key: d.workload for d in parts.dispatches}.values())


def build_workloads(
    choices: Sequence[Choice], target: Target, progress: Progress | None
) -> dict[str, BuiltWorkload]:
    """Compile each choice, in order; by workload key."""
    from autotune.codegen.cpu import compile_schedule

    built = {}
    for number, choice in enumerate(choices):
        workload = choice.workload
        if progress is not None:
            progress(number, len(choices), workload.kind)
        program, schedule = scheduled(workload, choice.trace)
        code = compile_schedule(
            schedule,
            program.args,
            target,
            name=f"w{workload.key[:16]}",
            constants=program.constants,
            strides=program.strides,
        )
        built[workload.key] = BuiltWorkload(choice, code)
    return built


def reference_run(model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The model's outputs by NumPy, without compiling anything. Slow; for tests and checks."""
    graph = model if isinstance(model, Graph) else load(model)
    return dict(evaluate.run(graph, inputs))


def resolve_target(target: Target | str | None, threads: int | None) -> Target:
    """The target of a name; this machine if there is none."""
    if target is None:
        return Target.detect(threads)
    return Target.parse(target, threads)


class _Opened:
    """A database given as an object (left open) or by its path (opened to read, then closed)."""

    def __init__(self, database: Database | str | Path | None) -> None:
        self._given = database
        self._own: Database | None = None

    def __enter__(self) -> Database | None:
        if not isinstance(self._given, (str, Path)):
            return self._given
        from autotune.database.store import Database

        self._own = Database(self._given, read_only=True)
        return self._own

    def __exit__(self, *error: object) -> None:
        if self._own is not None:
            self._own.close()


def _miss_message(name: str, report: CoverageReport) -> str:
    shown = [f"  {d.name} ({d.kind}): {d.reason}" for d in report.missed[:8]]
    more = len(report.missed) - len(shown)
    return "\n".join(
        [
            f"no tuned schedule for {len(report.missed)} of {len(report.dispatches)} dispatches of {name!r}:",
            *shown,
            *([f"  ... and {more} more"] if more else []),
            "  tune the model first, or compile without requiring hits",
        ]
    )


__all__ = [
    "Compilation",
    "build_workloads",
    "compile_in_detail",
    "compile_model",
    "compile_region",
    "distinct_workloads",
    "divide",
    "reference_run",
    "resolve_target",
]
