"""The loop nests of attention candidates, whole populations at once.

The nest is that of the product with the values; scores, exponentials and copies are vector instructions
beside it, and the scores of a block of rows are scratch memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Columns
from autotune.target import ITEM_BYTES
from search_spaces.attention_shape import AttentionShape
from search_spaces.nest import Access, Body, Loop, LoopNest, Numbers, Pass
from search_spaces.tile_common import equals, flag, row_bytes
from search_spaces.tile_knobs import ceil_div, column

# Vector instructions: an exponential with its subtraction, maximum and sum; folding the lanes of a row twice;
# gathering a vector of transposed keys, for each lane; and joining a vector of a block to what is before it.
_SOFTMAX, _FOLD, _GATHER, _MERGE = 32.0, 60.0, 1.2, 45.0
# Share of the loads of a tile that its arithmetic does not hide, and what a step of a loop costs.
_LOADS, _STEP = 0.4, 3.0


def attention_nest(shape: AttentionShape, family: str, flops: int, columns: Columns) -> LoopNest:
    """The loop nests of the candidates in ``columns``."""
    heads = equals(columns, "share", "heads")
    copied = flag(columns, "copy_values")
    rows, vectors, unroll = (column(columns, name, 1) for name in ("rows", "vectors", "unroll"))
    row_block = column(columns, "row_block", 1)
    blocks = ceil_div(shape.m, rows * row_block)
    panels = ceil_div(shape.e, vectors * shape.lanes)
    accumulators = rows * vectors
    repeats = float(shape.heads * shape.blocks) * blocks * row_block * panels
    item = ITEM_BYTES[shape.structure.anchor.body[0].dtype]
    # Scores and exponentials of a block of rows, and half as much for the keys and values that stream by.
    scratch = 3.0 * rows * row_block * shape.block * item
    return LoopNest(
        family=family,
        lanes=shape.lanes,
        flops=float(flops),
        extents=_extents(shape),
        loops=_loops(shape, columns, heads, panels, blocks),
        accesses=tuple(_accesses(shape, item, copied)),
        body=Body(
            steps=repeats * ceil_div(shape.block, unroll),
            arithmetic=accumulators * unroll,
            loads=(rows + vectors) * unroll,
            stores=np.zeros(len(rows)),
            chains=accumulators,
            registers=accumulators + vectors + 1,
            instructions=(accumulators + rows + vectors) * unroll,
        ),
        passes=_passes(shape, item, heads, copied),
        tail_operations=_outside(shape, columns, rows * row_block, blocks)
        + repeats * accumulators * (_MERGE if shape.blocked else 2.0 + shape.finish),
        serial=~flag(columns, "parallel"),
        scratch=(scratch, shape.heads * shape.blocks * blocks),
        tags={
            "rows": rows,
            "vectors": vectors,
            "unroll": unroll,
            "packed": copied.astype(np.float64),
            "inline": heads.astype(np.float64),
            "waste": rows * row_block * blocks / shape.m,
        },
    )


def _extents(shape: AttentionShape) -> dict[str, int]:
    """Axes: leading ones, blocks of rows and rows in one, blocks of keys and keys in one, columns of values."""
    lead = {f"b{number}": extent for number, extent in enumerate(shape.lead)}
    return {**lead, "block": shape.m, "i": shape.m, "keys": shape.blocks, "j": shape.block, "c": shape.e}


def _loops(
    shape: AttentionShape, columns: Columns, heads: NDArray[np.bool_], panels: Numbers, blocks: Numbers
) -> tuple[Loop, ...]:
    unroll, one = column(columns, "unroll", 1), np.ones(len(panels))
    return (
        *(Loop(f"b{number}", one * extent, "parallel") for number, extent in enumerate(shape.lead)),
        Loop("block", np.where(heads, 1.0, blocks), "parallel"),
        Loop("block", np.where(heads, blocks, 1.0)),
        Loop("keys", one * shape.blocks),
        Loop("c", panels),
        Loop("i", column(columns, "row_block", 1)),
        Loop("j", ceil_div(shape.block, unroll)),
        Loop("j", unroll, "unrolled"),
        Loop("i", column(columns, "rows", 1), "unrolled"),
        Loop("c", column(columns, "vectors", 1) * shape.lanes, "vectorized"),
    )


def _accesses(shape: AttentionShape, item: int, copied: NDArray[np.bool_]) -> list[Access]:
    """Keys and values; queries and result are touched once whatever the candidate."""
    lead = tuple(((f"b{number}", 1),) for number in range(len(shape.lead)))
    (values,) = (t for t in shape.structure.program.inputs if t.name == shape.values)
    return [
        Access(
            "keys",
            item * shape.d * shape.block,
            (*lead, (("keys", 1),)),
            (*shape.lead, shape.blocks),
            outside=frozenset("cij"),
        ),
        Access(
            values.name,
            item,
            (*lead, (("keys", shape.block), ("j", 1)), (("c", 1),)),
            values.shape,
            panel=copied,
            row_bytes=row_bytes(values, shape.structure.program.strides),
        ),
    ]


def _passes(
    shape: AttentionShape, item: int, heads: NDArray[np.bool_], copied: NDArray[np.bool_]
) -> tuple[Pass, ...]:
    """Kernels of their own where the operands of all heads are prepared before the main loops."""
    size = float(shape.heads * shape.n * item)
    keys = np.where(heads, 0.0, size * shape.d)
    values = np.where(copied & ~heads, size * shape.e, 0.0)
    return Pass("keys", keys, keys), Pass("values", values, values)


def _outside(shape: AttentionShape, columns: Columns, block_rows: Numbers, blocks: Numbers) -> Numbers:
    """Vector instructions for scores, softmax and the copies of operands."""
    rows, vectors, unroll = (column(columns, f"score_{name}", 1) for name in ("rows", "vectors", "unroll"))
    tile = rows * vectors
    steps = ceil_div(shape.d, unroll)
    product = steps * (unroll * (tile + _LOADS * (rows + vectors)) + _STEP)
    one_tile = product + tile * (2.0 + shape.mask_operations)
    tiles = ceil_div(block_rows, rows) * ceil_div(shape.block, vectors * shape.lanes)
    row = shape.block / shape.lanes * _SOFTMAX + _FOLD
    per_block = shape.blocks * (tiles * one_tile + block_rows * row)
    keys = shape.heads * shape.n * shape.d * _GATHER
    copies = np.where(flag(columns, "copy_values"), shape.heads * shape.n * shape.e / shape.lanes * 2.0, 0.0)
    return np.asarray(shape.heads * blocks * per_block + keys + copies)


__all__ = ["attention_nest"]
