"""Facts of each dispatch of a compiled model, its time, roofline and schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from autotune.compiler.forecast import forecast
from autotune.profiling.roofline import roofs_of
from autotune.profiling.traffic import traffic

if TYPE_CHECKING:
    from autotune.compiler.explain import CompiledSegment
    from autotune.compiler.forecast import Prediction
    from autotune.passes.partition import ElementRange, Partition
    from autotune.schedule.trace import Trace


@dataclass(frozen=True)
class DispatchFacts:
    """One dispatch: ``latency_ns`` with its 95 % interval, where that comes from, and its ``share`` of the model.

    ``operators`` are those fused in it, ``nodes`` the model's. ``least_ns`` is what the machine needs at least, because
    of ``bound``; None where no roof is known. ``schedule`` counts its primitives, ``trace`` has them as Python.
    ``reads`` and ``writes`` are values with their types and layouts, ``after`` the dispatches that wrote what it reads.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    latency_ns: float
    interval_ns: tuple[float, float]
    source: str
    share: float
    least_ns: float | None
    bound: str | None
    evidence: str
    schedule: str
    trace: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    after: tuple[str, ...]
    types: tuple[str, ...]
    """Those of what it writes."""

    @property
    def of_roof(self) -> float | None:
        """Return the share of the roofline's rate that it is expected to reach."""
        return None if self.least_ns is None or not self.latency_ns else self.least_ns / self.latency_ns

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        return asdict(self) | {"of_roof": self.of_roof}


@dataclass(frozen=True)
class ModelFacts:
    """A compiled model: what a run of it is expected to take, and its dispatches in their order.

    ``from_inputs`` has the number of an input and a dispatch that reads it, ``to_outputs`` the same of outputs and
    what writes them.
    """

    expected: Prediction
    dispatches: tuple[DispatchFacts, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    from_inputs: tuple[tuple[int, str], ...]
    to_outputs: tuple[tuple[int, str], ...]


def facts_of(segment: CompiledSegment) -> ModelFacts:
    """Return the facts of a model as it was compiled: a schedule that has become stale meanwhile is not in it."""
    expected = forecast(segment.partition, segment.plan, segment.image.target)
    known = {each.name: each for each in segment.coverage.dispatches}
    forecasts = {each.name: each for each in expected.dispatches}
    least = _least(segment)
    after = written_before(segment.partition)
    found = []
    for dispatch in segment.partition.dispatches:
        least_ns, bound = least.get(dispatch.name, (None, None))
        expectation, trace = forecasts[dispatch.name], segment.plan.schedules[dispatch.workload.key].trace
        found.append(
            DispatchFacts(
                dispatch.name,
                dispatch.workload.kind,
                dispatch.origins,
                tuple(node.op for node in dispatch.region.graph.nodes),
                expectation.latency_ns,
                expectation.interval_ns,
                expectation.source.value,
                expected.share(expectation),
                least_ns,
                bound,
                known[dispatch.name].known,
                summary(trace),
                trace.to_python(),
                _described(segment.partition, dispatch.inputs),
                _described(segment.partition, dispatch.outputs),
                after[dispatch.name],
                tuple(str(segment.partition.types[value].dense) for value in dispatch.outputs),
            )
        )
    parts, image = segment.partition, segment.image
    return ModelFacts(
        expected,
        tuple(found),
        tuple(map(str, image.inputs)),
        tuple(map(str, image.outputs)),
        _touching(parts, parts.inputs, [(each.name, each.inputs) for each in parts.dispatches]),
        _touching(parts, parts.outputs, [(each.name, each.outputs) for each in parts.dispatches]),
    )


def _touching(
    parts: Partition, ends: Sequence[str], dispatches: Sequence[tuple[str, Sequence[str]]]
) -> tuple[tuple[int, str], ...]:
    """Return the number of each input or output with the dispatches that have values in its memory."""
    found = []
    for number, end in enumerate(ends):
        if end not in parts.placements:
            continue  # an input that nothing reads
        whole = parts.reach(end)
        own = [name for name, values in dispatches if any(parts.reach(v).meets(whole) for v in values)]
        found += [(number, name) for name in own]
    return tuple(found)


def _least(segment: CompiledSegment) -> dict[str, tuple[float, str]]:
    """Return by dispatch the least time of the machine, and what bounds it; nothing where no roof is known."""
    roofs, image = roofs_of(segment.image.target), segment.image
    if roofs is None:
        return {}
    (moved,) = traffic([image], *roofs.capacities)
    found = [
        roofs.of(info.flops, info.dtype, each) for info, each in zip(image.dispatches, moved, strict=True)
    ]
    return {
        info.name: (roof.least_ns, roof.bound) for info, roof in zip(image.dispatches, found, strict=True)
    }


def summary(trace: Trace) -> str:
    """Return the primitives of a schedule, each with how often it is used.

    >>> from autotune.schedule.trace import Step, Trace
    >>> summary(Trace((Step("split", "y", ()), Step("split", "y", ()), Step("vectorize", "y", ()))))
    'split ×2, vectorize'
    """
    times = Counter(step.primitive for step in trace.steps)
    return (
        ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in times.items())
        or "as it stands"
    )


def _described(parts: Partition, values: Sequence[str]) -> tuple[str, ...]:
    """Return values with their types, and where they lie in the memory of another one or are constants."""
    made = []
    for value in values:
        placed, kind = parts.placements[value], " (constant)" if value in parts.constants else ""
        inside = f" in {placed.root} at {placed.offset}" if placed.root != value else ""
        made.append(f"{value}: {parts.types[value]}{inside}{kind}")
    return tuple(made)


def written_before(parts: Partition) -> dict[str, tuple[str, ...]]:
    """Return for each dispatch those before it that wrote what it reads, whatever value it was written as."""
    writers: dict[str, list[tuple[str, ElementRange]]] = {}
    found = dict[str, tuple[str, ...]]()
    for dispatch in parts.dispatches:
        mine = dict[str, None]()
        for read in map(parts.reach, dispatch.inputs):
            for writer, wrote in reversed(writers.get(read.root, [])):
                if wrote.meets(read):
                    mine[writer] = None
                    if not wrote.period and wrote.begin <= read.begin and read.end <= wrote.end:
                        break  # all that is older is overwritten
        found[dispatch.name] = tuple(mine)
        for wrote in map(parts.reach, dispatch.outputs):
            writers.setdefault(wrote.root, []).append((dispatch.name, wrote))
    return found


def roof_text(of_roof: float | None, bound: str | None) -> str:
    """Return how near to its roofline a dispatch is, and what that is.

    >>> roof_text(0.5, "L3"), roof_text(None, None)
    ('50 % of its roofline (L3)', 'no roofline known')
    """
    return "no roofline known" if of_roof is None else f"{100 * of_roof:.0f} % of its roofline ({bound})"


__all__ = ["DispatchFacts", "ModelFacts", "facts_of", "roof_text", "summary", "written_before"]
