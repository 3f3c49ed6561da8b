"""Blocks of a matrix product by a library kernel instead of register tiles of our own: one more knob.

The blocks are those of :mod:`search_spaces.tile_blocked`; workers call the kernel for a block each, and run the
epilogue over it. The last block starts early where the size is no multiple, so that all calls are of one size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autotune import library
from autotune.schedule.knob import Columns, Knob
from autotune.te.library_calls import library_matmul
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.constraint import Constraint
from search_spaces.nest import Numbers
from search_spaces.sketch import Choices
from search_spaces.tile_common import equals, whole
from search_spaces.tile_knobs import WHOLE, column, row_tiles, vector_tiles
from search_spaces.tile_shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage

TILES = "tiles"
_LEAST = 16
# Cycles of a body beyond those of our own tiles: of two equals, the one that needs no library is the default.
_EXTRA = 0.15
# Cycles for each element of the operands of a call, which OpenBLAS packs anew. Measured on Cascade Lake, 1024^3
# in blocks of 18 x 128 and 6 x 256: 2.8 and 3.1 beyond the time of the product.
_PACKED = 3.0


def kernel_knob(shape: TileShape) -> list[Knob]:
    """Register tiles, or one of the library kernels that are registered for the element type."""
    dtype = shape.structure.anchor.body[0].dtype
    names = library.kernels("matmul", dtype) if _is_matmul(shape) else ()
    return [Knob.of("kernel", (TILES, *names), TILES, "what computes a block")] if names else []


def kernel_constraint(shape: TileShape, knobs: list[Knob]) -> Constraint:
    """A library kernel packs and blocks by itself: what it does not read keeps one value."""
    names = [knob.name for knob in knobs if knob.name in ("pack", "k_block")]

    def holds(c: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        plain = (c["tail"] == "overlap") & (c["unroll"] == 1)
        for name in names:
            plain = plain & (c[name] == (WHOLE if name == "k_block" else False))
        return np.asarray((c["kernel"] == TILES) | plain)

    return Constraint(
        "kernel", ("kernel", "tail", "unroll", *names), holds, "a library kernel does not use it"
    )


def by_library(columns: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where a library kernel computes the blocks [n]."""
    if "kernel" not in columns:
        return np.zeros(len(columns["parallel"]), dtype=np.bool_)
    return ~equals(columns, "kernel", TILES)


def library_stalls(shape: TileShape, columns: Columns, arithmetic: Numbers) -> Numbers:
    """What the model adds to a body of a library kernel, in cycles.

    A call of m x n sums over k steps packs (m + n) * k elements, for m * n * k products: 1/n + 1/m each.
    """
    called = by_library(columns)
    if not called.any():
        return np.zeros(len(arithmetic))
    rows = whole(column(columns, "row_block", WHOLE), row_tiles(shape, columns)) * column(columns, "rows", 1)
    panels = whole(column(columns, "vector_block", WHOLE), vector_tiles(shape, columns))
    vectors = panels * column(columns, "vectors", 1)
    packed = _PACKED * (shape.lanes / rows + 1.0 / vectors)
    return np.where(called, (_EXTRA + packed) * arithmetic, 0.0)


def call_library(stage: Stage, shape: TileShape, config: Choices, width: Any) -> None:
    """Replace the loops of a block by a call; ``stage`` holds the sums of one block."""
    assert isinstance(stage.op, ComputeOp)
    names = [axis.name for axis in shape.structure.anchor.axis]
    axes = dict(zip(names, stage.op.axis, strict=True))
    rows, columns = axes[shape.spatial[0]], axes[shape.vector]
    (steps,) = stage.op.reduce_axis
    m, n = rows.extent, columns.extent
    if config["row_block"] != WHOLE:
        m = min(m, int(config["row_block"]) * int(config["rows"]))
    if config["vector_block"] != WHOLE:
        n = min(n, int(config["vector_block"]) * width)
    row_blocks, rows = stage.split(rows, factor=m)
    column_blocks, columns = stage.split(columns, factor=n)
    batch = [axes[axis] for axis in shape.batch]
    stage.reorder(*batch, row_blocks, column_blocks, rows, columns, steps)
    dtype = shape.structure.anchor.body[0].dtype
    stage.tensorize(rows, library_matmul(str(config["kernel"]), dtype, m, n, steps.extent))


def _is_matmul(shape: TileShape) -> bool:
    """Whether the anchor is a product of two stored matrices whose rows are dense, and no tiny one."""
    if shape.window or len(shape.spatial) != 1 or len(shape.reads) != 2:
        return False
    row, main, vector = shape.spatial[0], shape.main, shape.vector
    left, right = shape.reads
    return (
        shape.extents[row] >= _LEAST
        and shape.extents[vector] >= _LEAST
        and shape.extents[main] >= _LEAST
        and [left.single(d) for d in (-2, -1) if len(left.dims) > 1] == [row, main]
        and [right.single(d) for d in (-2, -1) if len(right.dims) > 1] == [main, vector]
        and all(isinstance(read.tensor.op, PlaceholderOp) for read in shape.reads)
        and all(read.tensor.dtype == shape.structure.anchor.body[0].dtype for read in shape.reads)
    )


__all__ = ["TILES", "by_library", "call_library", "kernel_constraint", "kernel_knob", "library_stalls"]
