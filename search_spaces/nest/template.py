"""Loop nests whose numbers are not there yet, and the program that computes them for a population."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.schedule.knob import Columns
from search_spaces.nest.loops import Access, Body, Loop, LoopNest
from search_spaces.nest.recorded import Recording

_BODY = tuple(entry.name for entry in fields(Body))
Numbering = Callable[[Any, DTypeLike], Any]
"""What takes the place of a number of a loop nest that is to be of some type."""


class Template:
    """A loop nest of quantities of a recording, and of numbers that all candidates share."""

    def __init__(self, nest: LoopNest, recording: Recording) -> None:
        self._nest = nest
        values: list[Any] = []
        with_numbers(nest, lambda value, dtype: values.append(value))
        self._program = recording.program(values)

    def nest(self, columns: Columns) -> LoopNest:
        """The loop nests of a population."""
        n = len(next(iter(columns.values()), [0]))
        results = iter(self._program.run(columns))
        return with_numbers(self._nest, lambda value, dtype: _array(next(results), n, dtype))


def with_numbers(nest: LoopNest, number: Numbering) -> LoopNest:
    """A loop nest with other numbers in place of its own, always in the same order."""
    return replace(
        nest,
        loops=tuple(Loop(loop.axis, number(loop.extent, float), loop.kind) for loop in nest.loops),
        accesses=tuple(_access(access, number) for access in nest.accesses),
        body=_body(nest.body, number),
        rests=tuple(_body(body, number) for body in nest.rests),
        passes=tuple(
            replace(one, read=number(one.read, float), written=number(one.written, float))
            for one in nest.passes
        ),
        tail_operations=number(nest.tail_operations, float),
        serial=number(nest.serial, bool),
        scratch=nest.scratch and (number(nest.scratch[0], float), number(nest.scratch[1], float)),
        tags={tag: number(value, float) for tag, value in nest.tags.items()},
    )


def _access(access: Access, number: Numbering) -> Access:
    given: dict[str, DTypeLike] = {"panel": bool, "streamed": bool, "ahead": float}
    own = {name: value for name in given if (value := getattr(access, name)) is not None}
    return (
        replace(access, **{name: number(value, given[name]) for name, value in own.items()})
        if own
        else access
    )


def _body(body: Body, number: Numbering) -> Body:
    return Body(*(number(getattr(body, name), float) for name in _BODY))


def _array(value: Any, n: int, dtype: DTypeLike) -> NDArray[Any]:
    """A value as an array [n]."""
    if isinstance(value, np.ndarray) and value.dtype == dtype and value.shape == (n,):
        return value
    result = np.empty(n, dtype)
    result[...] = value
    return result


__all__ = ["Template", "with_numbers"]
