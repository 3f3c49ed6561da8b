"""Regions of a producer that the loops of its readers need, for a population: :mod:`autotune.lower.regions` as arrays.

Where an interval begins is only known as far as it has to be to join those of several reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.lower.linear import Lin, Simplifier
from autotune.schedule.arithmetic import Value, both, either, least, most, where
from autotune.schedule.index_map import Piece
from autotune.schedule.knob_expression import evaluate
from autotune.te.expr import Binary, Const, Expr, IterVar, Read
from autotune.te.traversal import reads
from search_spaces.nest.candidates import Knobs


@dataclass(frozen=True, eq=False)
class Box:
    """An interval of ``size`` numbers from ``start`` plus ``terms``, which are multiples of where others begin.

    Its begin is a multiple of ``grain``, 0 where it is the number 0.
    """

    size: Value
    terms: Mapping[Expr, int] = field(default_factory=dict)
    start: Value = 0
    grain: Value = 0


Boxes = Mapping[IterVar, Box]


class Indexes:
    """Ranges of the indices of a program; schedules of one program have most of their expressions in common."""

    def __init__(self) -> None:
        self._simplifier = Simplifier()
        self._forms: dict[Expr, Lin] = {}
        self._reads: dict[Expr, Sequence[Read]] = {}

    def form(self, index: Expr) -> Lin:
        """Return an index in linear normal form; each is taken apart once."""
        if index not in self._forms:
            self._forms[index] = self._simplifier.form(index)
        return self._forms[index]

    def reads(self, expr: Expr) -> Sequence[Read]:
        """Return all tensor reads below an expression; each is walked through once."""
        if expr not in self._reads:
            self._reads[expr] = reads(expr)
        return self._reads[expr]

    def interval(self, index: Expr, boxes: Boxes) -> Box | None:
        """Return the range of an index while its variables run over their boxes; None where that is unknown."""
        form = self.form(index)
        size: Value = 1
        start: Value = form.constant
        grain: Value = abs(form.constant)
        terms: dict[Expr, int] = {}
        for atom, c in form.terms.items():
            box = self._opaque(atom, boxes) if isinstance(atom, Binary) else boxes.get(atom)  # type: ignore[call-overload]
            if box is None:
                return None
            size = size + abs(c) * (box.size - 1)
            start = start + c * (box.start if c > 0 else box.start + box.size - 1)
            grain = np.gcd(grain, c * box.grain if c > 0 else 1)
            for variable, factor in box.terms.items():
                terms[variable] = terms.get(variable, 0) + c * factor
        return Box(size, {variable: c for variable, c in terms.items() if c}, start, grain)

    def _opaque(self, atom: Binary, boxes: Boxes) -> Box | None:
        """Return a quotient or remainder; one of neighbours that begin at a multiple of the divisor is known best."""
        inner = self.interval(atom.a, boxes) if atom.op in ("//", "%") else None
        if inner is None or not isinstance(atom.b, Const):
            return None
        divisor = int(atom.b.value)
        return _quotient(inner, divisor, atom) if atom.op == "//" else _remainder(inner, divisor)

    def required(self, shape: Sequence[Value], uses: Sequence[tuple[Read, Boxes]]) -> list[Box]:
        """Return the part of a tensor that reads cover, each with the boxes of its variables."""
        return [
            _inside(self._covered([(read.indices[dimension], boxes) for read, boxes in uses]), extent)
            for dimension, extent in enumerate(shape)
        ]

    def panels(
        self,
        pieces: Sequence[Piece],
        shape: Sequence[Value],
        uses: Sequence[tuple[Read, Boxes]],
        knobs: Knobs,
    ) -> list[Box]:
        """Return the part of panels of those ``pieces`` that reads cover of what was packed into them."""
        found = []
        for (old, stride, modulus), extent in zip(pieces, shape, strict=True):
            box = self._covered([(read.indices[old], boxes) for read, boxes in uses])
            if box is not None and stride != 1:
                box = _quotient(box, evaluate(stride, knobs), uses[0][0].indices[old])
            if box is not None and modulus != 0:
                box = _remainder(box, evaluate(modulus, knobs))
            found.append(_inside(box, extent))
        return found

    def _covered(self, uses: Sequence[tuple[Expr, Boxes]]) -> Box | None:
        found: Box | None = None
        for index, boxes in uses:
            box = self.interval(index, boxes)
            found = box if found is None or box is None else _union(found, box)
            if found is None:
                return None
        return found


def _quotient(box: Box, divisor: Value, atom: Expr) -> Box:
    """Return the range of a quotient, whose begin ``atom`` stands for."""
    begin: dict[Expr, int] = {atom: 1} if box.terms else {}
    widest = (box.size + divisor - 2) // divisor + 1
    size = where(box.grain % divisor == 0, (box.size - 1) // divisor + 1, widest)
    return Box(size, begin, 0 if begin else box.start // divisor, 1)


def _remainder(box: Box, divisor: Value) -> Box:
    """Return the range of a remainder."""
    inside = either(box.size == 1, both(box.grain % divisor == 0, box.size <= divisor))
    return Box(where(inside, box.size, divisor))


def _union(a: Box, b: Box) -> Box | None:
    """Return the smallest interval around both; None where their begins do not compare."""
    if a.terms != b.terms:
        return None
    gap = b.start - a.start
    size = most(a.size, gap + b.size) - least(gap, 0)
    return Box(size, a.terms, least(a.start, b.start), np.gcd(a.grain, b.grain))


def _inside(box: Box | None, extent: Value) -> Box:
    """Return a box, or all of the dimension where that is unknown or no larger."""
    if box is None:
        return Box(extent)
    whole = box.size >= extent
    if isinstance(whole, bool | np.bool_):
        return Box(extent) if whole else box
    return Box(np.minimum(box.size, extent), box.terms, where(whole, 0, box.start), box.grain)


__all__ = ["Box", "Boxes", "Indexes"]
