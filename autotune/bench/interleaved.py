"""Interleaved turns: what disturbs the machine for a while meets every contender."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


def interleaved(
    turns: Mapping[str, Callable[[], T]], rounds: int, begin: int = 0
) -> Iterator[tuple[int, str, T]]:
    """Give each contender a turn in each round, another one first each time; yield round, name and result.

    Rounds are numbered from ``begin`` on.

    >>> [name for _, name, _ in interleaved({"a": lambda: 1, "b": lambda: 2}, 2)]
    ['a', 'b', 'b', 'a']
    """
    names = list(turns)
    for number in range(begin, begin + rounds):
        first = number % max(1, len(names))
        for name in [*names[first:], *names[:first]]:
            yield number, name, turns[name]()


__all__ = ["interleaved"]
