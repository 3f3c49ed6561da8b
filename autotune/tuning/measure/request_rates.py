"""Costs of requests on their caller: measured on chains of tiny steps, with caches as a model leaves them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from autotune.compiler import CompileRequest, compile_in_detail
from autotune.graph.build import GraphBuilder
from autotune.runtime.hal.buffer import HOST_SPACE
from autotune.runtime.hal.device import Device
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.programs.loaded import LoadedOnDevices

_SHORT, _LONG = 2, 18
"""Steps of the chains."""
_TIMES, _WARM_UP = 15, 3
_ELEMENTS = 256


@dataclass(frozen=True)
class RequestRates:
    """Seconds of a caller: before the first submission of a request, and from its last step to the answer."""

    start: float = 0.0
    answer: float = 0.0


def request_rates(devices: Mapping[str, Device], nbytes: int) -> tuple[RequestRates, float]:
    """Return rates of requests of one or two devices, and seconds a submission; ``nbytes`` are those that a run of
    the model reads and writes, which the caller's caches hold instead of what it needs. Raises as compiling and
    submitting do.

    The time that submitting takes is a line over the number of submissions: two chains give it.
    """
    touched = np.zeros(max(1, nbytes // 8))
    reads = [_read(_chain(devices, steps), devices, touched) for steps in (_SHORT, _LONG)]
    (few, short, answer), (many, long, _) = reads
    each = max(0.0, (long - short) / (many - few)) if many > few else 0.0
    return RequestRates(max(0.0, short - few * each), answer), each


def _chain(devices: Mapping[str, Device], steps: int) -> DeviceProgram:
    """Return the tiny steps on the devices in turn; on one device they are a single step."""
    b, names = GraphBuilder("a chain"), [*devices]
    value = b.input("x", (1, _ELEMENTS))
    rules = {}
    for number in range(steps):
        value = b.node("Neg" if number % 2 else "Relu", value, name=f"step{number}")
        rules[f"step{number}"] = names[number % len(names)]
    request, infos = (
        CompileRequest(b.graph(value), placement=rules),
        {name: d.info for name, d in devices.items()},
    )
    return compile_in_detail(request, devices=infos).program


def _read(
    program: DeviceProgram,
    devices: Mapping[str, Device],
    touched: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> tuple[int, float, float]:
    """Return the number of submissions of a request, and the medians of the time to submit them and to get
    the result."""
    x = np.ones((1, _ELEMENTS), np.float32)
    submitting, answering = list[int](), list[int]()
    with closing(LoadedOnDevices(program, devices=devices)) as loaded:
        for number in range(_WARM_UP + _TIMES):
            touched += 1.0
            begin = time.monotonic_ns()
            (future,) = loaded.submit_all([(x,)], None, None)
            submitted = time.monotonic_ns()
            future.result()
            touched += 1.0
            last = loaded.timeline([x])[-1].end_ns
            answered = time.monotonic_ns()
            if number >= _WARM_UP:
                submitting.append(submitted - begin)
                answering.append(answered - last)
    return (
        _submissions(program, devices),
        1e-9 * statistics.median(submitting),
        1e-9 * statistics.median(answering),
    )


def _submissions(program: DeviceProgram, devices: Mapping[str, Device]) -> int:
    """Return steps, copies between memories, and those of inputs and outputs."""
    spaces = [devices[value.device].space for value in program.values]
    moves = sum(
        step.kind == "run" or spaces[step.reads[0]] != spaces[step.writes[0]] for step in program.steps
    )
    ends = (*(argument.value for argument in program.arguments), *program.results)
    return moves + sum(spaces[value] != HOST_SPACE for value in ends)


__all__ = ["RequestRates", "request_rates"]
