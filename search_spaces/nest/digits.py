"""The loops of a stage as loops over single axes."""

from __future__ import annotations

from collections.abc import Callable

from autotune.schedule.arithmetic import Value, ceil_div, is_one, least
from autotune.schedule.relations import Fuse
from autotune.te.expr import IterVar
from search_spaces.nest.candidates import CandidateFrame

Digits = list[tuple[str, Value]]
"""Axes and how many steps a loop makes along each, outermost first."""


def digits(frame: CandidateFrame, loop: IterVar, name: Callable[[IterVar], str]) -> Digits:
    """Return a loop as loops over the axes that it is made of, the last one fastest."""
    relation = frame.parents.get(loop)
    if relation is None:
        return [(name(loop), frame.extent(loop))]
    if isinstance(relation, Fuse):
        both = digits(frame, relation.outer, name) + digits(frame, relation.inner, name)
        return [part for part in both if not is_one(part[1])] or both[:1]
    parent = digits(frame, relation.parent, name)
    if len(parent) == 1:
        return [(parent[0][0], frame.extent(loop))]
    outer, inner = _divided(parent, frame.width(relation))
    return _stretched(outer, frame.extent(loop)) if loop is relation.outer else inner


def _divided(parts: Digits, width: Value) -> tuple[Digits, Digits]:
    """Return loops over several axes cut where the inner ones have ``width`` iterations together."""
    outer: Digits = []
    inner: Digits = []
    for axis, extent in reversed(parts):
        taken = least(width, extent)
        inner.insert(0, (axis, taken))
        outer.insert(0, (axis, extent / taken))
        width = ceil_div(width, taken)
    return outer, inner


def _stretched(parts: Digits, total: Value) -> Digits:
    """Return the outermost loop as long as it takes for ``total`` iterations of all."""
    inside: Value = 1
    for _, extent in parts[1:]:
        inside = inside * extent
    return [(parts[0][0], total / inside), *parts[1:]]


__all__ = ["Digits", "digits"]
