"""Models in stages on several devices, several in flight: beside one at a time, and one module of all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import click
import numpy as np

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, at, over
from autotune.bench.interleaved import interleaved
from autotune.bench.problem import BenchmarkCase
from autotune.bench.suites import models
from autotune.bench.tables import duration, number, quotient, ratio
from autotune.errors import MeasureError
from autotune.runtime.module import Module
from autotune.tuning.measure.in_flight import InFlightTimes, keep_in_flight
from autotune.tuning.placement.place import propose

WAYS = ("stages, one at a time", "stages, in flight", "all cores, one at a time", "all cores, in flight")
_TURN_NS = 60e6
_LEAST = 12
"""Requests of a turn, at least."""
_TOLERANCE = 1e-3
MODELS = ("squeezenet", "inception_v1", "mobilenetv2", "encoder")


def measure(
    say: Say, names: Sequence[str], devices: Sequence[str], in_flight: int | None, rounds: int
) -> Iterator[Sequence[Record]]:
    """Yield the records of one model on one choice of devices after the other, one for each of :data:`WAYS`.

    There is one without a way where no stages promise anything. Raises MeasureError for a wrong answer, and what
    searching and compiling raise.
    """
    choices = [[name for name in each.split(",") if name] for each in devices]
    for case in models.models(names or MODELS):
        for chosen in choices:
            yield _measured(case, chosen, in_flight, rounds, say)


def _measured(
    case: BenchmarkCase, devices: Sequence[str], in_flight: int | None, rounds: int, say: Say
) -> list[Record]:
    on = " + ".join(devices)
    say(f"{case.name} on {', '.join(devices)}")
    depth = len(devices) + 1 if in_flight is None else in_flight
    problem = case.build()
    found = propose(problem.graph, devices, depth)
    about: dict[str, Any] = {"model": case.name, "devices": on, "in_flight": depth}
    if found is None:
        return [
            {**about, "nothing": f"{case.name} on {on}: no stages are expected to be faster than all on one"}
        ]
    with ExitStack() as open_:
        staged = open_.enter_context(Module(found.program, in_flight=depth))
        whole = open_.enter_context(autotune.compile(problem.graph))
        if whole.in_flight > 1:
            raise MeasureError(f"{case.name} names devices itself: it cannot be compared with one module")
        arrays = [problem.inputs[spec.name] for spec in whole.inputs]
        _check(staged, whole, arrays, case.name)
        flows = _turns(staged, whole, depth, arrays, rounds)
    runs = [step.device for step in found.program.steps if step.kind == "run"]
    about |= {
        "stages": ", ".join(f"{runs.count(name)} {name}" for name in dict.fromkeys(runs)),
        "expected_ns": 1e9 * found.expected.period,
        "bottleneck": found.expected.bottleneck or None,
    }
    return [
        {
            **about,
            "way": way,
            "periods_ns": [flow.period_ns for flow in some],
            "period_ns": min(flow.period_ns for flow in some),
            "latencies_ns": [ns for flow in some for ns in flow.latencies_ns.tolist()],
        }
        for way, some in flows.items()
    ]


def _check(staged: Module, whole: Module, arrays: Sequence[np.ndarray[Any, Any]], name: str) -> None:
    """Different inputs in flight at once have the answers of the other module."""
    inputs = [[a + a.dtype.type(0.01 * n) if a.dtype.kind == "f" else a for a in arrays] for n in range(12)]
    for given, request in zip(inputs, staged.submit_all(inputs), strict=True):
        for mine, other in zip(request.result(), whole(*given), strict=True):
            if not np.allclose(mine, other, _TOLERANCE, _TOLERANCE * float(np.abs(other).max())):
                raise MeasureError(
                    f"{name}: a request in flight has another answer than one module of all cores"
                )


def _turns(
    staged: Module, whole: Module, depth: int, arrays: Sequence[np.ndarray[Any, Any]], rounds: int
) -> dict[str, list[InFlightTimes]]:
    ways: dict[str, tuple[Module, int]] = {
        WAYS[0]: (staged, 1),
        WAYS[1]: (staged, depth),
        WAYS[2]: (whole, 1),
        WAYS[3]: (whole, depth),
    }
    first = {way: keep_in_flight(module, arrays, many, _LEAST) for way, (module, many) in ways.items()}
    turns = {
        way: partial(keep_in_flight, module, arrays, many, max(_LEAST, int(_TURN_NS / first[way].period_ns)))
        for way, (module, many) in ways.items()
    }
    flows: dict[str, list[InFlightTimes]] = {way: [] for way in ways}
    for _, way, flow in interleaved(turns, rounds):
        flows[way].append(flow)
    return flows


ABOUT = (
    "Models whose parts are stages on several devices, with several requests in flight: beside requests one at a time "
    "on the same stages, and beside the same model as one module of all cores. The stages are those that the search "
    "for a placement expects to be the best for throughput."
)

_NOTES = (
    "times are from one answer to the next, in the mean of a turn, the least of all turns: work beside this is not in "
    "them; all are interleaved in one process, and the answers of requests with different inputs were compared with "
    "those of the module of all cores first",
    "stages: how many parts of each device a request has; all cores: the same model as one module of all cores, whose "
    "requests in flight share them out",
    "÷: stages in flight over the other; below 1 the pipeline is the faster one",
    "expected: the work of the busiest lane for one request, by what each part took alone on its device",
)


def _name(rows: FrameRows) -> str:
    return f"{rows.get('model')}, {rows.get('devices')}"


def _nothing(rows: FrameRows) -> list[str]:
    return [*_NOTES, *rows.all("nothing")]


def _latency(way: str, part: int) -> Callable[[FrameRows], float]:
    return lambda rows: float(np.percentile(rows.where(way=way).get("latencies_ns"), part))


_STAGED, _WHOLE = WAYS[1], WAYS[3]
_periods = {way: at("period_ns", way=way) for way in WAYS}


def _rate(rows: FrameRows) -> float | None:
    return quotient(1e9, _periods[_STAGED](rows))


EXPERIMENT = Experiment(
    title="Pipelines",
    about=ABOUT,
    summary="Measure stages on several devices with several requests in flight; NAMES are zoo models or ONNX files.",
    example="squeezenet --devices cpu:0,cpu:1",
    options=(
        options.words(),
        click.Option(
            ["--devices"],
            multiple=True,
            default=("cpu:0,cpu:1",),
            show_default=True,
            metavar="A,B,...",
            help="Devices of the stages; several times for several choices.",
        ),
        options.number("--in-flight", None, "Requests at a time. [default: one more than devices]", least=2),
        options.number("--rounds", 12, "Turns of each."),
    ),
    measure=measure,
    views=(
        TableView(
            "Stages beside one module",
            ("model", "devices"),
            (
                Column("model", _name),
                Column("stages", "stages"),
                Column("in flight", "in_flight"),
                *(Column(way, read, duration) for way, read in _periods.items()),
                Column("requests/s", _rate, number()),
                Column("÷ one at a time", over(_periods[_STAGED], _periods[WAYS[0]]), ratio),
                Column("÷ all cores, in flight", over(_periods[_STAGED], _periods[_WHOLE]), ratio),
            ),
            notes=_nothing,
        ),
        TableView(
            "Bottlenecks and latencies with as many requests in flight",
            ("model", "devices"),
            (
                Column("model", _name),
                Column("bottleneck", "bottleneck"),
                Column("expected", "expected_ns", duration),
                Column("measured", _periods[_STAGED], duration),
                Column("expected ÷ measured", over("expected_ns", _periods[_STAGED]), ratio),
                Column("stages: latency, median", _latency(_STAGED, 50), duration),
                Column("99 %", _latency(_STAGED, 99), duration),
                Column("all cores: latency, median", _latency(_WHOLE, 50), duration),
                Column("99 %", _latency(_WHOLE, 99), duration),
            ),
            where=lambda rows: rows.get("way"),
        ),
    ),
)

__all__ = ["EXPERIMENT", "WAYS"]
