"""Commands of an image that may run at the same time: none of them writes what the other touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from autotune.runtime.image import Binding, BoundInPlace, Command, IndexCheck, RepeatedCommands


@dataclass(frozen=True)
class _MovingMemory:
    """Memory in its first place, and all of its places. What moves alike meets always or never."""

    first: Binding
    swept: Binding

    def meets(self, other: _MovingMemory) -> bool:
        """Return whether both may touch the same byte at the same time, in the same repeats."""
        if self.first.advances == other.first.advances:
            return self.first.meets(other.first)
        return self.swept.meets(other.swept)


@dataclass(frozen=True)
class _Touched:
    """The memory of a command, and what of it it may write to."""

    all: tuple[_MovingMemory, ...]
    writes: tuple[_MovingMemory, ...]


def done_before(commands: Sequence[Command]) -> list[int]:
    """Return for each command how many at the front are done when it starts: all workers take them in order, and so
    it waits for what those before it have waited for."""
    return list(accumulate((number - each.beside for number, each in enumerate(commands)), max))


def overlapping(
    commands: Sequence[Command],
    checks: Sequence[IndexCheck],
    repeats: Sequence[RepeatedCommands] = (),
    in_place: Sequence[BoundInPlace] = (),
) -> tuple[Command, ...]:
    """Return the commands, each beside as many of those before it as it can be: up to the last that it
    conflicts with, or where a repeat begins or ends."""
    touched, done, border = _touched(commands, checks, repeats, in_place), 0, borders(repeats)
    found = list[Command]()
    for number, command in enumerate(commands):
        done = number if number in border else done
        done = next(
            (n + 1 for n in range(number - 1, done - 1, -1) if _conflict(touched[n], touched[number])), done
        )
        found.append(replace(command, beside=number - done))
    return tuple(found)


def borders(repeats: Iterable[RepeatedCommands]) -> set[int]:
    """Return the commands that begin when all before them are done, as a repeat begins or ends there."""
    return {border for each in repeats for border in (each.begin, each.end)}


def conflicts(
    commands: Sequence[Command],
    checks: Sequence[IndexCheck],
    repeats: Sequence[RepeatedCommands] = (),
    in_place: Sequence[BoundInPlace] = (),
) -> Iterator[tuple[int, int]]:
    """Yield commands that may run at the same time though one writes what the other touches."""
    touched = _touched(commands, checks, repeats, in_place)
    for number, done in enumerate(done_before(commands)):
        for other in range(done, number):
            if _conflict(touched[other], touched[number]):
                yield other, number


def _touched(
    commands: Sequence[Command],
    checks: Sequence[IndexCheck],
    repeats: Sequence[RepeatedCommands],
    in_place: Sequence[BoundInPlace],
) -> list[_Touched]:
    """Return the memory that each command reads and writes; a check of indices is a part of the command
    that it is for. What an input and an output may share has one name."""
    outputs = {each.input: each.output for each in in_place}
    checked: Mapping[int, list[Binding]] = {check.command: [] for check in checks}
    for check in checks:
        checked[check.command].append(check.binding)
    found = list[_Touched]()
    for number, command in enumerate(commands):
        counts = [each.count for each in repeats if each.begin <= number < each.end]
        reads = (*command.bindings, *(guard.binding for guard in command.guards), *checked.get(number, ()))
        reads = tuple(_bound(each, outputs) for each in reads)
        found.append(_Touched(_motions(reads, counts), _motions(command.written, counts)))
    return found


def _bound(binding: Binding, outputs: Mapping[int, int]) -> Binding:
    if binding.space != "input" or binding.index not in outputs:
        return binding
    return replace(binding, space="output", index=outputs[binding.index])


def _motions(bindings: Sequence[Binding], counts: Sequence[int]) -> tuple[_MovingMemory, ...]:
    return tuple(_MovingMemory(each, each.swept(counts) if each.advances else each) for each in bindings)


def _conflict(one: _Touched, other: _Touched) -> bool:
    return _writes_into(one, other) or _writes_into(other, one)


def _writes_into(one: _Touched, other: _Touched) -> bool:
    return any(written.meets(touched) for written in one.writes for touched in other.all)


__all__ = ["borders", "conflicts", "done_before", "overlapping"]
