"""Layouts of the reductions of a program: where the last axis makes poor vectors, another one becomes the last.

A product whose output has its columns elsewhere, or a strided convolution that keeps planes apart, would gather each
vector element by element, or leave most lanes idle. Stored with another axis last it is computed in full vectors; who
reads it transposes it, as between operators of a model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from autotune.schedule.index_map import IndexMap
from autotune.te.sequential import SequentialOp
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import ReadForm, read_forms
from search_spaces.programs.spaces import keeps_rows

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.target import Target
    from autotune.te.expr import IterVar

_REUSE = 8
"""So many uses of each element of an operand are worth packing it."""
_BETTER = 1.5
"""So many times as many lanes in use are worth a pass over the result."""


def choose_layouts(schedule: Schedule, target: Target) -> None:
    """Store the reductions of a fresh schedule so that their last axis makes vectors."""
    for stage in schedule.order():
        op = stage.op
        if not isinstance(op, ComputeOp) or isinstance(op, SequentialOp) or len(op.body) > 1:
            continue
        axis = vector_axis(op, target) if op.reduction is not None else None
        if axis is None or axis is op.axis[-1]:
            continue
        order = [number for number, other in enumerate(op.axis) if other is not axis]
        tensor = schedule.cache_write(stage.tensor, "global") if stage.is_output else stage.tensor
        indices = tuple(f"i{number}" for number in (*order, op.axis.index(axis)))
        schedule.transform_layout(tensor, IndexMap(indices))


def vector_axis(op: ComputeOp, target: Target) -> IterVar | None:
    """Return the data axis whose neighbours should be a vector; None where there is no choice."""
    data = [axis for axis in op.axis if axis.extent > 1]
    if len(data) < 2 or math.prod(axis.extent for axis in op.reduce_axis) < 2 or keeps_rows(op):
        return None
    last, lanes = data[-1], max(1, target.lanes(op.body[0].dtype))
    others = [axis for axis in data[:-1] if axis.extent >= lanes and not _gathered(op, axis)]
    best = max(others, key=lambda axis: _in_use(axis, lanes), default=last)
    if _gathered(op, last) or _in_use(best, lanes) >= _BETTER * _in_use(last, lanes):
        return best
    return None


def _in_use(axis: IterVar, lanes: int) -> float:
    """Return the part of all lanes that vectors along an axis fill."""
    return axis.extent / (math.ceil(axis.extent / lanes) * lanes)


def _gathered(op: ComputeOp, axis: IterVar) -> bool:
    """Return whether a vector along an axis is gathered from an operand that is not worth packing."""
    moved = [form for form in read_forms(op) if axis.name in form.axes]
    strided = [form for form in moved if _line(form) != axis.name]
    return bool(strided) and not (len(moved) == 1 and _packed(op, moved[0]))


def _line(form: ReadForm) -> str | None:
    """Return the axis along which the elements of a read are neighbours in memory."""
    long = [dim for dim, extent in enumerate(form.tensor.shape) if extent > 1]
    return form.single(long[-1]) if long else None


def _packed(op: ComputeOp, form: ReadForm) -> bool:
    """Return whether a read is of a matrix that is used often, and that panels may be made of."""
    points = math.prod(axis.extent for axis in (*op.axis, *op.reduce_axis))
    singles = [form.single(dim) for dim, extent in enumerate(form.tensor.shape) if extent > 1]
    return None not in singles and points >= _REUSE * math.prod(form.tensor.shape)


__all__ = ["choose_layouts", "vector_axis"]
