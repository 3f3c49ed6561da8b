"""Register tiles with the reduction in blocks: the sums of a block of the output wait in memory.

A panel of the right operand as tall as the whole reduction does not stay in a cache once the reduction is
long. With blocks of ``k_block`` steps outside of the tiles, each tile loads its sums, adds a block's part and
stores them: the loops of Goto and van de Geijn (TOMS 2008), as in BLIS (Van Zee and van de Geijn, TOMS 2015).
The block of sums is scratch memory, dense whatever the output's rows are; the epilogue runs once it is complete.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.schedule.knob import Columns, Knob
from autotune.target import ITEM_BYTES, Target
from search_spaces.constraint import Constraint
from search_spaces.nest import Numbers
from search_spaces.tile.common import whole
from search_spaces.tile.knobs import WHOLE, column, row_tiles, vector_tiles
from search_spaces.tile.shape import TileShape

_SIZES = tuple(2**power for power in range(3, 11))
_LEAST, _MOST = 256, 2047
"""Steps of a block: fewer do not pay for loading and storing the sums, and more make as tall a panel as all."""


def k_block_knob(shape: TileShape) -> list[Knob]:
    """Return blocks of a reduction that is at least two of them long; each goes through the whole window."""
    steps = shape.extents[shape.main]
    window = math.prod(shape.extents[axis] for axis in shape.window)
    sizes = tuple(size for size in _SIZES if 2 * size <= steps and _LEAST <= size * window <= _MOST)
    if not sizes:
        return []
    help = "steps of a block of the reduction (0: all)"
    return [Knob.of("k_block", (WHOLE, *sizes), WHOLE, help, zero_is_all=True)]


def k_block_constraint(shape: TileShape, target: Target) -> Constraint:
    """Return the limit of sums that workers keep: they fit the last cache that they share, with room for
    the operands."""
    room = max(target.l2_bytes, target.l3_bytes / (2 * target.threads))
    item = ITEM_BYTES[shape.structure.anchor.body[0].dtype]
    outer = ("outer_rows",) if len(shape.spatial) == 2 else ()
    return Constraint(
        "k_block",
        ("k_block", "rows", *outer, "vectors", "row_block", "vector_block"),
        lambda c: (c["k_block"] == WHOLE) | (block_elements(shape, c) * item <= room),
        "the sums of a block would not fit a cache",
    )


def block_elements(shape: TileShape, columns: Columns) -> Numbers:
    """Return elements of the output in one block [n]."""
    rows, vectors = row_tiles(shape, columns), vector_tiles(shape, columns)
    result = (
        whole(column(columns, "vector_block", WHOLE), vectors) * column(columns, "vectors", 1) * shape.lanes
    )
    result = result * whole(column(columns, "row_block", WHOLE), rows)
    for axis, knob in zip(reversed(shape.spatial), ("rows", "outer_rows"), strict=False):
        tile = column(columns, knob, 1)
        result = result * (tile if axis == shape.spatial[0] else np.ceil(shape.extents[axis] / tile) * tile)
    return np.asarray(result)


__all__ = ["block_elements", "k_block_constraint", "k_block_knob"]
