"""Models on several devices: each segment is compiled for its device, as a model of its own, and all make a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.coverage import CoverageReport, coverage
from autotune.compiler.devices.steps import program_of
from autotune.compiler.explain import Compilation, dump
from autotune.compiler.plan import Plan, plan_of
from autotune.compiler.request import CompileRequest
from autotune.compiler.stale import current_plan
from autotune.database.opening import opened_if_given
from autotune.errors import MissError, PlacementError
from autotune.garbage import collector_paused
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.passes.memory.dispatch_order import in_order
from autotune.passes.partition import OF_A_MODEL, Partition, partition
from autotune.passes.pipeline import placed_passes, run_passes
from autotune.passes.placement.affinity import Affinities, affinities
from autotune.passes.placement.device_rules import DeviceRules
from autotune.passes.preference import Preference
from autotune.passes.segments import Division, divide_by_device
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.suggest import counted
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.database.store import Database


@dataclass(frozen=True, eq=False)
class PlacedCompilation:
    """A model compiled for several devices, where its parts run and why, and each segment as a compilation."""

    program: DeviceProgram
    affinities: Affinities
    division: Division
    segments: tuple[Compilation, ...]
    placement: str = ""
    """The coverage's line about the placement, if it was looked up."""

    @property
    def coverage(self) -> CoverageReport:
        """That of all segments, in their order."""
        plans = {id(segment.plan): segment.plan for segment in self.segments}
        return CoverageReport(
            tuple(dispatch for segment in self.segments for dispatch in segment.coverage.dispatches),
            tuple(ranking for plan in plans.values() for ranking in plan.rankings.values()),
            self.placement,
        )


@collector_paused()
def compile_placed(
    graph: Graph,
    rules: DeviceRules,
    target_of: Callable[[str], Target],
    request: CompileRequest | None = None,
) -> PlacedCompilation:
    """Compile a model whose parts are on several devices, each of which is compiled for as ``target_of`` says.

    Algorithms and schedules are chosen as the ``request`` says (by default with nothing but the model).

    Raises PlacementError for devices that contradict one another or are not there, MissError with ``require_hit``.
    """
    request = request or CompileRequest(graph)
    with opened_if_given(request.database) as store:
        return _compile_placed(graph, rules, target_of, request, store)


def _compile_placed(
    graph: Graph,
    rules: DeviceRules,
    target_of: Callable[[str], Target],
    request: CompileRequest,
    database: Database | None,
) -> PlacedCompilation:
    found = affinities(graph, rules)
    if found is None:
        raise PlacementError(f"nothing of {graph.name!r} is put on any device")
    if graph.counted:
        raise PlacementError(
            f"output {graph.outputs[graph.counted[0][0]]!r} of {graph.name!r} is as long as its data say, which "
            f"programs of several devices do not do\n  compile the model for one device"
        )
    division = divide_by_device(_prepared(graph, rules, found, target_of, request))
    parts = [partition(segment.graph, OF_A_MODEL) for segment in division.segments]
    targets = [target_of(segment.device) for segment in division.segments]
    preference = request.preference
    metadata = {
        "layout": request.layout,
        "tolerance": str(request.tolerance),
        "objective": request.objective,
    }
    with BuildWorkers.of(len(_workloads(parts))) as workers:
        segments = list[Compilation | None]([None] * len(parts))
        for target in dict.fromkeys(targets):
            numbers = [number for number, own in enumerate(targets) if own == target]
            workloads = _workloads(parts[number] for number in numbers)
            planned = partial(_planned, workloads, target, database, preference, workers)
            current, _ = current_plan(planned, target, workers, lambda plan: None)
            for number in numbers:
                segments[number] = _compiled(parts[number], current.plan, current.built, target, metadata)
    compiled = tuple(segment for segment in segments if segment is not None)
    missed = [dispatch for segment in compiled for dispatch in segment.coverage.missed]
    if request.require_hit and missed:
        raise MissError(
            f"nothing was searched for {counted(len(missed), 'dispatch')} of {graph.name!r}\n"
            "  compile without requiring hits"
        )
    program = program_of(graph, division, [segment.image for segment in compiled], metadata)
    return PlacedCompilation(program, found, division, compiled)


def _planned(
    workloads: Sequence[Workload],
    target: Target,
    database: Database | None,
    preference: Preference,
    workers: BuildWorkers,
    stale: frozenset[int],
) -> Plan:
    return plan_of(workloads, target, database, preference, workers=workers, stale=stale)


def _compiled(
    parts: Partition,
    plan: Plan,
    built: Mapping[str, BuiltWorkload],
    target: Target,
    metadata: Mapping[str, str],
) -> Compilation:
    """Return one segment by the plan and the code of all segments of its target."""
    used = {region.key for d in parts.dispatches for region in plan.regions(d.workload)}
    own = {key: workload for key, workload in built.items() if key in used}
    applied = in_order(plan.apply(parts), target.threads)
    report = replace(coverage(applied, plan), rankings=())
    image, memory = assemble(
        applied, own, target, {**metadata, "growth": f"{plan.growth:g}", "coverage": report.to_json()}
    )
    compilation = Compilation(image, report, applied, memory, plan)
    dump(compilation, own)
    return compilation


def _prepared(
    graph: Graph,
    rules: DeviceRules,
    found: Affinities,
    target_of: Callable[[str], Target],
    request: CompileRequest,
) -> Graph:
    """Return the graph after all passes; types of activations are those that every device takes."""
    devices = {home.device for home in (*found.homes.nodes.values(), *found.homes.inputs.values())}
    activations = sorted({target_of(device).activations for device in devices})
    return run_passes(graph, placed_passes(rules, request.layout, activations[0]), request.observer)


def _workloads(parts: Iterable[Partition]) -> list[Workload]:
    """Return the workloads of several partitions, each once."""
    return list({d.workload.key: d.workload for part in parts for d in part.dispatches}.values())


__all__ = ["PlacedCompilation", "compile_placed"]
