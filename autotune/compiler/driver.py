"""Model + target + database -> module image: each dispatch is looked up, built once and placed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NotRequired, TypedDict

from autotune.compiler.assemble import assemble
from autotune.compiler.build import Building
from autotune.compiler.build_workers import BuildWorkers
from autotune.compiler.coverage import CoverageReport, coverage
from autotune.compiler.dividing import Model, Shapes, distinct_workloads, divide
from autotune.compiler.explain import Compilation, dump
from autotune.compiler.forecast import Prediction, forecast
from autotune.compiler.lock import Lock
from autotune.compiler.locked import check_code, locked_plan
from autotune.compiler.memory_proof import prove_memory
from autotune.compiler.plan import plan_of
from autotune.compiler.proof import prove_all
from autotune.database.goal import MAX_SLOWDOWN, Goal
from autotune.errors import MissError
from autotune.garbage import collector_paused
from autotune.passes.memory.dispatch_order import Aim, in_order
from autotune.passes.partition import PartitionOptions
from autotune.passes.pipeline import Observer
from autotune.passes.preference import TOLERANCE, Preference
from autotune.runtime.counted import CountedOutput, to_metadata
from autotune.schedule.trace import Trace
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.database.opening import DatabaseLike
    from autotune.database.store import Database


class ModelOptions(TypedDict):
    """Options that change the workloads of a model and their options: see :func:`compile_in_detail`."""

    target: Target | str
    threads: int | None
    tolerance: float
    shapes: Shapes | None
    finite: NotRequired[bool]


class CompileOptions(ModelOptions, total=False):
    """The same, and what a compilation chooses for."""

    objective: str
    max_slowdown: float


@collector_paused()
def compile_in_detail(
    model: Model,
    *,
    target: Target | str = "host",
    database: DatabaseLike | None = None,
    layout: str = "NHWC",
    tolerance: float = TOLERANCE,
    algorithm: str | None = None,
    require_hit: bool = False,
    schedules: Mapping[str, Trace] | None = None,
    threads: int | None = None,
    shapes: Shapes | None = None,
    options: PartitionOptions | None = None,
    observer: Observer | None = None,
    verify: bool = False,
    objective: str = "latency",
    max_slowdown: float = MAX_SLOWDOWN,
    lock: Lock | None = None,
    order: Aim | None = None,
    without: Collection[str] = (),
    finite: bool = False,
) -> Compilation:
    """Compile a model to an image that :class:`autotune.runtime.module.Module` runs, and all that explains it.

    ``model`` is a path, ``"zoo:NAME"``, bytes, a ``ModelProto`` or a graph. Schedules come from
    ``schedules`` (workload key to trace), then from ``database``, then from the analytic model.
    Of several algorithms for an operation the fastest is used whose declared error is at most
    ``tolerance`` (relative to the largest result; 0 allows direct computation only); ``algorithm``
    names the one to use wherever it applies, for comparisons.
    With ``finite`` only algorithms are used that neither enlarge the range of what is computed nor spread what is not
    finite (docs/arithmetic.md).
    ``shapes`` gives sizes that the model leaves open: of a dimension by its name, or the shape of an input by the
    input's.
    With the ``objective`` "memory" or "size" (of the artifact) the smallest algorithms and schedules are used that take
    up to ``max_slowdown`` times as long as the fastest: schedules by comparisons or readings inside a model,
    algorithms by comparisons or, where there was none, by estimates.
    Dispatches are ordered so that independent ones run beside each other, or, with the objective "memory", as the model
    has them; ``order`` says otherwise.
    With a ``lock`` options and schedules are those that it has; :func:`compile_locked` gives the rest as it is there.
    With ``verify`` isl proves every schedule before its code runs, and the memory plan is gone through.
    ``without`` names graph passes to leave out, for comparisons (:func:`autotune.passes.pipeline.optional_passes`).

    Raises:
        ModelImportError: the model cannot be imported.
        UsageError: ``without`` names a pass that is unknown or needed.
        LockError: the ``lock`` does not fit the model.
        MissError: with ``require_hit``, nothing was searched for a dispatch.
        LoweringError: with ``verify``, a schedule is wrong; with a counterexample.
        MissingExtraError: with ``verify``, islpy is not installed.
    """
    chosen_target = Target.parse(target, threads)
    parts = divide(
        model,
        layout=layout,
        activations=chosen_target.activations,
        shapes=shapes,
        options=options,
        observer=observer,
        without=without,
    )
    workloads = distinct_workloads(parts)
    with _opened(database) as store, BuildWorkers.of(len(workloads)) as workers:
        preference = Preference(tolerance, algorithm, Goal.of(objective, max_slowdown), finite)
        if lock is None:
            plan = plan_of(workloads, chosen_target, store, preference, schedules, workers, parts)
        else:
            plan = locked_plan(lock, workloads)
        building = Building(list(plan.schedules.values()), chosen_target, workers)
        parts = in_order(plan.apply(parts), chosen_target.threads, order or preference.aim)
        report = coverage(parts, plan)
        if require_hit and report.missed:
            raise MissError(_miss_message(parts.name, report))
        proofs = prove_all(parts, plan.schedules.values()) if verify else None
        built = building.finish()
    metadata = {
        "layout": layout,
        "tolerance": str(tolerance),
        "objective": objective,
        "growth": f"{plan.growth:g}",
        "coverage": report.to_json(),
        **to_metadata(CountedOutput(*each) for each in parts.counted),
    }
    image, memory_plan = assemble(parts, built, chosen_target, metadata)
    memory = prove_memory(parts, memory_plan) if verify else None
    compilation = Compilation(image, report, parts, memory_plan, plan, shapes, proofs, memory)
    dump(compilation, built)
    return compilation


@collector_paused()
def predict_in_detail(
    model: Model,
    *,
    target: Target | str = "host",
    database: DatabaseLike | None = None,
    threads: int | None = None,
    tolerance: float = TOLERANCE,
    shapes: Shapes | None = None,
    objective: str = "latency",
    max_slowdown: float = MAX_SLOWDOWN,
    finite: bool = False,
) -> Prediction:
    """Predict the result of :func:`compile_in_detail`: its latency and memory, before any machine code is.

    Raises ModelImportError.
    """
    chosen_target = Target.parse(target, threads)
    parts = divide(model, activations=chosen_target.activations, shapes=shapes)
    workloads = distinct_workloads(parts)
    with _opened(database) as store, BuildWorkers.of(len(workloads)) as workers:
        preference = Preference(tolerance, goal=Goal.of(objective, max_slowdown), finite=finite)
        plan = plan_of(workloads, chosen_target, store, preference, workers=workers, parts=parts)
    ordered = in_order(plan.apply(parts), chosen_target.threads, preference.aim)
    return forecast(ordered, plan, chosen_target)


def compile_locked(
    model: Model,
    lock: Lock,
    *,
    observer: Observer | None = None,
    verify: bool = False,
    same_code: bool = True,
) -> Compilation:
    """Compile a model by a lock, for the target that it has.

    Raises LockError where it does not fit the model or, with ``same_code``, makes other machine code than it did.
    """
    done = compile_in_detail(
        model,
        target=lock.target,
        layout=lock.layout,
        tolerance=lock.tolerance,
        shapes=lock.sizes,
        observer=observer,
        verify=verify,
        lock=lock,
    )
    if same_code:
        check_code(lock, done)
    return done


def _opened(database: DatabaseLike | None) -> AbstractContextManager[Database | None]:
    if database is None:
        return nullcontext()
    from autotune.database.opening import opened

    return opened(database, read_only=True)


def _miss_message(name: str, report: CoverageReport) -> str:
    shown = [f"  {d.name} ({d.kind}): {d.reason or d.evidence}" for d in report.missed[:8]]
    more = len(report.missed) - len(shown)
    return "\n".join(
        [
            f"nothing was searched for {len(report.missed)} of {len(report.dispatches)} dispatches of {name!r}:",
            *shown,
            *([f"  ... and {more} more"] if more else []),
            "  tune the model first, or for longer, or compile without requiring hits",
        ]
    )


__all__ = [
    "Compilation",
    "CompileOptions",
    "Model",
    "ModelOptions",
    "Shapes",
    "compile_in_detail",
    "compile_locked",
    "predict_in_detail",
]
