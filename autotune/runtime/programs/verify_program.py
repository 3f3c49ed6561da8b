"""Checks that a program of several devices keeps its promises, before any of it runs."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.errors import ArtifactError
from autotune.runtime.programs.device_program import DeviceProgram, ProgramStep
from autotune.runtime.verify import verify


def verify_program(program: DeviceProgram) -> None:
    """Raise ArtifactError with the first broken promise of a program, or of one of its images."""
    verify_steps(program)
    for image in program.images:
        verify(image)


def verify_steps(program: DeviceProgram) -> None:
    """Raise ArtifactError with the first broken promise of a program; its images are not looked into."""
    for problem in _problems(program):
        raise ArtifactError(f"the compiled program {program.name!r} is inconsistent: {problem}")


def _problems(program: DeviceProgram) -> Iterator[str]:
    made: dict[int, int] = {}  # value -> step; -1 for the caller
    values, images = range(len(program.values)), range(len(program.images))
    for argument in program.arguments:
        if argument.input not in range(len(program.inputs)) or argument.value not in values:
            yield f"argument {argument.input} is value {argument.value}"
            return
        if argument.value in made:
            yield f"value {argument.value} is written twice"
        given, own = program.inputs[argument.input], program.values[argument.value].spec
        if (given.shape, given.dtype) != (own.shape, own.dtype):
            yield f"input {given} is value {own}"
        made[argument.value] = -1
    for number, step in enumerate(program.steps):
        if not all(v in values for v in (*step.reads, *step.writes)):
            yield f"step {number} reads {step.reads} and writes {step.writes}, of {len(program.values)} values"
            return
        if step.kind == "run" and step.image not in images:
            yield f"step {number} runs image {step.image} of {len(program.images)}"
            return
        yield from (f"step {number} {problem}" for problem in _step_problems(program, step, made))
        made |= dict.fromkeys(step.writes, number)
    if len(program.results) != len(program.outputs):
        yield f"{len(program.results)} results for {len(program.outputs)} outputs"
    for value, spec in zip(program.results, program.outputs, strict=False):
        if value not in made:
            yield f"output {spec.name!r} is value {value}, which nothing writes"
            return
        own = program.values[value].spec
        if (spec.shape, spec.dtype) != (own.shape, own.dtype):
            yield f"output {spec} is value {own}"


def _step_problems(program: DeviceProgram, step: ProgramStep, made: dict[int, int]) -> Iterator[str]:
    for value in step.reads:
        if value not in made:
            yield f"reads value {value} before anything writes it"
            return
    needed = {made[value] for value in step.reads} - {-1}
    if needed != {*step.waits}:
        yield f"waits for steps {step.waits}, what it reads is made by {tuple(sorted(needed))}"
    for value in step.writes:
        if value in made:
            yield f"writes value {value}, which has been written"
        if program.values[value].device != step.device:
            yield f"on {step.device} writes a value of {program.values[value].device}"
    if step.kind == "transfer":
        yield from _transfer_problems(program, step)
        return
    elsewhere = [v for v in step.reads if program.values[v].device != step.device]
    if elsewhere:
        yield f"on {step.device} reads value {elsewhere[0]} of {program.values[elsewhere[0]].device}"
    image = program.images[step.image]
    for role, specs, values in (("input", image.inputs, step.reads), ("output", image.outputs, step.writes)):
        own = [(program.values[v].spec.shape, program.values[v].spec.dtype) for v in values]
        if own != [(spec.shape, spec.dtype) for spec in specs]:
            yield f"does not fit the {role}s of its image"


def _transfer_problems(program: DeviceProgram, step: ProgramStep) -> Iterator[str]:
    if len(step.reads) != 1 or len(step.writes) != 1:
        yield f"transfers {len(step.reads)} values into {len(step.writes)}"
        return
    source, result = program.values[step.reads[0]], program.values[step.writes[0]]
    if source.device == result.device:
        yield f"transfers a value to {result.device}, where it is"
    if (source.spec.shape, source.spec.dtype) != (result.spec.shape, result.spec.dtype):
        yield f"transfers {source.spec} into {result.spec}"


__all__ = ["verify_program", "verify_steps"]
