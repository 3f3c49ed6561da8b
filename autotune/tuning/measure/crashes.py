"""The candidate that ended a process, among those that were in one version of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def crashing(
    versions: Sequence[Sequence[T]], live: Callable[[Sequence[Sequence[T]]], Sequence[bool] | None]
) -> list[T]:
    """Return the candidates that end a process by themselves, found by halves; ``versions`` are those that ended one.

    ``live`` measures versions with fewer candidates and says which of them live, or None without time for it:
    then all that are still suspected count.

    >>> crashing([[1, 2, 3, 4], [5]], lambda versions: [3 not in version for version in versions])
    [5, 3]
    """
    found: list[T] = []
    suspected = [list(version) for version in versions]
    while suspected:
        found += [version[0] for version in suspected if len(version) == 1]
        halves = [half for version in suspected if len(version) > 1 for half in _halves(version)]
        if not halves:
            break
        lives = live(halves)
        if lives is None:
            return [*found, *(candidate for half in halves for candidate in half)]
        suspected = [half for half, alive in zip(halves, lives, strict=True) if not alive]
    return found


def _halves(version: list[T]) -> tuple[list[T], list[T]]:
    middle = len(version) // 2
    return version[:middle], version[middle:]


__all__ = ["crashing"]
