"""A dictionary with scopes."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Scoped(Generic[K, V]):
    """Entries vanish with the scope that they were made in; ``with`` is a scope inside of the current one.

    >>> names: Scoped[str, int] = Scoped()
    >>> names.add("a", 1)
    >>> with names:
    ...     names.add("b", 2)
    ...     names.add("c", 3, depth=0)
    ...     print(names.get("a"), names.get("b"), names.get("c"))
    1 2 3
    >>> print(names.get("a"), names.get("b"), names.get("c"))
    1 None 3
    """

    __slots__ = ("_entries", "_made", "get")

    def __init__(self) -> None:
        self._entries: dict[K, V] = {}
        self._made: list[list[K]] = [[]]
        self.get = self._entries.get

    def add(self, key: K, value: V, depth: int = -1) -> None:
        """Add an entry that is not there yet, to scope number ``depth`` (the innermost by default)."""
        self._entries[key] = value
        self._made[depth].append(key)

    def __enter__(self) -> None:
        self._made.append([])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in self._made.pop():
            del self._entries[key]


__all__ = ["Scoped"]
