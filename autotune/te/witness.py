"""A point of a box at which conditions hold, or the certainty that there is none.

Boxes of which interval arithmetic cannot tell are halved (branch and bound), small ones are looked at point by point:
exact for any arithmetic, affine or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.te.expr import Expr
from autotune.te.intervals import Boxes, Interval, interval
from autotune.te.values import value_of

SMALL_BOX = 1 << 14
"""Points that are looked at at once."""

MOST_POINTS = 1 << 22
"""Points that are looked at before the search gives up, some tenths of a second."""

MOST_BOXES = 4096
"""Boxes that are looked at before the search gives up."""

Point = dict[Expr, int]


class Undecided(Exception):
    """The box is too large for a search."""


def witness(conditions: Sequence[Expr], boxes: Boxes) -> Point | None:
    """Return the variables' values where all ``conditions`` hold; None where there is no such point. Raises Undecided.

    >>> from autotune.te.expr import IterVar
    >>> i, j = IterVar("i", 100, "data"), IterVar("j", 100, "data")
    >>> witness([i * j == 35, i > 5], {i: (0, 99), j: (0, 99)})
    {i: 7, j: 5}
    >>> witness([i * j == 35, i > 5, i < 7], {i: (0, 99), j: (0, 99)})
    """
    open_boxes: list[dict[Expr, Interval]] = [dict(boxes)]
    points = 0
    for _ in range(MOST_BOXES):
        if not open_boxes:
            return None
        box = open_boxes.pop()
        memo: dict[int, Interval] = {}
        truths = [interval(condition, box, memo) for condition in conditions]
        if any(high == 0 for _, high in truths):
            continue
        if all(low == 1 for low, _ in truths):
            return {var: low for var, (low, _) in box.items()}
        size = math.prod(high - low + 1 for low, high in box.values())
        if size > SMALL_BOX:
            open_boxes += _halves(box)
            continue
        points += size
        if points > MOST_POINTS:
            break
        found = _among(conditions, box)
        if found is not None:
            return found
    raise Undecided


def _halves(box: dict[Expr, Interval]) -> list[dict[Expr, Interval]]:
    """Return both halves of a box along its longest side, the first one last."""
    longest = max(box, key=lambda var: box[var][1] - box[var][0])
    low, high = box[longest]
    middle = (low + high) // 2
    return [box | {longest: (middle + 1, high)}, box | {longest: (low, middle)}]


def _among(conditions: Sequence[Expr], box: dict[Expr, Interval]) -> Point | None:
    """Return the first of all points of a small box."""
    sides = [np.arange(low, high + 1, dtype=np.int64) for low, high in box.values()]
    grids: dict[Expr, Any] = dict(zip(box, np.ix_(*sides), strict=True))
    memo: dict[int, Any] = {}
    shape = tuple(len(side) for side in sides)
    with np.errstate(all="ignore"):
        truth = np.ones(shape, np.bool_)
        for condition in conditions:
            truth &= value_of(condition, grids, {}, memo)
    if not truth.any():
        return None
    place = np.unravel_index(int(np.argmax(truth)), shape)
    return {var: int(side[at]) for var, side, at in zip(box, sides, place, strict=True)}


__all__ = ["MOST_BOXES", "MOST_POINTS", "SMALL_BOX", "Point", "Undecided", "witness"]
