"""Register tiles by a matrix unit: products of AMX's tiles in place of dot products of vectors, by the knob ``unit``.

A block of one or two tiles by one or two stays in tile registers for the whole depth and window. The unit stores it
where the result belongs, or to scratch memory, from where the epilogue goes on by vectors. Tiles have fewer than 16
rows where that divides the rows of an image, and fewer steps where that divides the depth; else the last block of rows
starts early.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune import te
from autotune.schedule.knob import Columns, Knob
from autotune.te.tensor import ComputeOp
from autotune.te.tiles import BLOCKS, SIDE
from search_spaces.constraint import Constraint
from search_spaces.nest import Numbers
from search_spaces.sketch import Choices
from search_spaces.tile.knobs import MOST_ROWS, column
from search_spaces.tile.shape import LEAST_ROWS, TileShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.schedule.stage import Stage
    from autotune.te.expr import IterVar

VECTORS, MATRIX = "vectors", "matrix"


def unit_knob(shape: TileShape) -> list[Knob]:
    """Return the knob of the unit that multiplies, where there is a choice."""
    if shape.tile is None:
        return []
    return [
        Knob.of("unit", (VECTORS, MATRIX), VECTORS, "what multiplies: vectors, or tiles of a matrix unit")
    ]


def for_units(shape: TileShape, knobs: Sequence[Knob], rules: list[Constraint]) -> list[Constraint]:
    """Return the constraints of register tiles for vectors alone, and those of blocks of tiles, where there is a
    choice."""
    names = [knob.name for knob in knobs]
    if "unit" not in names:
        return rules
    of_vectors = [_by_vectors(rule) if rule.name in ("registers", "body") else rule for rule in rules]
    fixed = {name: value for name, value in _FIXED.items() if name in names}
    sizes = [name for name in ("rows", "outer_rows", "vectors") if name in names]

    def holds(c: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        rows, width = column(c, "rows", 1), column(c, "vectors", 1) * shape.lanes
        outer = column(c, "outer_rows", 1)
        block = _in_tiles(rows) & (outer <= 2) & ((outer == 1) | (rows <= SIDE))
        block &= (rows * outer >= LEAST_ROWS) & (rows > 2) & (width >= SIDE)
        block &= _in_tiles(width) & (shape.extents[shape.vector] % width == 0)
        block &= _whole(shape.extents[shape.spatial[-1]], rows)
        if len(shape.spatial) > 1:
            block &= shape.extents[shape.spatial[0]] >= outer
        for name, value in fixed.items():
            block &= c[name] == value
        return np.asarray(np.where(c["unit"] == MATRIX, block, rows <= MOST_ROWS))

    why = (
        "tiles have up to 16 rows and columns, one or two of them make a block, and it takes the whole depth"
    )
    return [*of_vectors, Constraint("unit", ("unit", *sizes, *fixed), holds, why)]


def _in_tiles(size: Numbers) -> Any:
    """Return whether rows or columns are those of one tile, or of two equal ones."""
    return (size <= SIDE) | ((size <= 2 * SIDE) & (size % 2 == 0))


def _whole(extent: int, rows: Numbers) -> Any:
    """Return whether blocks of rows divide them, or are those of whole tiles: the last one starts early."""
    return (rows <= extent) & ((extent % rows == 0) | np.isin(rows, BLOCKS))


_FIXED = {"unroll": 1, "reduce_order": "window", "tail": "overlap", "pack": True}
"""Knobs that a block of tiles does not read, or that have one value for it."""


def _by_vectors(rule: Constraint) -> Constraint:
    def holds(c: Columns) -> object:
        return (c["unit"] == MATRIX) | np.asarray(rule.holds(c))

    return replace(rule, knobs=("unit", *rule.knobs), holds=holds)


def with_unit(shape: TileShape, config: Choices) -> TileShape:
    """Return the shape whose instruction is that of the unit of ``config``."""
    return replace(shape, dot=shape.tile) if config.get("unit", VECTORS) == MATRIX else shape


def multiply_tiles(stage: Stage, shape: TileShape, axes: dict[str, IterVar], config: Choices) -> None:
    """Let tiles compute the block of a stage that has these data axes; others are outside of it."""
    assert shape.dot is not None
    assert isinstance(stage.op, ComputeOp)
    names = [axis.name for axis in shape.structure.anchor.reduce_axis]
    reduce = dict(zip(names, stage.op.reduce_axis, strict=True))
    sizes = {
        axis: int(config[knob])
        for axis, knob in zip(reversed(shape.spatial), ("rows", "outer_rows"), strict=False)
    }
    sizes[shape.vector] = int(config["vectors"]) * shape.lanes
    parts = {axis: stage.split(axes[axis], factor=size) for axis, size in sizes.items()}
    rows = [axis for axis in shape.spatial if axis == shape.spatial[-1] or sizes[axis] > 1]
    single = [axis for axis in shape.spatial if axis not in rows]
    window = [axis for axis in shape.window if shape.extents[axis] > 1]
    once = [reduce[axis] for axis in shape.window if axis not in window]
    groups, place = stage.split(reduce[shape.main], factor=shape.group)
    outside = [
        *(axes[axis] for axis in shape.batch if axis in axes),
        *(outer for outer, _ in parts.values()),
        *once,
    ]
    outside += [parts[axis][1] for axis in single]
    inside = [parts[axis][1] for axis in (*rows, shape.vector)]
    stage.reorder(*outside, *inside, *(reduce[axis] for axis in window), groups, place)
    depth = [*(shape.extents[axis] for axis in window), shape.extents[shape.main]]
    name = "x".join(
        ".".join(map(str, part)) for part in ([sizes[axis] for axis in rows], [sizes[shape.vector]], depth)
    )
    stage.tensorize(inside[0], te.intrinsic_named(f"{shape.dot.name}_{name}"))


__all__ = ["MATRIX", "VECTORS", "for_units", "multiply_tiles", "unit_knob", "with_unit"]
