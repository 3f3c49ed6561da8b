"""Knobs and constraints that all register-tiled families share."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from autotune.schedule.knob import Columns, Knob, Value
from autotune.target import Target
from autotune.te.tiles import BLOCKS, SIDE
from search_spaces.constraint import Constraint
from search_spaces.nest import Numbers
from search_spaces.tile.shape import TileShape

WHOLE = 0
"""Value of a block knob that stands for the whole extent."""

_BLOCKS = (WHOLE, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MOST_ROWS = 14
_MAX_BODY = 192
_SMALL_WORK = 1 << 15


def ints(values: Iterable[int]) -> tuple[Value, ...]:
    """Return the distinct ints in ascending order."""
    return tuple(sorted(set(values)))


def ceil_div(a: Numbers | float, b: Numbers | int) -> Numbers:
    """Return the rounded-up quotient, as floats."""
    return np.asarray(np.ceil(np.asarray(a, dtype=np.float64) / b))


def column(columns: Columns, name: str, default: int) -> Numbers:
    """Return a knob's values as floats [n]; ``default`` for a knob that this space does not have."""
    if name in columns:
        return columns[name].astype(np.float64)
    n = len(next(iter(columns.values())))
    return np.full(n, float(default))


def tile_knobs(shape: TileShape, target: Target) -> list[Knob]:
    """Register tile, blocks, loop order, unrolling, tails and parallelism."""
    knobs = [*_register_knobs(shape, target), *_block_knobs(shape)]
    steps = shape.steps if shape.taps is None else 1  # one instruction takes all taps of a row
    unrolls = ints(u for u in (1, 2, 4, steps if steps <= 8 else 1) if u <= steps)
    knobs.append(
        Knob.of("unroll", unrolls, unrolls[min(1, len(unrolls) - 1)], "steps of the innermost reduction")
    )
    if math.prod(shape.extents[axis] for axis in shape.window) > 1:
        orders = ("window", "channel") if shape.taps is None else ("window",)
        knobs.append(Knob.of("reduce_order", orders, "window", "which reduce loops are outermost"))
    knobs.append(Knob.of("tail", ("overlap", "peel"), "overlap", "what a tile does that does not divide"))
    wide = shape.elements * shape.reduction >= _SMALL_WORK
    knobs.append(parallel_knob(target, wide, "share the blocks among workers"))
    return knobs


def parallel_knob(target: Target, wide: bool, help: str) -> Knob:
    """Return whether workers share a kernel; one worker alone runs it as several would."""
    return Knob.of("parallel", (False, True) if target.threads > 1 else (wide,), wide, help)


def usual_rows(target: Target) -> int:
    """Return rows of a register tile of two vectors a row whose sums, operands and reads to come fit the registers."""
    return 6 if target.registers < 32 else 8


def _register_knobs(shape: TileShape, target: Target) -> list[Knob]:
    rows = shape.extents[shape.spatial[-1]] if shape.spatial else 1
    vectors = math.ceil(shape.extents[shape.vector] / shape.lanes)
    blocks = _blocks_of_tiles(rows) if shape.tile is not None else ()
    row_values = ints((*range(1, min(rows, MOST_ROWS) + 1), *blocks))
    # Of sums over blocks of four vectors those of all blocks fit the registers too.
    widths = (1, 2, 3, 4, 6, 8) if shape.blocks is None else (1, 2, 4)
    vector_values = ints(v for v in widths if v <= vectors)
    knobs = [
        Knob.of("rows", row_values, min(rows, usual_rows(target)), "rows of the register tile"),
        Knob.of("vectors", vector_values, 2 if vectors >= 2 else 1, "vectors a row of the tile"),
    ]
    if len(shape.spatial) == 2:
        outer = ints(v for v in (1, 2, 3, 4) if v <= shape.extents[shape.spatial[0]])
        knobs.append(Knob.of("outer_rows", outer, 1, "rows of the tile in the outer spatial axis"))
    return knobs


def _blocks_of_tiles(rows: int) -> list[int]:
    """Return rows of blocks of tiles beyond those of vectors: of whole tiles, or as divide the rows of an image."""
    sizes = range(MOST_ROWS + 1, 2 * SIDE + 1)
    return [n for n in sizes if n <= rows and (n in BLOCKS or (rows % n == 0 and (n <= SIDE or n % 2 == 0)))]


def _block_knobs(shape: TileShape) -> list[Knob]:
    first = shape.extents[shape.spatial[0]] if shape.spatial else 1
    vectors = math.ceil(shape.extents[shape.vector] / shape.lanes)
    row_blocks = ints(b for b in _BLOCKS if b <= max(1, first // 2) or b == WHOLE)
    vector_blocks = ints(b for b in _BLOCKS if b <= max(1, vectors // 2) or b == WHOLE)
    knobs = [
        _block_knob("row_block", row_blocks, 1, "register tiles a block in the first spatial axis (0: all)"),
        _block_knob(
            "vector_block", vector_blocks, WHOLE, "register tiles a block in the vector axis (0: all)"
        ),
    ]
    if first > 1 and vectors > 1:
        knobs += [
            Knob.of("block_order", ("rows", "vector"), "rows", "which block loop is outermost"),
            Knob.of("tile_order", ("rows", "vector"), "vector", "which tile loop in a block is outermost"),
        ]
    return knobs


def _block_knob(name: str, values: tuple[Value, ...], default: int, help: str) -> Knob:
    return Knob.of(name, values, default, help, zero_is_all=True)


def tile_constraints(shape: TileShape, target: Target) -> list[Constraint]:
    """Return the constraints that keep a tile in registers, blocks dividing, and equal candidates from repeating."""
    two = len(shape.spatial) == 2
    registers = ("rows", "vectors", "outer_rows") if two else ("rows", "vectors")
    row_reads = ("row_block", "outer_rows") if two else ("row_block", "rows")
    return [
        Constraint(
            "registers",
            registers,
            lambda c: _registers(shape, c) <= target.registers,
            "the accumulators would spill",
        ),
        Constraint(
            "body",
            (*registers, "unroll"),
            lambda c: _tile(c) * shape.written * column(c, "unroll", 1) <= _MAX_BODY,
            "the unrolled body would not fit the instruction cache",
        ),
        Constraint(
            "row_block",
            row_reads,
            lambda c: _divides(c["row_block"], row_tiles(shape, c)),
            "a block holds a whole number of register tiles, and `all` is written 0",
        ),
        Constraint(
            "vector_block",
            ("vector_block", "vectors"),
            lambda c: _divides(c["vector_block"], vector_tiles(shape, c)),
            "a block holds a whole number of register tiles, and `all` is written 0",
        ),
        Constraint(
            "tail",
            (*registers, "tail"),
            lambda c: (c["tail"] == "overlap") | ~_all_divide(shape, c),
            "without a tail there is nothing to choose",
        ),
    ]


def row_tiles(shape: TileShape, columns: Columns) -> Numbers:
    """Register tiles along the first spatial axis [n]."""
    if not shape.spatial:
        return column(columns, "rows", 1)
    name = "outer_rows" if len(shape.spatial) == 2 else "rows"
    return ceil_div(shape.extents[shape.spatial[0]], column(columns, name, 1))


def vector_tiles(shape: TileShape, columns: Columns) -> Numbers:
    """Register tiles along the vector axis [n]."""
    return ceil_div(shape.extents[shape.vector], column(columns, "vectors", 1) * shape.lanes)


def _tile(c: Columns) -> Numbers:
    return column(c, "rows", 1) * column(c, "outer_rows", 1) * column(c, "vectors", 1)


def _registers(shape: TileShape, c: Columns) -> Numbers:
    # Words of weights are unpacked one vector after the other.
    return _tile(c) * shape.planes + (column(c, "vectors", 1) if shape.blocks is None else 2) + 1


def _divides(block: object, tiles: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    size = np.asarray(block, dtype=np.float64)
    proper = (size < tiles) & (np.mod(tiles, np.maximum(size, 1)) == 0)
    return np.asarray((size == WHOLE) | proper)


def _all_divide(shape: TileShape, c: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    result = np.mod(shape.extents[shape.vector], column(c, "vectors", 1) * shape.lanes) == 0
    for axis, name in zip(reversed(shape.spatial), ("rows", "outer_rows"), strict=False):
        result = result & (np.mod(shape.extents[axis], column(c, name, 1)) == 0)
    return np.asarray(result)


__all__ = [
    "MOST_ROWS",
    "WHOLE",
    "ceil_div",
    "column",
    "ints",
    "parallel_knob",
    "row_tiles",
    "tile_constraints",
    "tile_knobs",
    "usual_rows",
    "vector_tiles",
]
