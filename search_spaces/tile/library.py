"""Blocks of a matrix product by a library kernel instead of register tiles of our own: one more knob.

The blocks are those of :mod:`search_spaces.tile.blocked`; workers call the kernel for a block each, and run the
epilogue over it. The last block starts early where the size is no multiple, so that all calls are of one size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune import library
from autotune.schedule.knob import Columns, Knob
from autotune.schedule.knob_value import concrete, expression_of, holds_knobs, maximum, minimum
from autotune.te.library_calls import library_matmul
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.constraint import Constraint
from search_spaces.sketch import Choices
from search_spaces.tile.knobs import WHOLE
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage

TILES = "tiles"
_LEAST = 16


def kernel_knob(shape: TileShape) -> list[Knob]:
    """Register tiles, or one of the library kernels that are registered for the element type."""
    dtype = shape.structure.anchor.body[0].dtype
    names = library.kernels("matmul", dtype) if _is_matmul(shape) else ()
    return [Knob.of("kernel", (TILES, *names), TILES, "what computes a block")] if names else []


def kernel_constraint(shape: TileShape, knobs: list[Knob]) -> Constraint:
    """Return a library kernel packs and blocks by itself: what it does not read keeps one value."""
    names = [knob.name for knob in knobs if knob.name in ("pack", "k_block")]

    def holds(c: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        plain = (c["tail"] == "overlap") & (c["unroll"] == 1)
        for name in names:
            plain = plain & (c[name] == (WHOLE if name == "k_block" else False))
        return np.asarray((c["kernel"] == TILES) | plain)

    return Constraint(
        "kernel", ("kernel", "tail", "unroll", *names), holds, "a library kernel does not use it"
    )


def call_library(stage: Stage, shape: TileShape, config: Choices, width: Any) -> None:
    """Replace the loops of a block by a call; ``stage`` holds the sums of one block."""
    assert isinstance(stage.op, ComputeOp)
    names = [axis.name for axis in shape.structure.anchor.axis]
    axes = dict(zip(names, stage.op.axis, strict=True))
    rows, columns = axes[shape.spatial[0]], axes[shape.vector]
    (steps,) = stage.op.reduce_axis
    m = _size(config["row_block"], config["rows"], rows.extent)
    n = _size(config["vector_block"], width, columns.extent)
    row_blocks, rows = stage.split(rows, factor=m)
    column_blocks, columns = stage.split(columns, factor=n)
    batch = [axes[axis] for axis in shape.batch]
    stage.reorder(*batch, row_blocks, column_blocks, rows, columns, steps)
    dtype = shape.structure.anchor.body[0].dtype
    sizes = (m, n, steps.extent)
    call = library_matmul(str(config["kernel"]), dtype, *concrete(sizes))
    if holds_knobs(sizes):
        call = replace(call, sizes=tuple(map(expression_of, sizes)))
    stage.tensorize(rows, call)


def _size(tiles: Any, tile: Any, extent: Any) -> Any:
    """Return rows or columns of a block of some tiles, or of all."""
    return minimum(extent, maximum(tiles * tile, (tiles == WHOLE) * extent))


def _is_matmul(shape: TileShape) -> bool:
    """Return whether the anchor is a product of two stored matrices whose rows are dense, and no tiny one."""
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
        and row not in right.axes
        and vector not in left.axes
        and all(isinstance(read.tensor.op, PlaceholderOp) for read in shape.reads)
        and all(read.tensor.dtype == shape.structure.anchor.body[0].dtype for read in shape.reads)
    )


__all__ = ["TILES", "call_library", "kernel_constraint", "kernel_knob"]
