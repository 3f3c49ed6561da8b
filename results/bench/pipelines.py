"""Models in stages on several devices, several in flight: beside one at a time, and one module of all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import autotune
from autotune.bench.problem import Case
from autotune.bench.tables import NOTHING, Table, duration, ratio
from autotune.errors import MeasureError
from autotune.runtime.compiled_model import CompiledModel
from autotune.runtime.module import Module
from autotune.runtime.placed_module import PlacedModule
from autotune.tuning.measure.in_flight import Flow, keep_in_flight
from autotune.tuning.place import Proposal, propose

WAYS = ("stages, one at a time", "stages, in flight", "all cores, one at a time", "all cores, in flight")
_TURN_NS = 60e6
_LEAST = 12
"""Requests of a turn, at least."""
_TOLERANCE = 1e-3
_NOTES = (
    "times are from one answer to the next, in the mean of a turn, the least of all turns: work beside this is not in "
    "them; all take turns in one process, and the answers of requests with different inputs were compared with those "
    "of the module of all cores first",
    "stages: how many parts of each device a request has; all cores: the same model as one module of all cores, whose "
    "requests in flight share them out",
    "÷: stages in flight over the other; below 1 the pipeline is the faster one",
    "expected: the work of the busiest lane for one request, by what each part took alone on its device",
)


@dataclass(frozen=True)
class Piped:
    """Nanoseconds [rounds] from one answer to the next of each of :data:`WAYS`, and of each request in flight.

    ``expected_ns`` is the estimate of the second, because of the lane ``bottleneck``.
    """

    model: str
    devices: tuple[str, ...]
    in_flight: int
    stages: tuple[str, ...]
    expected_ns: float
    bottleneck: str
    periods_ns: dict[str, list[float]] = field(default_factory=dict)
    latencies_ns: dict[str, list[int]] = field(default_factory=dict)

    def least(self, way: str) -> float:
        """From one answer to the next in the turn that other work disturbed least."""
        return min(self.periods_ns[way])

    def to(self, way: str) -> float:
        """The pipeline's time over that of another way."""
        return self.least(WAYS[1]) / self.least(way)


def measure(
    cases: Iterable[Case],
    devices: Sequence[Sequence[str]],
    in_flight: int | None,
    rounds: int,
    say: Callable[[str], None],
) -> list[Piped | str]:
    """Each model on each choice of devices; a text where no stages promise anything.

    Raises MeasureError for a wrong answer, and what searching and compiling raise.
    """
    return [_measured(case, names, in_flight, rounds, say) for case in cases for names in devices]


def _measured(
    case: Case, devices: Sequence[str], in_flight: int | None, rounds: int, say: Callable[[str], None]
) -> Piped | str:
    say(f"{case.name} on {', '.join(devices)}")
    depth = len(devices) + 1 if in_flight is None else in_flight
    problem = case.build()
    found = propose(problem.graph, devices, depth)
    if found is None:
        return f"{case.name} on {', '.join(devices)}: no stages are expected to be faster than all on one of them"
    with ExitStack() as open_:
        staged = open_.enter_context(PlacedModule(found.program, in_flight=depth))
        whole = open_.enter_context(autotune.compile(problem.graph))
        if not isinstance(whole, Module):
            raise MeasureError(f"{case.name} names devices itself: it cannot be compared with one module")
        arrays = [problem.inputs[spec.name] for spec in whole.inputs]
        _check(staged, whole, arrays, case.name)
        made = _piped(case.name, devices, depth, found)
        _turns(made, staged, whole, arrays, rounds)
    return made


def _piped(model: str, devices: Sequence[str], depth: int, found: Proposal) -> Piped:
    runs = [step.device for step in found.program.steps if step.kind == "run"]
    stages = tuple(f"{runs.count(name)} {name}" for name in dict.fromkeys(runs))
    return Piped(model, tuple(devices), depth, stages, 1e9 * found.expected.period, found.expected.bottleneck)


def _check(staged: PlacedModule, whole: Module, arrays: Sequence[np.ndarray[Any, Any]], name: str) -> None:
    """Different inputs in flight at once have the answers of the other module."""
    inputs = [[a + a.dtype.type(0.01 * n) if a.dtype.kind == "f" else a for a in arrays] for n in range(12)]
    for given, request in zip(inputs, staged.submit_all(inputs), strict=True):
        for mine, other in zip(request.result(), whole(*given), strict=True):
            if not np.allclose(mine, other, _TOLERANCE, _TOLERANCE * float(np.abs(other).max())):
                raise MeasureError(
                    f"{name}: a request in flight has another answer than one module of all cores"
                )


def _turns(
    made: Piped, staged: PlacedModule, whole: Module, arrays: Sequence[np.ndarray[Any, Any]], rounds: int
) -> None:
    ways: dict[str, tuple[CompiledModel, int]] = {
        WAYS[0]: (staged, 1),
        WAYS[1]: (staged, made.in_flight),
        WAYS[2]: (whole, 1),
        WAYS[3]: (whole, made.in_flight),
    }
    requests = dict.fromkeys(ways, _LEAST)
    for number in range(-1, rounds):
        for way in [*WAYS[max(number, 0) % len(WAYS) :], *WAYS[: max(number, 0) % len(WAYS)]]:
            module, depth = ways[way]
            flow: Flow = keep_in_flight(module, arrays, depth, requests[way])
            if number < 0:
                requests[way] = max(_LEAST, int(_TURN_NS / flow.period_ns))
                continue
            made.periods_ns.setdefault(way, []).append(flow.period_ns)
            made.latencies_ns.setdefault(way, []).extend(flow.latencies_ns.tolist())


def tables(found: Sequence[Piped | str]) -> list[Table]:
    """Times and their ratios, and what was expected; then latencies."""
    made = [each for each in found if isinstance(each, Piped)]
    notes = (*_NOTES, *(each for each in found if isinstance(each, str)))
    rows = [
        (
            f"{each.model}, {' + '.join(each.devices)}",
            ", ".join(each.stages),
            str(each.in_flight),
            *(duration(each.least(way)) for way in WAYS),
            f"{1e9 / each.least(WAYS[1]):.0f}",
            ratio(each.to(WAYS[0])),
            ratio(each.to(WAYS[3])),
        )
        for each in made
    ]
    head = ("model", "stages", "in flight", *WAYS, "requests/s", "÷ one at a time", "÷ all cores, in flight")
    lanes = [
        (
            f"{each.model}, {' + '.join(each.devices)}",
            each.bottleneck or NOTHING,
            duration(each.expected_ns),
            duration(each.least(WAYS[1])),
            ratio(each.expected_ns / each.least(WAYS[1])),
            *(
                duration(float(np.percentile(each.latencies_ns[way], part)))
                for way in (WAYS[1], WAYS[3])
                for part in (50, 99)
            ),
        )
        for each in made
    ]
    lanes_head = (
        "model",
        "bottleneck",
        "expected",
        "measured",
        "expected ÷ measured",
        "stages: latency, median",
        "99 %",
        "all cores: latency, median",
        "99 %",
    )
    return [
        Table("Stages beside one module", head, tuple(rows), notes),
        Table("Bottlenecks and latencies with as many requests in flight", lanes_head, tuple(lanes)),
    ]


__all__ = ["WAYS", "Piped", "measure", "tables"]
