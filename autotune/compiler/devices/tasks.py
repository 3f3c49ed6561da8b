"""Programs of several devices as tasks: what a request submits, in its order, and what that takes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autotune.compiler.devices.makespan import LaneTask
from autotune.passes.segments import GraphDivision, GraphSegment
from autotune.runtime.hal.buffer import HOST_SPACE
from autotune.runtime.hal.rates import DeviceRates
from autotune.runtime.programs.device_program import DeviceProgram

Value: TypeAlias = Hashable


@dataclass(frozen=True)
class FlowStep:
    """Work on a device, or the copy of a value to it."""

    copies: bool
    device: str
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]


@dataclass(frozen=True)
class TaskFlow:
    """Steps of a program, with devices and bytes of the values between them, compiled or not."""

    steps: tuple[FlowStep, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    devices: Mapping[Value, str]
    nbytes: Mapping[Value, int]

    @staticmethod
    def of_program(program: DeviceProgram) -> TaskFlow:
        """Return the tasks of a compiled program, whose values are numbers."""
        return TaskFlow(
            tuple(FlowStep(s.kind == "transfer", s.device, s.reads, s.writes) for s in program.steps),
            tuple(argument.value for argument in program.arguments),
            program.results,
            {number: value.device for number, value in enumerate(program.values)},
            {number: value.spec.nbytes for number, value in enumerate(program.values)},
        )

    @staticmethod
    def of_division(division: GraphDivision) -> TaskFlow:
        """Return the tasks of a graph that was only cut, whose values are names; a copy of an input comes
        from the caller."""
        graph = division.graph
        steps = tuple(
            FlowStep(False, step.device, step.graph.inputs, step.graph.outputs)
            if isinstance(step, GraphSegment)
            else FlowStep(True, step.device, (step.value,), (step.result,))
            for step in division.steps
            if isinstance(step, GraphSegment) or step.value not in graph.inputs
        )
        read = {value for step in steps for value in step.reads}
        brought = [
            step.result
            for step in division.steps
            if not isinstance(step, GraphSegment) and step.value in graph.inputs
        ]
        inputs = (*(value for value in graph.inputs if value in read), *brought)
        between = {*read, *(value for step in steps for value in step.writes), *inputs, *graph.outputs}
        return TaskFlow(
            steps,
            inputs,
            graph.outputs,
            {value: division.devices[str(value)] for value in between},
            {value: graph.type_of(str(value)).nbytes for value in between},
        )


def tasks_of(
    flow: TaskFlow,
    seconds: Sequence[float],
    rates: Mapping[str, DeviceRates],
    spaces: Mapping[str, str],
    cores: Mapping[str, Collection[int]],
) -> list[LaneTask]:
    """Return the tasks of one request; ``seconds`` has the duration of each step, of which those of
    copies are not read.

    ``spaces`` are the memory spaces of the devices: a copy within one is nothing at all, inputs and outputs are
    copied where a device is not in this process's memory. ``cores`` are those of the devices: some may share them.
    """
    return _Tasks(flow, rates, spaces, cores).made(seconds)


class _Tasks:
    def __init__(
        self,
        flow: TaskFlow,
        rates: Mapping[str, DeviceRates],
        spaces: Mapping[str, str],
        cores: Mapping[str, Collection[int]],
    ) -> None:
        self.cores = cores
        self.flow = flow
        self.rates = rates
        self.spaces = spaces
        self.tasks: list[LaneTask] = []
        self.maker: dict[Value, int] = {}

    def made(self, seconds: Sequence[float]) -> list[LaneTask]:
        for value in self.flow.inputs:
            if self._space(value) != HOST_SPACE:
                self._copy(self.flow.devices[value], value, (), (value,))
        for step, duration in zip(self.flow.steps, seconds, strict=True):
            if not step.copies:
                self._add(step.device, step.device, duration, step.reads, step.writes)
                continue
            source, result = self.flow.devices[step.reads[0]], step.writes[0]
            if self.spaces[source] == self.spaces[step.device]:
                self.maker[result] = len(self.tasks)
                self.tasks.append(LaneTask("", waits=self._waits(step.reads)))
            else:
                mover = source if self._space(result) == HOST_SPACE else step.device
                self._copy(mover, result, step.reads, step.writes)
        for value in self.flow.outputs:
            if self._space(value) != HOST_SPACE:
                self._copy(self.flow.devices[value], value, (value,), ())
        return self.tasks

    def _space(self, value: Value) -> str:
        return self.spaces[self.flow.devices[value]]

    def _waits(self, reads: Sequence[Value]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.maker[value] for value in reads if value in self.maker))

    def _copy(self, device: str, value: Value, reads: tuple[Value, ...], writes: tuple[Value, ...]) -> None:
        duration = self.flow.nbytes[value] * self.rates[device].copy_seconds_per_byte
        self._add(f"{device} transfers", device, duration, reads, writes)

    def _add(
        self, lane: str, device: str, duration: float, reads: tuple[Value, ...], writes: tuple[Value, ...]
    ) -> None:
        rates, number = self.rates[device], len(self.tasks)
        waits = self._waits(reads)
        cores = frozenset(self.cores[device]) if lane == device else frozenset()
        self.tasks.append(
            LaneTask(lane, duration, waits, rates.submission_seconds, rates.handover_seconds, cores)
        )
        self.maker.update(dict.fromkeys(writes, number))


__all__ = ["FlowStep", "TaskFlow", "tasks_of"]
