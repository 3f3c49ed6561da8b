"""Model + target + database -> module image: each dispatch is looked up, built once and placed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.assemble import assemble
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.coverage import CoverageReport, coverage
from autotune.compiler.dividing import distinct_workloads, divide
from autotune.compiler.explain import Compilation, dump
from autotune.compiler.forecast import Prediction, forecast
from autotune.compiler.lock import Lock
from autotune.compiler.locked import check_code, locked_plan
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.plan import Plan, plan_of
from autotune.compiler.proof import prove_all
from autotune.compiler.request import CompileRequest
from autotune.compiler.stale import current_plan
from autotune.database.opening import opened_if_given
from autotune.errors import MissError
from autotune.garbage import collector_paused
from autotune.passes.memory.dispatch_order import in_order
from autotune.runtime.counted import CountedOutput, to_metadata

if TYPE_CHECKING:
    from autotune.graph.ir import Graph
    from autotune.passes.partition import Partition
    from autotune.target import Target


@collector_paused()
def compile_in_detail(request: CompileRequest, graph: Graph | None = None) -> Compilation:
    """Compile a model for one target to an image that :class:`autotune.runtime.module.Module` runs, and all that
    explains it.

    Schedules come from those of the request, then from its database (none for None), then from the analytic model; with
    a lock from that. ``graph`` is the model where it was imported already. Dispatches are ordered so that independent
    ones may run concurrently, or, with the objective "memory", as the model has them.

    Raises:
        ModelImportError: the model cannot be imported.
        UsageError: parts of the request do not go together; a pass to leave out is unknown or needed.
        LockError: the lock does not fit the model, or makes other machine code than it did.
        MissError: with ``require_hit``, nothing was searched for a dispatch.
        LoweringError: with ``verify``, a schedule is wrong; with a counterexample.
        MissingExtraError: with ``verify``, islpy is not installed.
    """
    request, lock = _unlocked(request.checked())
    target = request.one_target()
    preference = request.preference
    parts = _parts(request, target, graph)
    workloads = distinct_workloads(parts)
    with opened_if_given(request.database) as store, BuildWorkers.of(len(workloads)) as workers:
        divided = parts

        def planned(stale: frozenset[int]) -> Plan:
            if lock is not None:
                return locked_plan(lock, workloads)
            return plan_of(
                workloads, target, store, preference, request.schedules, workers, divided, stale=stale
            )

        def reported(plan: Plan) -> tuple[Partition, CoverageReport]:
            ordered = in_order(plan.apply(divided), target.threads, request.order or preference.aim)
            report = coverage(ordered, plan)
            if request.require_hit and report.missed:
                raise MissError(_miss_message(ordered.name, report))
            return ordered, report

        current, (parts, report) = current_plan(planned, target, workers, reported)
    plan, built = current.plan, current.built
    proofs = prove_all(parts, plan.schedules.values()) if request.verify else None
    metadata = {
        "layout": request.layout,
        "tolerance": str(request.tolerance),
        "objective": request.objective,
        "growth": f"{plan.growth:g}",
        "coverage": report.to_json(),
        **to_metadata(CountedOutput(*each) for each in parts.counted),
    }
    image, memory_plan = assemble(parts, built, target, metadata)
    memory = prove_memory(parts, memory_plan) if request.verify else None
    compilation = Compilation(image, report, parts, memory_plan, plan, request.shapes, proofs, memory)
    dump(compilation, built)
    if lock is not None and request.same_code:
        check_code(lock, compilation)
    return compilation


@collector_paused()
def predict_in_detail(request: CompileRequest, graph: Graph | None = None) -> Prediction:
    """Return what :func:`compile_in_detail` would make: its latency and memory, before any machine code is.

    Raises ModelImportError, and UsageError as that does.
    """
    request, lock = _unlocked(request.checked())
    target = request.one_target()
    preference = request.preference
    parts = _parts(request, target, graph)
    workloads = distinct_workloads(parts)
    with opened_if_given(request.database) as store, BuildWorkers.of(len(workloads)) as workers:
        if lock is None:
            plan = plan_of(workloads, target, store, preference, request.schedules, workers, parts)
        else:
            plan = locked_plan(lock, workloads)
    ordered = in_order(plan.apply(parts), target.threads, request.order or preference.aim)
    return forecast(ordered, plan, target)


def _unlocked(request: CompileRequest) -> tuple[CompileRequest, Lock | None]:
    """Return the request with what its lock says, and the lock; None without one."""
    if request.lock is None:
        return request, None
    lock = request.lock if isinstance(request.lock, Lock) else Lock.read(Path(request.lock))
    pinned = replace(
        request,
        target=lock.target,
        threads=None,
        layout=lock.layout,
        tolerance=lock.tolerance,
        shapes=lock.sizes,
    )
    return pinned, lock


def _parts(request: CompileRequest, target: Target, graph: Graph | None) -> Partition:
    """Return the model in parts; ``graph`` is what was imported of it already."""
    return divide(
        request.model if graph is None else graph,
        layout=request.layout,
        activations=target.activations,
        shapes=request.shapes if graph is None else None,
        options=request.partition,
        observer=request.observer,
        without=request.without,
    )


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


__all__ = ["Compilation", "compile_in_detail", "predict_in_detail"]
