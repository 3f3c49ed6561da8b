"""What register-tiled candidates do outside their reduction: packing, staged producers, epilogues."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Columns
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import operations
from search_spaces.nest import Numbers, Pass
from search_spaces.tile_blocked import reduction_blocks, sums_of
from search_spaces.tile_common import Tile, item_bytes, whole
from search_spaces.tile_knobs import WHOLE, ceil_div, column, row_tiles, vector_tiles
from search_spaces.tile_order import staging_operations
from search_spaces.tile_patches import copy_operations, is_packing
from search_spaces.tile_shape import TileShape

# Instructions' worth of time that a vector takes where it is staged under a test. Measured on Cascade Lake, three
# convolutions whose rows the blocks do not divide, against the same with padding stored whole: 17 to 41 cycles.
_GUARDED = 12.0
# The same for a tile at each block of the reduction, beside loading and storing its sums: its operands come anew from
# further away, and prefetchers start again. Cascade Lake, products of size 1536 and 2048 with blocks of 512 steps
# against none: 300 to 600 cycles.
_RESTART = 1000.0


def passes(shape: TileShape, pack: NDArray[np.bool_], block: NDArray[np.bool_]) -> list[Pass]:
    """Kernels before the main one: packing at run time, and producers stored whole."""
    found = []
    if shape.weights is not None and not shape.weights_constant:
        size = float(math.prod(shape.weights.tensor.shape) * item_bytes(shape.weights.tensor))
        moved = np.where(pack, size, 0.0)
        found.append(Pass("pack", moved, moved, shared=True))
    for op in staged_ops(shape):
        size = float(math.prod(op.shape) * item_bytes(op.output(0)))
        moved = np.where(block & (op.name not in shape.whole), 0.0, size)
        found.append(Pass(op.name, moved, moved))
    return found


def staged_ops(shape: TileShape) -> list[ComputeOp]:
    """The producers that are stored and not inlined."""
    return [op for op in shape.structure.producers if op.name in shape.staged]


def outside_operations(shape: TileShape, columns: Columns, tile: Tile, block: NDArray[np.bool_]) -> Numbers:
    """Vector instructions outside the reduction: epilogue, stores, and storing producers."""
    tiles = vector_tiles(shape, columns) * tile.vectors
    for axis in shape.spatial:
        tiles = tiles * ceil_div(shape.extents[axis], tile.rows[axis]) * tile.rows[axis]
    tiles = tiles * math.prod(shape.extents[axis] for axis in shape.batch)
    total = tiles * (2 + shape.structure.epilogue_operations)
    passes = reduction_blocks(shape, columns)
    again = tiles * 2 * (passes + 1) + _RESTART * passes * tiles / tile.accumulators
    total = total + np.where(passes > 1, again, 0.0)
    hangs = np.where(_hangs_over(shape, columns), _GUARDED, 0.0)
    for op in staged_ops(shape):
        packing = is_packing(op, shape.structure.anchor)
        vectors, each = (
            copy_operations(op, shape.lanes) if packing else staging_operations(shape, columns, op)
        )
        guard = 0.0 if packing else hangs / math.ceil(op.shape[-1] / shape.lanes)
        mine = vectors * (each + guard) * _repeats(shape, columns, op)
        # A kernel of its own takes as long as its bytes, and what its instructions take beyond those of full vectors.
        least = math.prod(op.shape) / shape.lanes * (2 + operations(op))
        in_blocks = block & (op.name not in shape.whole)
        total = total + np.where(in_blocks, mine, np.maximum(vectors * each - least, 0.0))
    return np.asarray(total)


def _hangs_over(shape: TileShape, columns: Columns) -> NDArray[np.bool_]:
    """Whether a block of rows reaches beyond the output, so that what it stages is tested vector by vector."""
    row_block = column(columns, "row_block", WHOLE)
    if not shape.spatial:
        return np.zeros(len(row_block), dtype=np.bool_)
    name = "outer_rows" if len(shape.spatial) == 2 else "rows"
    rows = np.maximum(row_block, 1.0) * column(columns, name, 1)
    return np.asarray((row_block != WHOLE) & (np.mod(shape.extents[shape.spatial[0]], rows) != 0))


def _repeats(shape: TileShape, columns: Columns, op: ComputeOp) -> Numbers:
    """How many blocks along the vector axis stage the same elements of ``op``."""
    vectors_total = vector_tiles(shape, columns)
    if any(shape.vector in read.axes for read in shape.reads if read.tensor.op is op):
        return np.ones(len(vectors_total))
    vector_block = whole(column(columns, "vector_block", WHOLE), vectors_total)
    return vectors_total / vector_block


def scratch_of(
    shape: TileShape, columns: Columns, block: NDArray[np.bool_]
) -> tuple[Numbers, Numbers] | None:
    """Bytes that a block stages and sums in memory, and how often those are gone through."""
    staged = staged_ops(shape)
    if not staged:
        return sums_of(shape, columns) if "k_block" in columns else None
    vectors_total, rows_total = vector_tiles(shape, columns), row_tiles(shape, columns)
    blocks = vectors_total / whole(column(columns, "vector_block", WHOLE), vectors_total)
    blocks = blocks * rows_total / whole(column(columns, "row_block", WHOLE), rows_total)
    blocks = blocks * math.prod(shape.extents[axis] for axis in shape.batch)
    total = np.zeros(len(blocks))
    for op in (op for op in staged if op.name not in shape.whole):
        elements = math.prod(op.shape) * _repeats(shape, columns, op)
        total = total + elements * item_bytes(op.output(0))
    staged_bytes = np.where(block, total / blocks, 0.0)
    if "k_block" not in columns:
        return staged_bytes, blocks
    sums, times = sums_of(shape, columns)
    return staged_bytes + sums, np.where(sums > 0, times, blocks)


__all__ = ["outside_operations", "passes", "scratch_of", "staged_ops"]
