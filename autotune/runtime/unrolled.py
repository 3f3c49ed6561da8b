"""Images whose repeated commands are there for each time, for devices that run recorded commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotune.errors import UsageError
from autotune.runtime.image import Command, Guard, IndexCheck, ModuleImage

MOST_COMMANDS = 1 << 16


def unrolled(image: ModuleImage) -> ModuleImage:
    """Return an image that repeats nothing: the same commands, as often as they run at most. Those that run on after
    a loop is over change nothing.

    Raises UsageError for more than :data:`MOST_COMMANDS`.
    """
    if not image.repeats:
        return image
    checks = dict[int, list[IndexCheck]]()
    for check in image.checks:
        checks.setdefault(check.command, []).append(check)
    commands, moved = list[Command](), list[IndexCheck]()
    for number, times in _order(image, 0, len(image.commands), 0):
        if len(commands) == MOST_COMMANDS:
            raise UsageError(
                f"{image.name!r} runs more than {MOST_COMMANDS} commands in all steps of its loops\n"
                "  so many are not recorded for a device: run it on this process's cores"
            )
        for check in checks.get(number, ()):
            moved.append(replace(check, command=len(commands), binding=check.binding.at(times)))
        commands.append(_at(image.commands[number], times))
    return replace(image, commands=tuple(commands), checks=tuple(moved), repeats=())


def _order(image: ModuleImage, begin: int, end: int, first: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield commands as they run, with how often the repeats around them have gone on; ``first`` is the repeat to begin
    with."""
    at, number = begin, first
    while number < len(image.repeats) and image.repeats[number].begin < end:
        repeat = image.repeats[number]
        yield from ((command, ()) for command in range(at, repeat.begin))
        for time in range(repeat.count):
            for command, times in _order(image, repeat.begin, repeat.end, number + 1):
                yield command, (time, *times)
        at = repeat.end
        while number < len(image.repeats) and image.repeats[number].begin < at:
            number += 1
    yield from ((command, ()) for command in range(at, end))


def _at(command: Command, times: tuple[int, ...]) -> Command:
    return replace(
        command,
        bindings=tuple(binding.at(times) for binding in command.bindings),
        guards=tuple(Guard(guard.binding.at(times), guard.wanted) for guard in command.guards),
    )


__all__ = ["MOST_COMMANDS", "unrolled"]
