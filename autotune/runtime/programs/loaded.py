"""A program of segments on the devices that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import DeviceTimeoutError
from autotune.runtime.arguments import Signature
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.driver import open_device
from autotune.runtime.image import TensorSpec
from autotune.runtime.loaded import Results, times_of
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.programs.in_flight import Answer, InFlight
from autotune.runtime.programs.program_request import LoadedProgram, Submitted
from autotune.runtime.programs.recorded_runs import recorded_runs
from autotune.runtime.programs.verify_program import verify_program
from autotune.runtime.recording import Recording
from autotune.runtime.requests.queue import apart
from autotune.runtime.requests.request import Request
from autotune.suggest import counted


@dataclass(frozen=True)
class StepEvent:
    """When a step of a program ran on its device; times in ns of ``time.monotonic_ns``."""

    step: int
    device: str
    begin_ns: int
    end_ns: int


class LoadedOnDevices:
    """A program on the devices that it names: see :class:`autotune.runtime.module.Module`.

    Each part runs as soon as what it reads is there, devices beside each other. So many requests as ``in_flight`` run
    at once, each with memory of its own; by default one more than there are devices, so that each has its next part
    when it ends one.
    """

    def __init__(
        self,
        program: DeviceProgram,
        *,
        in_flight: int | None = None,
        room: int = 1024,
        devices: Mapping[str, Device] | None = None,
    ) -> None:
        verify_program(program)
        self._program = program
        self._signature = Signature(program.name, program.inputs, program.outputs)
        self._loaded, opened = apart(_loaded, program, devices)
        self._threads = sum(opened[name].info.cores for name in program.devices)
        self._in_flight = len(program.devices) + 1 if in_flight is None else in_flight
        self._requests = InFlight(self._loaded, self._in_flight, room)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of a call, in order."""
        return self._program.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call, in order."""
        return self._program.outputs

    @property
    def in_place(self) -> Mapping[int, int]:
        """Outputs have memory of their own: parts of a program on other devices have no address here."""
        return {}

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it runs on."""
        return self._program.devices

    @property
    def in_flight(self) -> int:
        """Return the limit of requests that run at once."""
        return self._in_flight

    @property
    def threads(self) -> int:
        """Workers of all its devices."""
        return self._threads

    def call(self, arrays: tuple[Any, ...], out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Return the outputs, in ``out`` if that is given."""
        return self._submit(arrays, out).result()

    def answer(self, arrays: tuple[Any, ...], out: Results | None, request: Request[Results]) -> Results:
        """Return the same as :meth:`call` of a request in the background, and end when that does."""
        request.check()
        left = 1e-9 * max(1, request.deadline_ns - monotonic_ns()) if request.deadline_ns else None
        own = self._submit(arrays, out, deadline=left)
        request.when_cancelled(own.cancel)
        try:
            return own.result()
        except DeviceTimeoutError:
            request.check()
            raise

    def submit_all(
        self, requests: Iterable[Sequence[Any]], timeout: float | None, deadline: float | None
    ) -> list[Request[Answer]]:
        """Run several requests in the background; where the arrays of one are not what the program takes, those handed
        over are cancelled."""
        made: list[Request[Answer]] = []
        try:
            for arrays in requests:
                made.append(self._submit(arrays, None, timeout, deadline=deadline))
        except BaseException:
            for request in made:
                request.cancel()
            raise
        return made

    def time(
        self, arrays: Sequence[Any], out: Results | None, warmup: int, repeat: int, min_ns: int
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run, one after another, as a caller sees them."""
        return times_of(lambda: self._submit(arrays, out).result(), warmup, repeat, min_ns)

    def timeline(self, arrays: Sequence[Any]) -> list[StepEvent]:
        """Return the time of each step of one run on its device."""
        submitted: Submitted = []
        self._submit(arrays, None, submitted=submitted).result()
        steps = self._program.steps
        return [StepEvent(n, steps[n].device, s.begin_ns, s.end_ns) for n, s in submitted]

    def recording(self, arrays: Sequence[Any], runs: int, in_flight: int) -> Recording:
        """Return runs with what every worker did, so many ``in_flight`` at a time.

        As many before the first are not counted. They have memory of their own: requests beside them go on.
        """
        if self._requests.closed:
            raise self._requests.too_late()
        inputs = self._signature.inputs(arrays)
        return apart(recorded_runs, self._loaded, inputs[0], self._fresh, runs, in_flight)

    def close(self) -> None:
        """Free the model's memory, after the steps that run; later calls fail. The devices stay open."""
        self._requests.close()

    def describe(self) -> str:
        """Return the number of its parts and the devices."""
        state = ", closed" if self._requests.closed else ""
        return f"{counted(len(self._program.images), 'part')} on {', '.join(self.devices)}{state}"

    def _submit(
        self,
        arrays: Sequence[Any],
        out: list[NDArray[Any]] | None,
        timeout: float | None = None,
        submitted: Submitted | None = None,
        deadline: float | None = None,
    ) -> Request[Answer]:
        inputs, outputs = self._signature.inputs(arrays), self._fresh
        if out is not None:
            given, _ = self._signature.given_outputs(out, inputs)

            def outputs() -> Answer:
                return given

        return self._requests.submit(inputs[0], outputs, timeout, submitted, deadline)

    def _fresh(self) -> Answer:
        return self._signature.fresh_outputs()[0]


def _loaded(
    program: DeviceProgram, devices: Mapping[str, Device] | None
) -> tuple[LoadedProgram, Mapping[str, Device]]:
    opened = devices or {name: open_device(name) for name in program.devices}
    return LoadedProgram.of(program, opened), opened


__all__ = ["LoadedOnDevices", "StepEvent"]
