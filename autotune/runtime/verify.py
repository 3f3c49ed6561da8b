"""Checks that an image keeps its promises, before memory is bound and machine code is mapped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from autotune.codegen.symbols import object_symbols
from autotune.errors import ArtifactError, BuildError
from autotune.runtime.conflicts import borders, conflicts, done_before
from autotune.runtime.image import (
    DTYPES,
    READ_ONLY,
    SPACES,
    Binding,
    Command,
    Guard,
    IndexCheck,
    ModuleImage,
    RepeatedCommands,
    Space,
    TensorSpec,
)

MAX_BYTES = 1 << 46
MAX_RANK = 32
MAX_TILES = 1 << 40
MAX_SCRATCH_BYTES = 1 << 32
MAX_REPEATS = 1 << 40
MAX_DEPTH = 16
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]{0,511}")


def verify(image: ModuleImage) -> None:
    """Raise ArtifactError with the first broken promise of an image."""
    for problem in _problems(image):
        raise ArtifactError(f"the compiled module {image.name!r} is inconsistent: {problem}")


def _problems(image: ModuleImage) -> Iterator[str]:
    if not 0 <= image.arena_bytes <= MAX_BYTES:
        yield f"arena of {image.arena_bytes} bytes"
    for role, specs in (("input", image.inputs), ("output", image.outputs)):
        yield from _spec_problems(role, specs)
    for index, constant in enumerate(image.constants):
        if constant.dtype.name not in DTYPES or not constant.flags.c_contiguous:
            yield f"constant {index} is {constant.dtype} {constant.shape}, or not dense"
    sizes = {
        "input": [spec.nbytes for spec in image.inputs],
        "output": [spec.nbytes for spec in image.outputs],
        "constant": [constant.nbytes for constant in image.constants],
        "arena": [image.arena_bytes],
    }
    for problem in _repeat_problems(image, sizes):
        yield problem
        return  # of what is in it nothing can be said
    for index, command in enumerate(image.commands):
        for problem in _command_problems(image, index, sizes):
            yield f"command {index} ({command.symbol[:80]!r}): {problem}"
        if problem_of_order := _order_problem(index, command):
            yield f"command {index} ({command.symbol[:80]!r}): {problem_of_order}"
    for index, check in enumerate(image.checks):
        for problem in _check_problems(image, check, sizes):
            yield f"index check {index}: {problem}"
    yield from _in_place_problems(image)
    for number, done in enumerate(done_before(image.commands)):
        if any(done < border <= number for border in borders(image.repeats)):
            yield f"command {number} may run beside others across the border of a repeat"
    for one, other in conflicts(image.commands, image.checks, image.repeats, image.in_place):
        yield f"commands {one} and {other} may run at the same time, and one writes what the other touches"
    yield from _symbol_problems(image)


def _spec_problems(role: str, specs: Sequence[TensorSpec]) -> Iterator[str]:
    names = [spec.name for spec in specs]
    if role == "input" and len(set(names)) != len(names):
        yield f"{role}s with the same name: {', '.join(names)}"
    for spec in specs:
        if spec.dtype not in DTYPES:
            yield f"{role} {spec.name!r} has dtype {spec.dtype!r}; allowed: {', '.join(DTYPES)}"
        elif (
            len(spec.shape) > MAX_RANK or any(extent < 0 for extent in spec.shape) or spec.nbytes > MAX_BYTES
        ):
            yield f"{role} {spec.name!r} has shape {spec.shape}"


def _repeat_problems(image: ModuleImage, sizes: dict[str, list[int]]) -> Iterator[str]:
    around = list[RepeatedCommands]()
    for index, each in enumerate(image.repeats):
        if not (0 <= each.begin < each.end <= len(image.commands) and 1 <= each.count <= MAX_REPEATS):
            yield f"repeat {index}: {each.count} times from {each.begin} to {each.end}"
        while around and around[-1].end <= each.begin:
            around.pop()
        if around and not around[-1].begin <= each.begin < each.end <= around[-1].end:
            yield f"repeat {index}: from {each.begin} to {each.end}, and another from {around[-1].begin}"
        around.append(each)
        if len(around) > MAX_DEPTH:
            yield f"repeat {index}: inside of {len(around) - 1} others"
        for guard in each.guards:
            if problem := _guard_problem(guard, sizes, [outer.count for outer in around]):
                yield f"repeat {index}: {problem}"


def _guard_problem(guard: Guard, sizes: dict[str, list[int]], counts: Sequence[int]) -> str:
    problem = _binding_problem(guard.binding, sizes, counts)
    if problem or (guard.binding.nbytes == 1 and guard.wanted in (0, 1)):
        return problem
    return f"{guard.binding.nbytes} bytes that are to be {guard.wanted}"


def _command_problems(image: ModuleImage, number: int, sizes: dict[str, list[int]]) -> Iterator[str]:
    command = image.commands[number]
    counts = [each.count for each in image.repeats_around(number)]
    if not 0 <= command.dispatch < len(image.dispatches):
        yield f"dispatch {command.dispatch} of {len(image.dispatches)}"
    if not 0 <= command.object_index < len(image.objects):
        yield f"object {command.object_index} of {len(image.objects)}"
    if not _SYMBOL.fullmatch(command.symbol):
        yield "the symbol is not a plain identifier"
    if not 1 <= command.tiles <= MAX_TILES:
        yield f"{command.tiles} tiles"
    if not 0 <= command.scratch_bytes <= MAX_SCRATCH_BYTES:
        yield f"{command.scratch_bytes} bytes of scratch memory"
    for position, binding in enumerate(command.bindings):
        problem = _binding_problem(binding, sizes, counts)
        if problem:
            yield f"binding {position}: {problem}"
    for position, guard in enumerate(command.guards):
        if problem := _guard_problem(guard, sizes, counts):
            yield f"guard {position}: {problem}"


def _order_problem(number: int, command: Command) -> str:
    """Return the problem of a command's order; empty when there is none."""
    if not 0 <= command.beside <= number:
        return f"it may run beside {command.beside} of the {number} before it"
    if not all(0 <= position < len(command.bindings) for position in command.writes):
        return f"it writes bindings {command.writes} of {len(command.bindings)}"
    given = [position for position in command.writes if command.bindings[position].space in READ_ONLY]
    return (
        f"it writes binding {given[0]}, which is {command.bindings[given[0]].space} memory" if given else ""
    )


def _check_problems(image: ModuleImage, check: IndexCheck, sizes: dict[str, list[int]]) -> Iterator[str]:
    if not (0 <= check.command < len(image.commands) and 0 <= check.dispatch < len(image.dispatches)):
        yield f"command {check.command}, dispatch {check.dispatch}"
    elif not 0 <= check.guards <= len(image.commands[check.command].guards):
        yield f"{check.guards} guards of the {len(image.commands[check.command].guards)} of its command"
    if check.refusal:
        if (check.width, check.runs, check.count, check.extent) != (1, 1, 1, 1):
            yield f"{check.runs} runs of {check.count} booleans of {check.width} bytes"
    elif check.width not in (4, 8) or min(check.runs, check.count, check.extent) < 1 or check.stride < 0:
        yield f"{check.runs} runs of {check.count} indices of {check.width} bytes, extent {check.extent}"
    if (check.runs - 1) * check.stride + check.count * check.width > check.binding.nbytes:
        yield f"its indices take more than {check.binding.nbytes} bytes"
    counts = [each.count for each in image.repeats_around(check.command)]
    problem = _binding_problem(check.binding, sizes, counts)
    if problem:
        yield problem


def _binding_problem(binding: Binding, sizes: dict[str, list[int]], counts: Sequence[int]) -> str:
    """Return the problem of a range of memory in repeats of so many times; empty when there is none."""
    if len(binding.advances) > len(counts):
        return f"it moves with {len(binding.advances)} repeats, and is in {len(counts)}"
    if binding.nbytes < 0:
        return f"{binding.nbytes} bytes"
    if binding.space not in SPACES:
        return f"unknown space {binding.space!r}"
    available = sizes[binding.space]
    if not 0 <= binding.index < len(available):
        return f"{binding.space} {binding.index} of {len(available)}"
    if not 0 <= binding.run <= binding.period <= MAX_BYTES:
        return f"{binding.run} bytes of each {binding.period}"
    swept = binding.swept(counts)
    end = swept.offset + swept.nbytes
    if swept.offset < 0 or end > available[binding.index]:
        return (
            f"bytes {swept.offset} to {end} of {binding.space} {binding.index}, "
            f"which has {available[binding.index]}"
        )
    return ""


def _in_place_problems(image: ModuleImage) -> Iterator[str]:
    """Yield pairs of an output and an input that must not be the same memory."""
    pairs = image.in_place
    for place, count in (("output", len(image.outputs)), ("input", len(image.inputs))):
        numbers = [getattr(pair, place) for pair in pairs]
        if len(set(numbers)) != len(numbers) or not all(0 <= number < count for number in numbers):
            yield f"{place}s {numbers} of {count} in the place of others"
            return
    for pair in pairs:
        if image.inputs[pair.input].nbytes != image.outputs[pair.output].nbytes:
            yield f"output {pair.output} in the place of input {pair.input}, which has another size"
        if any(
            _writes(command, pair.output)
            for each in image.repeats
            for command in image.commands[each.begin : each.end]
        ):
            yield f"output {pair.output}, which may be in the place of input {pair.input}, is written in a repeat"
        writers = _dispatches(image, "output", pair.output, written=True)
        readers = _dispatches(image, "input", pair.input)
        if len(set(writers)) > 1 or (writers and any(reader > writers[0] for reader in readers)):
            yield f"input {pair.input} is read where output {pair.output} may have overwritten it"
        if any(
            check.binding.space == "input" and check.binding.index == pair.input for check in image.checks
        ):
            yield f"input {pair.input}, in whose place output {pair.output} may be, has indices"


def _writes(command: Command, output: int) -> bool:
    return any((each.space, each.index) == ("output", output) for each in command.written)


def _dispatches(image: ModuleImage, space: Space, index: int, *, written: bool = False) -> list[int]:
    """Return the dispatches that read an input, or write an output, by its number."""
    return [
        command.dispatch
        for command in image.commands
        for each in (command.written if written else command.bindings)
        if (each.space, each.index) == (space, index)
    ]


def _symbol_problems(image: ModuleImage) -> Iterator[str]:
    """Yield commands whose symbol their object does not define; damaged objects."""
    defined = []
    for index, data in enumerate(image.objects):
        try:
            symbols = object_symbols(data)
        except BuildError as error:
            yield f"object {index}: {error}"
            return
        if symbols.arch != image.target.arch:
            yield f"object {index} is for {symbols.arch}, the target is {image.target.arch}"
        defined.append(symbols.defined)
    for command in image.commands:
        if command.symbol not in defined[command.object_index]:
            yield f"object {command.object_index} does not define {command.symbol!r}"


__all__ = ["verify"]
