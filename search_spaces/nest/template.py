"""Loop nests whose numbers are not there yet, and what computes them for populations of several paths at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.schedule.knob import Columns
from search_spaces.nest.joined import expanded, frame_of, joined, positions
from search_spaces.nest.loops import Body, Loop, LoopNest, TensorAccess
from search_spaces.nest.recorded import OperationRecorder, Replay

_BODY = {entry.name: float if entry.default is MISSING else None for entry in fields(Body)}
Numbering = Callable[[Any, DTypeLike | None], Any]
"""The type of the numbers of a loop nest that is to be of some type; None where one may do for all."""


class Template:
    """The loop nest of a path, of quantities of a recording and of numbers that all its candidates share."""

    def __init__(self, nest: LoopNest, recording: OperationRecorder) -> None:
        self.nest = nest
        self._recording = recording
        self._fitted: tuple[LoopNest, Fitted] | None = None

    def fitted(self, frame: LoopNest) -> Fitted:
        """Return a program for the numbers of a frame that has room for this loop nest."""
        if self._fitted is None or self._fitted[0] is not frame:
            values: list[Any] = []
            with_numbers(expanded(self.nest, frame), lambda value, dtype: values.append(value))
            slots = np.zeros(len(frame.loops), np.bool_)
            slots[positions(self.nest, frame)] = True
            self._fitted = frame, Fitted(self._recording.program(values), slots)
        return self._fitted[1]


class Fitted(NamedTuple):
    """Computes the numbers of a frame for the candidates of a path, whose own loops are in some of its ``slots``."""

    program: Replay
    slots: NDArray[np.bool_]


Part = tuple[Template, Columns, int]
"""A path's program, the values of its candidates' knobs, and their number."""


class Joint:
    """Paths whose loop nests one frame has room for."""

    def __init__(self, template: Template) -> None:
        self._frame = frame_of(template.nest)

    def admit(self, template: Template) -> bool:
        """Make room for one more path; False where its loop nest can't stand beside the others."""
        frame = joined(self._frame, frame_of(template.nest))
        if frame is None:
            return False
        self._frame = self._frame if frame == self._frame else frame
        return True

    def nest(self, parts: Sequence[Part]) -> LoopNest:
        """Return the loop nests of a population, part after part."""
        fitted = [template.fitted(self._frame) for template, _, _ in parts]
        counts = [n for _, _, n in parts]
        found = [one.program.run(columns) for one, (_, columns, _) in zip(fitted, parts, strict=True)]
        numbers = zip(*found, strict=True)
        nest = with_numbers(self._frame, lambda value, dtype: _column(next(numbers), counts, dtype))
        slots = np.stack([one.slots for one in fitted], axis=1)
        return nest if slots.all() else replace(nest, slots=slots.repeat(counts, axis=1))


def _column(parts: Sequence[Any], counts: Sequence[int], dtype: DTypeLike | None) -> Any:
    """Return the numbers of a population, part after part; one number where all share it, if no type is asked for."""
    first = parts[0]
    if dtype is None and not any(isinstance(one, np.ndarray) or one != first for one in parts):
        return first
    if len(parts) == 1 and isinstance(first, np.ndarray):
        return first.astype(dtype or float, copy=False)
    column = np.empty(sum(counts), dtype or float)
    begin = 0
    for number, n in zip(parts, counts, strict=True):
        column[begin : begin + n] = number
        begin += n
    return column


def with_numbers(nest: LoopNest, number: Numbering) -> LoopNest:
    """Return a loop nest with other numbers in place of its own, always in the same order."""
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
        resumed=number(nest.resumed, float),
        serial=number(nest.serial, bool),
        scratch=nest.scratch and (number(nest.scratch[0], float), number(nest.scratch[1], float)),
        tags={tag: number(value, float) for tag, value in nest.tags.items()},
    )


def _access(access: TensorAccess, number: Numbering) -> TensorAccess:
    return access.having({name: number(value, TensorAccess.OWN[name]) for name, value in access.own.items()})


def _body(body: Body, number: Numbering) -> Body:
    return Body(*(number(getattr(body, name), dtype) for name, dtype in _BODY.items()))


__all__ = ["Joint", "Template", "with_numbers"]
