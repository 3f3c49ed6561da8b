"""Model + target + database -> a program of segments: each dispatch is looked up, built once and placed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.coverage import CoverageReport, coverage
from autotune.compiler.devices.segments import DeviceSegment, part_of, segments_of
from autotune.compiler.dividing import distinct_workloads
from autotune.compiler.explain import Compilation, CompiledSegment, dump
from autotune.compiler.forecast import (
    DispatchForecast,
    Prediction,
    forecast,
    forecast_dispatches,
    forecast_ns,
)
from autotune.compiler.lock import Lock
from autotune.compiler.locked import check_code, locked_plan
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.plan import Plan, plan_of
from autotune.compiler.proof import prove_all
from autotune.compiler.request import CompileRequest
from autotune.compiler.shared import SharedWork
from autotune.compiler.sites.decision import DECIDED, PLACED, decided_of_model
from autotune.compiler.stale import CurrentPlan, current_plan
from autotune.database.opening import opened_if_given
from autotune.errors import MissError
from autotune.garbage import collector_paused
from autotune.passes.memory.dispatch_order import in_order
from autotune.runtime.counted import CountedOutput, to_metadata
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.database.store import Database
    from autotune.graph.ir import Graph
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition
    from autotune.runtime.hal.device import DeviceInfo
    from autotune.target import Target


@collector_paused()
def compile_in_detail(
    request: CompileRequest,
    graph: Graph | None = None,
    devices: Mapping[str, DeviceInfo] | None = None,
) -> Compilation:
    """Compile a model for one target and size, or for the devices that are named, to a program of segments and all
    that explains it.

    Schedules come from those of the request, then from its database (none for None), then from the analytic model; with
    a lock from that. ``graph`` is the model where it was imported already; ``devices`` are those there are, by default
    those of this machine. Dispatches are ordered so that independent ones may run concurrently, or, with the objective
    "memory", as the model has them.

    Raises:
        ModelImportError: the model cannot be imported.
        UsageError: parts of the request do not go together; a pass to leave out is unknown or needed.
        PlacementError: devices contradict one another, are not there, or are named for nothing.
        LockError: the lock does not fit the model, or makes other machine code than it did.
        MissError: with ``require_hit``, nothing was searched for a dispatch.
        LoweringError: with ``verify``, a schedule is wrong; with a counterexample.
        MissingExtraError: with ``verify``, islpy is not installed.
    """
    request, lock = _unlocked(request.checked())
    with opened_if_given(request.database) as store:
        request, graph, decisions = decided_of_model(request, graph, store)
        segments = segments_of(request, graph, devices)
        shared, made = request.shared or SharedWork(), dict[int, CompiledSegment]()
        new = {w.key for each in segments.each for w in _new(each, request, shared)}
        with BuildWorkers.of(len(new), shared) as workers:
            for target in dict.fromkeys(segment.target for segment in segments.each):
                numbers = segments.of_target(target)
                own = [segments.each[number] for number in numbers]
                made |= zip(numbers, _compiled(own, request, lock, store, workers), strict=True)
    compiled = tuple(made[number] for number in range(len(segments.each)))
    program = segments.program([segment.image for segment in compiled], _metadata(request))
    compilation = Compilation(
        program, compiled, request.tolerance, request.shapes, segments.affinities, decisions=decisions
    )
    if lock is not None and request.same_code:
        check_code(lock, compilation)
    return compilation


def _new(segment: DeviceSegment, request: CompileRequest, shared: SharedWork) -> list[Workload]:
    """Return the workloads of a segment that are not in the shared work."""
    return shared.new(distinct_workloads(segment.parts), segment.target, request.preference)


def _compiled(
    segments: Sequence[DeviceSegment],
    request: CompileRequest,
    lock: Lock | None,
    store: Database | None,
    workers: BuildWorkers,
) -> list[CompiledSegment]:
    """Return segments of one target by one plan."""
    target, preference = segments[0].target, request.preference
    workloads = distinct_workloads(*(segment.parts for segment in segments))
    whole = segments[0].parts if len(segments) == 1 else None

    def planned(stale: frozenset[int]) -> Plan:
        if lock is not None:
            return locked_plan(lock.of_target(target), workloads)
        return plan_of(workloads, target, store, preference, request.schedules, workers, whole, stale=stale)

    def reported(plan: Plan) -> list[tuple[Partition, CoverageReport]]:
        aim = request.order or preference.aim
        ordered = [in_order(plan.apply(segment.parts), target.threads, aim) for segment in segments]
        reports = [coverage(parts, plan) for parts in ordered]
        if request.require_hit and any(report.missed for report in reports):
            raise MissError(_miss_message(segments[0].parts.name, reports))
        return [*zip(ordered, reports, strict=True)]

    current, found = current_plan(planned, target, workers, reported)
    return [
        _assembled(segment, parts, report, current, request)
        for segment, (parts, report) in zip(segments, found, strict=True)
    ]


def _assembled(
    segment: DeviceSegment,
    parts: Partition,
    report: CoverageReport,
    current: CurrentPlan,
    request: CompileRequest,
) -> CompiledSegment:
    """Return one segment by the plan and the code of all segments of its target."""
    plan = current.plan
    used = {region.key for d in segment.parts.dispatches for region in plan.regions(d.workload)}
    built = {key: _with_evidence(code, plan) for key, code in current.built.items() if key in used}
    proofs = prove_all(parts, (plan.schedules[key] for key in built)) if request.verify else None
    metadata = {
        **_metadata(request),
        "growth": f"{plan.growth:g}",
        "coverage": report.to_json(),
        **to_metadata(CountedOutput(*each) for each in parts.counted),
    }
    image, memory_plan = assemble(parts, built, segment.target, metadata)
    bound = {
        parts.placements[parts.outputs[pair.output]].root: parts.inputs[pair.input] for pair in image.in_place
    }
    memory = prove_memory(parts, memory_plan, bound) if request.verify else None
    keys = tuple(built)
    made = CompiledSegment(segment.device, image, report, parts, memory_plan, plan, keys, proofs, memory)
    dump(made, built)
    return made


def _with_evidence(code: BuiltWorkload, plan: Plan) -> BuiltWorkload:
    """Return code of a plan with all that is known of it, options included: what an image says is what is reported."""
    evidence, _ = plan.evidence(code.planned.workload.key)
    return replace(code, planned=replace(code.planned, evidence=evidence))


def _metadata(request: CompileRequest) -> dict[str, str]:
    return {
        "layout": request.layout,
        "tolerance": str(request.tolerance),
        "objective": request.objective,
        DECIDED: json.dumps(request.decisions or {}),
        PLACED: json.dumps(dict(request.placement or {})),
    }


@collector_paused()
def predict_in_detail(request: CompileRequest, graph: Graph | None = None) -> Prediction:
    """Return what :func:`compile_in_detail` would make for one device: its latency and memory, before any machine code
    is.

    Raises ModelImportError, and UsageError as that does.
    """
    return forecast(*_foreseen(request, graph))


@collector_paused()
def predict_ns(request: CompileRequest, graph: Graph | None = None) -> float:
    """Return the latency of :func:`predict_in_detail` alone: no kernel is lowered for that."""
    return forecast_ns(*_foreseen(request, graph))


@collector_paused()
def predict_dispatches(request: CompileRequest, graph: Graph | None = None) -> list[DispatchForecast]:
    """Return the dispatches of :func:`predict_in_detail` alone: no kernel is lowered for that."""
    return forecast_dispatches(*_foreseen(request, graph))


def _foreseen(request: CompileRequest, graph: Graph | None) -> tuple[Partition, Plan, Target]:
    """Return a model as it would be compiled, in the order of its dispatches, its plan and its target."""
    request, lock = _unlocked(request.checked())
    with opened_if_given(request.database) as store:
        request, graph, _ = decided_of_model(request, graph, store)
        target = request.one_target()
        preference = request.preference
        parts = part_of(request, target, graph)
        workloads, shared = distinct_workloads(parts), request.shared or SharedWork()
        with BuildWorkers.of(len(shared.new(workloads, target, preference)), shared) as workers:
            if lock is None:
                plan = plan_of(workloads, target, store, preference, request.schedules, workers, parts)
            else:
                plan = locked_plan(lock, workloads)
    ordered = in_order(plan.apply(parts), target.threads, request.order or preference.aim)
    return ordered, plan, target


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
        decisions=lock.decisions,
        placement=lock.placement or None,
    )
    return pinned, lock


def _miss_message(name: str, reports: Sequence[CoverageReport]) -> str:
    missed = [dispatch for report in reports for dispatch in report.missed]
    shown = [f"  {d.name} ({d.kind}): {d.reason or d.evidence}" for d in missed[:8]]
    more, total = len(missed) - len(shown), sum(len(report.dispatches) for report in reports)
    return "\n".join(
        [
            f"nothing was searched for {len(missed)} of {counted(total, 'dispatch')} of {name!r}:",
            *shown,
            *([f"  ... and {more} more"] if more else []),
            "  tune the model first, or for longer, or compile without requiring hits",
        ]
    )


__all__ = ["Compilation", "compile_in_detail", "predict_dispatches", "predict_in_detail", "predict_ns"]
