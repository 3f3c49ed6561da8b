"""Times of compiled parts on their devices, each measured by itself, and the expected makespan of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autotune.compiler.devices.makespan import LaneTask, Makespan, makespan
from autotune.compiler.devices.tasks import TaskFlow, tasks_of
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer, host_buffer
from autotune.runtime.hal.command_buffer import CommandBuffer
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.rates import DeviceRates, measure_rates
from autotune.runtime.hal.recording import LoadedImage, load_image
from autotune.runtime.image import ModuleImage
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.random_inputs import random_inputs
from autotune.runtime.unrolled import unrolled
from autotune.tuning.measure.request_rates import request_rates

_TIMES = 15
_WARM_UP = 2
_SEED = 0
_TYPICAL = 0.25
"""The quantile of readings that counts: half of them may meet other work, and the least of many is the luckiest."""


@dataclass(frozen=True)
class ImageTimes:
    """Seconds of an image on a device: of the whole, of each dispatch in it, and of beginning and ending."""

    whole: float
    dispatches: tuple[float, ...]
    launch: float


@dataclass(frozen=True)
class Expected:
    """The expected times of a run of a program, in seconds; ``around`` is of the caller before and after it."""

    program: DeviceProgram
    tasks: tuple[LaneTask, ...]
    run: Makespan
    around: float

    @property
    def seconds(self) -> float:
        """As the caller sees it."""
        return self.run.total + self.around


def expected_of(program: DeviceProgram, devices: Mapping[str, Device]) -> Expected:
    """Return the makespan of a program from its steps, each run on its device while nothing else runs, and the rates
    of the devices.

    The steps run one after another as in a request, so that each finds its constants where the others leave them.
    """
    rates = rates_of({name: devices[name] for name in program.devices}, touched_bytes(program.images))
    runs = {step.image: step.device for step in program.steps if step.kind == "run"}
    benches = {number: _Bench(devices[runs[number]], image) for number, image in enumerate(program.images)}
    rows = [{n: bench.once() for n, bench in benches.items()} for _ in range(_WARM_UP + _TIMES)]
    seconds = {n: float(np.quantile([row[n] for row in rows[_WARM_UP:]], _TYPICAL)) for n in benches}
    durations = [seconds[step.image] if step.kind == "run" else 0.0 for step in program.steps]
    spaces = {name: devices[name].space for name in program.devices}
    cores = {name: devices[name].info.core_ids for name in program.devices}
    tasks = tasks_of(TaskFlow.of_program(program), durations, rates, spaces, cores)
    return Expected(program, tuple(tasks), makespan(tasks), around(rates))


def touched_bytes(images: Iterable[ModuleImage]) -> int:
    """Return bytes that runs of images read and write: constants, inputs, outputs and what lies between."""
    return sum(
        sum(array.nbytes for array in image.constants)
        + sum(spec.nbytes for spec in (*image.inputs, *image.outputs))
        + image.arena_bytes
        for image in images
    )


def rates_of(devices: Mapping[str, Device], nbytes: int = 0) -> dict[str, DeviceRates]:
    """Return the rates of devices that work together: each has work handed over from another, where there is one.

    ``nbytes`` are those that a run of the model reads and writes: what the caller needs is not in its caches after it.
    """
    found = {}
    for name, device in devices.items():
        other = next((each for each in devices.values() if each is not device), None)
        rates = measure_rates(device, other)
        pair = {name: device} if other is None else {name: device, other.name: other}
        requests, each = request_rates(pair, nbytes)
        found[name] = replace(
            rates,
            submission_seconds=max(each, rates.submission_seconds),
            start_seconds=requests.start,
            answer_seconds=requests.answer,
        )
    return found


def around(rates: Mapping[str, DeviceRates]) -> float:
    """Return the time of a request on its caller before it submits anything, and after its last step is over."""
    return max(rate.start_seconds for rate in rates.values()) + max(
        rate.answer_seconds for rate in rates.values()
    )


def whole_seconds(device: Device, image: ModuleImage) -> float:
    """Return seconds of an image on a device, as a quiet moment has it; raises as a submission does."""
    return _Bench(device, image).whole()


def image_times(device: Device, image: ModuleImage) -> ImageTimes:
    """Return the same, and of each of its dispatches.

    Dispatches are submitted one by one; what that takes beside them is known from their sum, which is more than the
    whole.
    """
    image = unrolled(image)
    bench = _Bench(device, image)
    whole, parts = bench.whole(), bench.parts()
    launch = max(0.0, (sum(parts) - whole) / (len(parts) - 1)) if len(parts) > 1 else 0.0
    launch = min(launch, whole, *parts)
    work = np.array(parts) - launch
    scale = (whole - launch) / work.sum() if work.sum() > 0 else 1.0
    found = [0.0] * len(image.dispatches)
    for command, seconds in zip(image.commands, work * scale, strict=True):
        found[command.dispatch] += float(seconds)
    return ImageTimes(whole, tuple(found), launch)


class _Bench:
    """An image on a device with memory for its inputs and outputs."""

    def __init__(self, device: Device, image: ModuleImage) -> None:
        self._loaded: LoadedImage = load_image(device, image)
        self._device = device
        drawn = random_inputs(image.inputs, _SEED)
        self._inputs = [drawn[spec.name] for spec in image.inputs]
        arrays = [*self._inputs, *(np.zeros(spec.shape, spec.dtype) for spec in image.outputs)]
        here = device.space == HOST_SPACE
        self._table: list[Buffer] = [host_buffer(a) if here else device.upload(a, image.name) for a in arrays]

    def whole(self) -> float:
        return self._seconds([self._commands])[0]

    def once(self) -> float:
        return self._row([self._commands])[0]

    @cached_property
    def _commands(self) -> CommandBuffer:
        return self._loaded.record("timed")

    def parts(self) -> list[float]:
        return self._seconds(self._loaded.record_each("timed"))

    def _seconds(self, recorded: Sequence[CommandBuffer]) -> list[float]:
        """Return the time of each of some command buffers that run after another."""
        rows = [self._row(recorded) for _ in range(_WARM_UP + _TIMES)]
        return [float(seconds) for seconds in np.quantile(rows[_WARM_UP:], _TYPICAL, axis=0)]

    def _row(self, recorded: Sequence[CommandBuffer]) -> list[float]:
        """Return one run of each; before that its inputs come from another core's caches."""
        for array in self._inputs:
            array[...] = array.copy()
        made = []
        for commands in recorded:
            made.append(self._device.compute.submit(commands, self._table[: len(commands.slots)]))
            made[-1].wait()
        return [1e-9 * (submission.end_ns - submission.begin_ns) for submission in made]


__all__ = [
    "Expected",
    "ImageTimes",
    "around",
    "expected_of",
    "image_times",
    "rates_of",
    "touched_bytes",
    "whole_seconds",
]
