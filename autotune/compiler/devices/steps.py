"""From a divided graph and the image of each segment to a program of several devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.graph.ir import Graph
from autotune.passes.segments import DivisionStep, GraphDivision, GraphSegment
from autotune.runtime.image import ModuleImage, TensorSpec
from autotune.runtime.programs.device_program import DeviceProgram, DeviceValue, ProgramInput, ProgramStep


def program_of(
    model: Graph, division: GraphDivision, images: Sequence[ModuleImage], metadata: Mapping[str, str]
) -> DeviceProgram:
    """Return the program that runs ``images``, one a segment in order.

    Inputs and outputs have the names that they have in the ``model``.
    """
    return _ProgramSteps(model, division).run(images, metadata)


class _ProgramSteps:
    def __init__(self, model: Graph, division: GraphDivision) -> None:
        self.model = model
        self.division = division
        self.graph = division.graph
        self.values: list[DeviceValue] = []
        self.numbers: dict[str, int] = {}
        self.makers: dict[int, int] = {}
        """The step that makes each value that no argument is."""
        self.arguments: list[ProgramInput] = []
        self.steps: list[ProgramStep] = []

    def run(self, images: Sequence[ModuleImage], metadata: Mapping[str, str]) -> DeviceProgram:
        read = self._read()
        for index, name in enumerate(self.graph.inputs):
            # On its own device if anything reads it there; transfers of inputs come from the caller, too.
            if name in read or not any(self._brings(step, name) for step in self.division.steps):
                self._argument(index, name, self.division.devices[name])
        for step in self.division.steps:
            self._step(step, sum(s.kind == "run" for s in self.steps))
        results = tuple(self.numbers[name] for name in self.graph.outputs)
        return DeviceProgram(
            name=self.model.name,
            inputs=tuple(self._spec(name) for name in self.graph.inputs),
            outputs=tuple(
                TensorSpec(name, *self._type(value))
                for name, value in zip(self.model.outputs, self.graph.outputs, strict=True)
            ),
            values=tuple(self.values),
            arguments=tuple(self.arguments),
            results=results,
            steps=tuple(self.steps),
            images=tuple(images),
            metadata=metadata,
        )

    def _read(self) -> set[str]:
        """Return inputs that segments read, or that are outputs as they are."""
        read = {v for segment in self.division.segments for v in segment.graph.inputs}
        return read | set(self.graph.outputs)

    def _brings(self, step: DivisionStep, name: str) -> bool:
        return not isinstance(step, GraphSegment) and step.value == name

    def _step(self, step: DivisionStep, runs: int) -> None:
        if isinstance(step, GraphSegment):
            reads = tuple(self.numbers[v] for v in step.graph.inputs)
            writes = tuple(self._value(v, step.device) for v in step.graph.outputs)
            self._add(ProgramStep("run", step.device, runs, reads, writes, self._waits(reads)))
        elif step.value in self.graph.inputs:
            self._argument(self.graph.inputs.index(step.value), step.result, step.device)
        else:
            reads = (self.numbers[step.value],)
            writes = (self._value(step.result, step.device),)
            self._add(ProgramStep("transfer", step.device, 0, reads, writes, self._waits(reads)))

    def _add(self, step: ProgramStep) -> None:
        self.makers.update(dict.fromkeys(step.writes, len(self.steps)))
        self.steps.append(step)

    def _waits(self, reads: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({self.makers[value] for value in reads if value in self.makers}))

    def _argument(self, index: int, name: str, device: str) -> None:
        self.arguments.append(ProgramInput(index, self._value(name, device)))

    def _value(self, name: str, device: str) -> int:
        self.numbers[name] = len(self.values)
        self.values.append(DeviceValue(self._spec(name), device))
        return self.numbers[name]

    def _spec(self, name: str) -> TensorSpec:
        return TensorSpec(name, *self._type(name))

    def _type(self, name: str) -> tuple[tuple[int, ...], str]:
        found = self.graph.type_of(name)
        return found.shape, str(np.dtype(found.dtype))


__all__ = ["program_of"]
