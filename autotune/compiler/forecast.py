"""Predictions of a whole model before any of it is compiled: latency, memory, and the share of each dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autotune.codegen.backend import manifest_of
from autotune.compiler.assemble import BuiltWorkload, MemoryNeeds, memory_needs
from autotune.compiler.planned import Planned, apply
from autotune.compiler.tiers import Tier
from autotune.database.query import Hit
from cost_models.between import TouchedBytes, distant, in_place
from cost_models.known_error import MACHINE, KnownError, known_error, of_machine, of_sum
from cost_models.machine import Machine

if TYPE_CHECKING:
    from autotune.compiler.plan import Plan
    from autotune.passes.partition import Dispatch, Partition
    from autotune.target import Target

_INSIDE_SPREAD = 0.05
"""Standard deviation of the logarithm of a latency that was measured inside a model, over fresh processes."""
_ALONE_SPREAD = 0.15
"""The same of one that was measured alone: inside a model it reads differently."""


class LatencySource(StrEnum):
    """The source of the latency of a dispatch."""

    INSIDE = "measured in a model"
    ALONE = "measured alone"
    TRANSFERRED = "expected of what was measured elsewhere"
    PREDICTED = "predicted"


@dataclass(frozen=True)
class DispatchForecast:
    """One dispatch: its latency in the model with its 95 % interval, and where that comes from.

    ``cold_bytes`` are those that it has to fetch from memory although it would not alone; ``nodes`` are the model's.
    """

    name: str
    kind: str
    latency_ns: float
    interval_ns: tuple[float, float]
    source: LatencySource
    cold_bytes: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The prediction of one run of a model, before it is compiled."""

    model: str
    threads: int
    latency_ns: float
    interval_ns: tuple[float, float]
    memory: MemoryNeeds
    dispatches: tuple[DispatchForecast, ...]

    @cached_property
    def sources(self) -> dict[LatencySource, int]:
        """Return the number of dispatches by the source of their latency."""
        found = [dispatch.source for dispatch in self.dispatches]
        return {source: found.count(source) for source in LatencySource if source in found}

    def share(self, dispatch: DispatchForecast) -> float:
        """Return the part of the latency that is a dispatch's, 0 to 1."""
        return dispatch.latency_ns / self.latency_ns if self.latency_ns else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        return {
            "model": self.model,
            "threads": self.threads,
            "latency_ns": self.latency_ns,
            "interval_ns": self.interval_ns,
            "memory": asdict(self.memory) | {"peak_bytes": self.memory.peak_bytes},
            "dispatches": [asdict(d) | {"share": self.share(d)} for d in self.dispatches],
        }


def forecast(parts: Partition, plan: Plan, target: Target) -> Prediction:
    """Return the prediction of a partition that the plan was applied to.

    Kernels are lowered to loops, which say exactly what memory they need, and no further.
    """
    found, errors = _dispatches(parts, plan, target)
    total = sum(dispatch.latency_ns for dispatch in found)
    read = (LatencySource.INSIDE, LatencySource.ALONE)
    measured = sum(d.latency_ns for d in found if d.source in read) / (total or 1.0)
    common = measured * MACHINE.spread + (1.0 - measured) * of_machine(target).spread
    whole = KnownError(1.0, of_sum(errors, common))
    needs = memory_needs(parts, _manifests(plan.schedules, target), target)
    return Prediction(parts.name, target.threads, total, whole.interval(total), needs, tuple(found))


def forecast_ns(parts: Partition, plan: Plan, target: Target) -> float:
    """Return the latency of :func:`forecast` alone: no kernel is lowered for that."""
    return sum(dispatch.latency_ns for dispatch in forecast_dispatches(parts, plan, target))


def forecast_dispatches(parts: Partition, plan: Plan, target: Target) -> list[DispatchForecast]:
    """Return the dispatches of :func:`forecast` alone: no kernel is lowered for that."""
    return _dispatches(parts, plan, target)[0]


def _dispatches(
    parts: Partition, plan: Plan, target: Target
) -> tuple[list[DispatchForecast], list[tuple[str, float, float]]]:
    """Return what each dispatch takes; and the key of its workload, that latency, and the spread of its error."""
    machine = Machine.of(target)
    away = distant([_touched(parts, dispatch) for dispatch in parts.dispatches], machine)
    alone = {key: _alone(planned, target) for key, planned in plan.schedules.items()}
    found, errors = [], []
    for dispatch, moved in zip(parts.dispatches, away, strict=True):
        seconds, source, error = alone[dispatch.workload.key]
        seconds = seconds / error.scale
        once = seconds if source is LatencySource.INSIDE else in_place(seconds, moved, machine)
        latency = 1e9 * once * dispatch.runs
        found.append(
            DispatchForecast(
                dispatch.name,
                dispatch.workload.kind,
                latency,
                error.interval(latency),
                source,
                round(moved.memory),
                dispatch.origins,
            )
        )
        errors.append((dispatch.workload.key, latency, error.spread))
    return found, errors


def _alone(planned: Planned, target: Target) -> tuple[float, LatencySource, KnownError]:
    """Return seconds of a schedule, where they come from, and their error."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    if planned.tier is Tier.EXACT and isinstance(planned.found, Hit):
        source = LatencySource.INSIDE if planned.found.side_by_side else LatencySource.ALONE
        spread = _INSIDE_SPREAD if source is LatencySource.INSIDE else _ALONE_SPREAD
        return 1e-9 * planned.found.latencies[1], source, KnownError(1.0, spread)
    space = planned.space or space_for(planned.workload, target)
    family = known_error(space.family)
    scale = family.scale * of_machine(target).scale
    if planned.transfer is not None:
        # What was measured of the workload itself is not off as the model is.
        own = 1.0 if planned.tier is Tier.TARGET else scale
        error = KnownError(own, planned.transfer.latency_error)
        return 1e-9 * planned.transfer.latency_ns, LatencySource.TRANSFERRED, error
    return analytic.default_seconds(space), LatencySource.PREDICTED, KnownError(scale, family.spread)


def _touched(parts: Partition, dispatch: Dispatch) -> TouchedBytes:
    """Return the memory of a dispatch's values, by what is laid out as one."""

    def sizes(values: tuple[str, ...]) -> dict[str, int]:
        found: dict[str, int] = {}
        for value in values:
            root = parts.placements[value].root
            found[root] = found.get(root, 0) + parts.types[value].nbytes
        return found

    return TouchedBytes(sizes(dispatch.inputs), sizes(dispatch.outputs))


def _manifests(schedules: Mapping[str, Planned], target: Target) -> dict[str, BuiltWorkload]:
    """Return kernels and buffers of each workload's code, without the code."""
    found = {}
    for key, planned in schedules.items():
        applied = planned.scheduled or apply(planned.workload, planned.trace)
        program = applied.program
        code = manifest_of(
            applied.schedule, program.args, target, constants=program.constants, strides=program.strides
        )
        found[key] = BuiltWorkload(planned, code)
    return found


__all__ = [
    "DispatchForecast",
    "LatencySource",
    "Prediction",
    "forecast",
    "forecast_dispatches",
    "forecast_ns",
]
