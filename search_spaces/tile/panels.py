"""The packed operand of a register tile: panels of columns, in the order that the reduction visits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.schedule.index_map import IndexMap
from autotune.te.expr import Var
from autotune.te.tensor import ComputeOp
from search_spaces.families.plain import schedule_plain, worth_sharing
from search_spaces.sketch import Choices
from search_spaces.tile.dot import grouped
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage

# Rows that a pass goes through at once. Panel by panel, each row is a page of its own and a few lines of it are read:
# prefetchers do not follow. Row by row, all panels are written at once. In between it runs at the speed of a copy:
# 8 and 16 rows alike, 64 lose a third.
_ROWS = 16


def pack_weights(schedule: Schedule, shape: TileShape, accumulator: Stage, config: Choices) -> Stage:
    """Lay the weights out as panels as wide as a tile, in the order that the reduction visits them; return the
    panels."""
    read = shape.weights
    assert read is not None
    width, by_window = config["vectors"] * shape.lanes, config.get("reduce_order", "window") == "window"
    dims = {read.single(dim): Var(f"i{dim}") for dim in range(len(read.dims)) if read.dims[dim]}
    fixed = [Var(f"i{dim}") for dim in range(len(read.dims)) if not read.dims[dim]]
    reduce_order = (*shape.window, shape.main) if by_window else (shape.main, *shape.window)
    column = dims.pop(shape.vector)
    ordered = [dims.pop(axis) for axis in reduce_order if axis in dims]
    indices: list[Any] = [*fixed, *dims.values(), column // width, *ordered, column % width]
    if shape.dot is not None:
        indices = grouped(indices, ordered[-1 if by_window else 0], shape.group)
    source = schedule[read.tensor.op.name]
    packed = schedule.cache_read(source.tensor, "global", [accumulator])
    packed = schedule.transform_layout(packed, IndexMap.from_indices(indices))
    if shape.weights_constant:
        return schedule[packed]
    if shape.dot is None and len(ordered) == 1 and read.contiguous == shape.vector:
        _by_rows(schedule[packed], shape.lanes)
    else:
        schedule_plain(schedule[packed], shape.lanes, inline=False)
    return schedule[packed]


def _by_rows(stage: Stage, lanes: int) -> None:
    """Go through the source a few rows at a time, and through all panels for each."""
    assert isinstance(stage.op, ComputeOp)
    *batch, panel, row, column = stage.op.axis
    blocks, rows = stage.split(row, factor=min(_ROWS, row.extent))
    vectors, inner = stage.split(column, factor=lanes)
    stage.reorder(*batch, blocks, panel, rows, vectors, inner)
    stage.unroll(vectors)
    stage.vectorize(inner)
    if worth_sharing(stage.op):
        stage.parallel(stage.fuse(*batch, blocks) if batch else blocks)


__all__ = ["pack_weights"]
