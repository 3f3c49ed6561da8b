"""Loop nests whose numbers are not there yet, and what computes them for populations of several paths at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.schedule.knob import Columns
from search_spaces.nest.joined import expanded, frame_of, joined, positions
from search_spaces.nest.loops import Access, Body, Loop, LoopNest
from search_spaces.nest.recorded import Program, Recording

_BODY = tuple(entry.name for entry in fields(Body))
Numbering = Callable[[Any, DTypeLike], Any]
"""What takes the place of a number of a loop nest that is to be of some type."""


class Template:
    """The loop nest of a path, of quantities of a recording and of numbers that all its candidates share."""

    def __init__(self, nest: LoopNest, recording: Recording) -> None:
        self.nest = nest
        self._recording = recording
        self._fitted: tuple[LoopNest, Fitted] | None = None

    def fitted(self, frame: LoopNest) -> Fitted:
        """What computes the numbers of a frame that has room for this loop nest."""
        if self._fitted is None or self._fitted[0] is not frame:
            values: list[Any] = []
            with_numbers(expanded(self.nest, frame), lambda value, dtype: values.append(value))
            slots = np.zeros(len(frame.loops), np.bool_)
            slots[positions(self.nest, frame)] = True
            self._fitted = frame, Fitted(self._recording.program(values), slots)
        return self._fitted[1]


class Fitted(NamedTuple):
    """Computes the numbers of a frame for the candidates of a path, whose own loops are in some of its ``slots``."""

    program: Program
    slots: NDArray[np.bool_]


Part = tuple[Template, Columns, int]
"""What a path computes, the values of its candidates' knobs, and how many they are."""


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
        """The loop nests of a population, part after part."""
        fitted = [template.fitted(self._frame) for template, _, _ in parts]
        slots = np.stack([one.slots for one in fitted], axis=1)
        counts = [n for _, _, n in parts]
        numbers = [one.program.run(columns) for one, (_, columns, _) in zip(fitted, parts, strict=True)]
        values = iter(_matrix(numbers, counts))
        nest = with_numbers(self._frame, lambda value, dtype: next(values).astype(dtype, copy=False))
        return nest if slots.all() else replace(nest, slots=slots.repeat(counts, axis=1))


def _matrix(parts: Sequence[Sequence[Any]], counts: Sequence[int]) -> NDArray[np.float64]:
    """The numbers of parts of a population, one row a number."""
    matrix = np.empty((len(parts[0]), sum(counts)))
    begin = 0
    for numbers, n in zip(parts, counts, strict=True):
        for row, number in zip(matrix[:, begin : begin + n], numbers, strict=True):
            row[...] = number
        begin += n
    return matrix


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
        resumed=number(nest.resumed, float),
        serial=number(nest.serial, bool),
        scratch=nest.scratch and (number(nest.scratch[0], float), number(nest.scratch[1], float)),
        tags={tag: number(value, float) for tag, value in nest.tags.items()},
    )


def _access(access: Access, number: Numbering) -> Access:
    return replace(access, **{name: number(value, Access.OWN[name]) for name, value in access.own.items()})


def _body(body: Body, number: Numbering) -> Body:
    return Body(*(number(getattr(body, name), float) for name in _BODY))


__all__ = ["Joint", "Template", "with_numbers"]
