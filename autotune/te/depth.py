"""Expressions of operations inside of operations inside of operations: as deep as programs get, and no deeper."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from autotune.errors import LoweringError

MAX_DEPTH = 1000
"""Operations inside of one another that every walk over an expression can follow, inlined stages included."""

_FRAMES = 12
"""Calls of Python that a walk makes for each of them at most."""

P = ParamSpec("P")
R = TypeVar("R")


class _Limit:
    """Python's limit of nested calls, raised for as long as any thread walks over expressions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._usual = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self._usual, _FRAMES * MAX_DEPTH))
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                sys.setrecursionlimit(self._usual)


_limit = _Limit()


def walks_deep(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose walks over expressions may be MAX_DEPTH deep; it raises LoweringError
    where they are deeper."""

    @functools.wraps(function)
    def walk(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _limit:
                return function(*args, **kwargs)
        except RecursionError:
            raise LoweringError(
                f"an expression is too deep: programs may have {MAX_DEPTH} operations inside of one another, inlined "
                f"stages included; compute some of the stages on the way at the root"
            ) from None

    return walk


__all__ = ["MAX_DEPTH", "walks_deep"]
