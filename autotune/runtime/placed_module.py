"""A compiled model on several devices that runs: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.runtime.arguments import Signature, signature_text
from autotune.runtime.compiled import Compiled
from autotune.runtime.compiled_model import CompiledModel, Inputs, times_of
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.driver import open_device
from autotune.runtime.image import TensorSpec
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.programs.in_flight import Answer, InFlight
from autotune.runtime.programs.program_request import LoadedProgram, Submitted
from autotune.runtime.programs.recorded_runs import recorded_runs
from autotune.runtime.programs.verify_program import verify_program
from autotune.runtime.recording import Recording
from autotune.runtime.requests.queue import apart
from autotune.runtime.requests.request import Request


@dataclass(frozen=True)
class StepEvent:
    """When a step of a program ran on its device; times in ns of ``time.monotonic_ns``."""

    step: int
    device: str
    begin_ns: int
    end_ns: int


class PlacedModule(CompiledModel):
    """A model ready to run on the devices that its program names.

    Each part runs as soon as what it reads is there, devices beside each other. So many requests as ``in_flight`` run
    at once, each with memory of its own; by default one more than there are devices, so that each has its next part
    when it ends one. Further ones wait; ``room`` requests may be on their way. Any thread may call. Raises
    ArtifactError for an inconsistent program, UsageError for a device that is not there, BuildError, and
    DeviceMemoryError.
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
    def program(self) -> DeviceProgram:
        """The compiled model as values."""
        return self._program

    @property
    def compiled(self) -> Compiled:
        """The compiled model as values."""
        return Compiled.of(self._program)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of a call, in order."""
        return self._program.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call, in order."""
        return self._program.outputs

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
        """Return the same with the inputs as a tuple and a list ``out``, which is returned."""
        return self._submit(arrays, out).result()

    def answer(
        self,
        arrays: tuple[Any, ...],
        out: list[NDArray[Any]] | None,
        request: Request[list[NDArray[Any]]],
    ) -> list[NDArray[Any]]:
        """Return the same as :meth:`call` of a request in the background; once begun it runs to its end."""
        request.check()
        return self.call(arrays, out)

    def by_name(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in order; raises InputError for missing or unknown names."""
        return self._signature.by_name(inputs)

    def submit_all(
        self,
        requests: Iterable[Sequence[Any]],
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> list[Request[Answer]]:
        """Return the same for several requests, each with its arrays.

        ``timeout`` is for each wait for room; where one ends without, those handed over are cancelled. So are they
        where the arrays of one are not what the model takes.
        """
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
        self, inputs: Inputs, *, warmup: int = 1, repeat: int = 10, min_ns: int = 0
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run, one after another, as a caller sees them.

        After ``warmup`` runs: at least ``repeat`` runs, and more until they add up to ``min_ns`` (at most a million).
        """
        arrays = tuple(self.in_order(inputs))
        return times_of(lambda: self.call(arrays, None), warmup, repeat, min_ns)

    def timeline(self, inputs: Inputs) -> list[StepEvent]:
        """Return the time of each step of one run on its device."""
        submitted: Submitted = []
        self._submit(self.in_order(inputs), None, submitted=submitted).result()
        steps = self._program.steps
        return [StepEvent(n, steps[n].device, s.begin_ns, s.end_ns) for n, s in submitted]

    def recording(self, inputs: Inputs, runs: int = 1, *, in_flight: int = 1) -> Recording:
        """Return runs with what every worker did, so many ``in_flight`` at a time: what a profile or a
        trace is made of.

        As many before the first are not counted. They have memory of their own: requests beside them go on. Raises
        UsageError for less than one run.
        """
        if runs < 1 or in_flight < 1:
            what, got = ("recorded", runs) if runs < 1 else ("in flight", in_flight)
            raise UsageError(f"at least 1 run is {what}, got {got}")
        if self._requests.closed:
            raise self._requests.too_late()
        arrays = self._signature.inputs(self.in_order(inputs))
        return apart(recorded_runs, self._loaded, arrays[0], self._fresh, runs, in_flight)

    def close(self) -> None:
        """Free the model's memory, after the steps that run; later calls fail. The devices stay open."""
        self._requests.close()

    def __repr__(self) -> str:
        state = ", closed" if self._requests.closed else ""
        signature = signature_text(self.inputs, self.outputs)
        where, parts = ", ".join(self.devices), len(self._program.images)
        return f"<PlacedModule {self._program.name!r} {signature}, {parts} parts on {where}{state}>"

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


__all__ = ["PlacedModule", "StepEvent"]
