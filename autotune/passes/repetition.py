"""Dispatches that do not run once each time: under conditions, or again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Final, Protocol

STEPS: Final = 2
"""Steps of a loop in each repetition: what is carried goes to and fro between two places."""
_EXPECTED: Final = 16
"""Repetitions that one is taken to have whose number is known only when it runs."""


@dataclass(frozen=True)
class Condition:
    """A boolean that a dispatch runs under: only if it is ``wanted``; with a ``refusal`` in any case, and this is the
    error if the boolean is not as wanted."""

    value: str
    wanted: bool
    refusal: str = ""

    def __str__(self) -> str:
        return f"{'if' if self.wanted else 'unless'} {self.value}{', else an error' if self.refusal else ''}"


@dataclass(frozen=True)
class Repetition:
    """Dispatches that follow each other and run ``count`` times, with conditions at most: after each time they go on
    only if these hold."""

    name: str
    count: int
    conditions: tuple[Condition, ...] = ()

    @property
    def expected(self) -> int:
        """Return the number of times that costs are counted."""
        return min(self.count, _EXPECTED) if self.conditions else self.count

    def __str__(self) -> str:
        conditions = "".join(f", while {condition}" for condition in self.conditions)
        return f"repeat {self.name} {self.count} times{conditions}"


@dataclass(frozen=True)
class Moving:
    """The motion of a value: by ``elements`` each time that a repeat of ``count`` times goes on."""

    elements: int
    count: int

    @property
    def last(self) -> int:
        """Return how far it is away from its first place at last."""
        return self.elements * (self.count - 1)


@dataclass(frozen=True)
class LoopVersion:
    """A value in memory that steps of loops write again and again: its loops and their steps, the outermost first.

    ``moving`` are the positions of those whose steps go on with the repeats around, the outermost first.
    """

    path: tuple[tuple[str, int], ...]
    moving: tuple[int, ...] = ()

    def within(self, name: str, step: int = 0, *, repeated: bool = False) -> LoopVersion:
        """Return it as a part of a step of another loop, or of a branch, with this name."""
        outer = (0,) if repeated else ()
        return LoopVersion(((name, step), *self.path), (*outer, *(position + 1 for position in self.moving)))

    def at(self, times: Sequence[int]) -> tuple[tuple[str, int], ...]:
        """Return its loops and steps when the repeats around have gone on so many times."""
        ahead = {position: STEPS * count for position, count in zip(self.moving, times, strict=False)}
        return tuple((name, step + ahead.get(i, 0)) for i, (name, step) in enumerate(self.path))


class RepeatedPart(Protocol):
    """A part of a program that repeats may be around: a dispatch."""

    @property
    def repeats(self) -> Sequence[Repetition]:
        """The repeats around it, the outermost first."""


def runs_of(repeats: Sequence[Repetition]) -> int:
    """Return how many times what is in these repeats is expected to run."""
    return prod(repeat.expected for repeat in repeats)


def repeated_ranges(
    dispatches: Sequence[RepeatedPart], depth: int = 0
) -> list[tuple[Repetition | None, range]]:
    """Return the numbers of dispatches by the repeat around them at a depth, None for those in none."""
    found, begin = list[tuple[Repetition | None, range]](), 0
    for repeat, each in groupby(dispatches, lambda d: d.repeats[depth] if depth < len(d.repeats) else None):
        end = begin + len(list(each))
        found.append((repeat, range(begin, end)))
        begin = end
    return found


def ranges_of_repeats(
    dispatches: Sequence[RepeatedPart], depth: int = 0, begin: int = 0
) -> Iterator[tuple[Repetition, range]]:
    """Yield each repeat with the numbers of the dispatches in it, those inside of others after these."""
    for repeat, numbers in repeated_ranges(dispatches, depth):
        if repeat is not None:
            first = begin + numbers.start
            yield repeat, range(first, begin + numbers.stop)
            yield from ranges_of_repeats(dispatches[numbers.start : numbers.stop], depth + 1, first)


def whole_repeats(dispatches: Sequence[RepeatedPart]) -> list[range]:
    """Return the numbers of dispatches in units: those of an outermost repeat together, each other one alone."""
    units = list[range]()
    for repeat, numbers in repeated_ranges(dispatches):
        units += [numbers] if repeat else [range(n, n + 1) for n in numbers]
    return units


__all__ = [
    "STEPS",
    "Condition",
    "LoopVersion",
    "Moving",
    "Repetition",
    "ranges_of_repeats",
    "repeated_ranges",
    "runs_of",
    "whole_repeats",
]
