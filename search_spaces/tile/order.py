"""The dimension order of a register tile's staged producers.

A tile reads what is not its vector operand element by element and broadcasts it, so the staged copy may lie in any
order. First convolutions copy an image of three planes: in the order that the anchor reads, a vector of the copy
has three lanes, each from another plane; in the order of the planes whole rows are copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schedule.index_map import IndexMap
from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import read_forms
from search_spaces.sketch import Choices
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule

READ, SOURCE = "read", "source"


def order_knob(shape: TileShape) -> list[Knob]:
    """Return the order of staged copies, where the one that the anchor reads would leave lanes of a vector empty."""
    if not _reordered(shape):
        return []
    about = "dimensions of staged copies: as the kernel reads them, or as what they copy lies"
    return [Knob.of("stage_order", (READ, SOURCE), SOURCE, about)]


def order_staged(schedule: Schedule, shape: TileShape, config: Choices) -> None:
    """Store the copies in the order of their sources, if ``config`` says so."""
    if config.get("stage_order", READ) != SOURCE:
        return
    for name, order in _reordered(shape).items():
        schedule.transform_layout(schedule[name].tensor, IndexMap(tuple(f"i{dim}" for dim in order)))


def _reordered(shape: TileShape) -> dict[str, tuple[int, ...]]:
    """Return the dimensions, reordered, of each staged producer that is worth another order, by name."""
    if shape.dot is not None:  # one instruction reads neighbours of the reduction
        return {}
    found = {}
    for read in shape.reads:
        op = read.tensor.op
        if op.name not in shape.staged or shape.vector in read.axes or not isinstance(op, ComputeOp):
            continue
        order = source_order(op)
        if order is not None and op.shape[-1] < shape.lanes <= op.shape[order[-1]]:
            found[op.name] = order
    return found


def source_order(op: ComputeOp) -> tuple[int, ...] | None:
    """Return the dimensions of ``op`` in the order of the tensor that it copies, views between them included.

    None where it is the order of ``op``, or where what is read is no permutation of the dimensions.
    """
    own: dict[str, int] = {axis.name: dim for dim, axis in enumerate(op.axis)}
    order = tuple(own.values())
    current = op
    while True:
        forms = read_forms(current)
        if len(forms) != 1 or not forms[0].affine or current.reduction is not None:
            return None
        form = forms[0]
        if any(len(terms) > 1 or any(step != 1 for _, step in terms) for terms in form.dims):
            return None
        dims = [own.get(terms[0][0]) if terms else None for terms in form.dims]
        order = tuple(dim for dim in dims if dim is not None)
        source = form.tensor.op
        if not isinstance(source, ComputeOp):
            break
        own = {axis.name: dim for axis, dim in zip(source.axis, dims, strict=True) if dim is not None}
        current = source
    every = range(len(op.shape))
    missing = tuple(dim for dim in every if dim not in order)
    if any(op.shape[dim] != 1 for dim in missing) or len(set(order)) != len(order):
        return None
    order = (*missing, *order)
    return None if order == tuple(every) else order


__all__ = ["READ", "SOURCE", "order_knob", "order_staged", "source_order"]
