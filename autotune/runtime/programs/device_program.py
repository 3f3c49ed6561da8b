"""A model compiled for several devices, as plain values: module images, and the steps that run them and move values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autotune.runtime.image import ModuleImage, TensorSpec
from autotune.suggest import counted

StepKind = Literal["run", "transfer"]
HERE = ""
"""The device of a program that names none: the cores of this process, or the first device that its code is for."""


@dataclass(frozen=True)
class DeviceValue:
    """A value between steps: dense, in memory of its device."""

    spec: TensorSpec
    device: str


@dataclass(frozen=True)
class ProgramStep:
    """Work of one device.

    "run": image ``image`` takes the values ``reads`` and makes ``writes``, in the order of its inputs and outputs.
    "transfer": the value read is copied into the value written, on ``device``; ``image`` is 0. ``waits`` are the steps,
    by number and all of them earlier, that make what it reads: nothing else has to be over when it begins.
    """

    kind: StepKind
    device: str
    image: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    waits: tuple[int, ...]


@dataclass(frozen=True)
class ProgramInput:
    """An input of the model that is brought to a device, as value ``value``; one that several read has several."""

    input: int
    value: int


@dataclass(frozen=True, eq=False)
class ProgramSteps:
    """Everything of a program but the images that it runs.

    ``results`` are the values that are the outputs, in order; they stay on the device that made them. Every value is
    written once, by an argument or a step.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    values: tuple[DeviceValue, ...]
    arguments: tuple[ProgramInput, ...]
    results: tuple[int, ...]
    steps: tuple[ProgramStep, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it needs, each once, in the order of their first use."""
        return tuple(dict.fromkeys([*(s.device for s in self.steps), *(v.device for v in self.values)]))


@dataclass(frozen=True, eq=False)
class DeviceProgram(ProgramSteps):
    """Everything that is needed to run a model, here or on several devices."""

    images: tuple[ModuleImage, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def image(self) -> ModuleImage | None:
        """Return the only segment, of a program that names no device; None where devices are named."""
        return self.images[0] if self.devices == (HERE,) and len(self.steps) == 1 else None

    @property
    def transferred_bytes(self) -> int:
        """Return the bytes that one run moves between devices, inputs and outputs not counted."""
        return sum(
            self.values[value].spec.nbytes
            for step in self.steps
            if step.kind == "transfer"
            for value in step.writes
        )

    def __str__(self) -> str:
        lines = [f"program {self.name} on {', '.join(self.devices)} {{"]
        for argument in self.arguments:
            given = self.values[argument.value]
            lines.append(f"  {self.inputs[argument.input].name} -> {given.spec.name} on {given.device}")
        lines += [f"  {number:03d} {self._step_text(step)}" for number, step in enumerate(self.steps)]
        for value, spec in zip(self.results, self.outputs, strict=True):
            lines.append(f"  output {spec.name} on {self.values[value].device}")
        return "\n".join([*lines, "}"])

    def _step_text(self, step: ProgramStep) -> str:
        after = f" after {', '.join(f'{w:03d}' for w in step.waits)}" if step.waits else ""
        reads, writes = (
            ", ".join(self.values[value].spec.name for value in values)
            for values in (step.reads, step.writes)
        )
        if step.kind == "transfer":
            value = self.values[step.writes[0]]
            source = self.values[step.reads[0]].device
            return f"transfer {value.spec.nbytes} bytes {source} -> {step.device}: {reads} -> {writes}{after}"
        image = self.images[step.image]
        return f"{step.device}: {counted(len(image.dispatches), 'dispatch')} ({reads}) -> {writes}{after}"


def of_image(image: ModuleImage, device: str = HERE) -> DeviceProgram:
    """Return the program that runs an image on one device."""
    count = len(image.inputs)
    inputs, outputs = tuple(range(count)), tuple(range(count, count + len(image.outputs)))
    return DeviceProgram(
        image.name,
        image.inputs,
        image.outputs,
        tuple(DeviceValue(spec, device) for spec in (*image.inputs, *image.outputs)),
        tuple(ProgramInput(number, number) for number in inputs),
        outputs,
        (ProgramStep("run", device, 0, inputs, outputs, ()),),
        (image,),
        image.metadata if device else {},
    )


__all__ = [
    "HERE",
    "DeviceProgram",
    "DeviceValue",
    "ProgramInput",
    "ProgramStep",
    "ProgramSteps",
    "StepKind",
    "of_image",
]
