"""Commands of an image that may run at the same time: none of them writes what the other touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from autotune.runtime.image import Binding, Command, IndexCheck


@dataclass(frozen=True)
class _Touched:
    """The memory of a command, and what of it it may write to."""

    all: tuple[Binding, ...]
    writes: tuple[Binding, ...]


def done_before(commands: Sequence[Command]) -> list[int]:
    """Return for each command how many at the front are done when it starts: all workers take them in order, and so
    it waits for what those before it have waited for."""
    return list(accumulate((number - each.beside for number, each in enumerate(commands)), max))


def overlapping(commands: Sequence[Command], checks: Sequence[IndexCheck]) -> tuple[Command, ...]:
    """Return the commands, each beside as many of those before it as it can be: up to the last that it
    conflicts with."""
    touched, done = _touched(commands, checks), 0
    found = list[Command]()
    for number, command in enumerate(commands):
        done = next(
            (n + 1 for n in range(number - 1, done - 1, -1) if _conflict(touched[n], touched[number])), done
        )
        found.append(replace(command, beside=number - done))
    return tuple(found)


def conflicts(commands: Sequence[Command], checks: Sequence[IndexCheck]) -> Iterator[tuple[int, int]]:
    """Yield commands that may run at the same time though one writes what the other touches."""
    touched = _touched(commands, checks)
    for number, done in enumerate(done_before(commands)):
        for other in range(done, number):
            if _conflict(touched[other], touched[number]):
                yield other, number


def _touched(commands: Sequence[Command], checks: Sequence[IndexCheck]) -> list[_Touched]:
    """Return the memory that each command reads and writes; a check of indices is a part of the command
    that it is for."""
    checked: Mapping[int, list[Binding]] = {check.command: [] for check in checks}
    for check in checks:
        checked[check.command].append(check.binding)
    return [
        _Touched(
            (*command.bindings, *(guard.binding for guard in command.guards), *checked.get(number, ())),
            command.written,
        )
        for number, command in enumerate(commands)
    ]


def _conflict(one: _Touched, other: _Touched) -> bool:
    return _writes_into(one, other) or _writes_into(other, one)


def _writes_into(one: _Touched, other: _Touched) -> bool:
    return any(written.meets(touched) for written in one.writes for touched in other.all)


__all__ = ["conflicts", "done_before", "overlapping"]
