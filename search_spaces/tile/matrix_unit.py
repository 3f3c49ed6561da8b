"""Register tiles by a matrix unit: products of AMX's tiles in place of dot products of vectors, by the knob ``unit``.

A block of 16 or 32 rows by 16 or 32 columns stays in tile registers for the whole depth. The unit stores it to
scratch memory, from where the epilogue goes on by vectors. Rows that a block does not divide are computed twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from autotune import te
from autotune.schedule.knob import Columns, Knob
from autotune.te.tiles import BLOCKS
from search_spaces.constraint import Constraint
from search_spaces.sketch import Choices
from search_spaces.tile.knobs import column
from search_spaces.tile.shape import TileShape

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

    def holds(c: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        width = column(c, "vectors", 1) * shape.lanes
        block = np.isin(c["rows"], BLOCKS) & np.isin(width, BLOCKS)
        block &= shape.extents[shape.vector] % np.maximum(width, 1) == 0
        for name, value in fixed.items():
            block &= c[name] == value
        return np.asarray(np.where(c["unit"] == MATRIX, block, column(c, "rows", 1) < BLOCKS[0]))

    why = "tiles have 16 rows and columns, one or two of them make a block, and it takes the whole depth"
    return [*of_vectors, Constraint("unit", ("unit", "rows", "vectors", *fixed), holds, why)]


_FIXED = {"outer_rows": 1, "unroll": 1, "tail": "overlap", "pack": True}
"""Knobs that a block of tiles does not read, or that have one value for it."""


def _by_vectors(rule: Constraint) -> Constraint:
    def holds(c: Columns) -> object:
        return (c["unit"] == MATRIX) | np.asarray(rule.holds(c))

    return replace(rule, knobs=("unit", *rule.knobs), holds=holds)


def with_unit(shape: TileShape, config: Choices) -> TileShape:
    """Return the shape whose instruction is that of the unit of ``config``."""
    return replace(shape, dot=shape.tile) if config.get("unit", VECTORS) == MATRIX else shape


def multiply_tiles(
    stage: Stage, shape: TileShape, axes: dict[str, IterVar], reduce: dict[str, IterVar], config: Choices
) -> None:
    """Let tiles compute the block of a stage with these data and reduction axes."""
    assert shape.dot is not None
    outside = [axes[axis] for axis in (*shape.batch, *shape.spatial[:-1])] + [
        reduce[axis] for axis in shape.window
    ]
    size = int(config["rows"]), int(config["vectors"]) * shape.lanes, shape.extents[shape.main]
    row_blocks, rows = stage.split(axes[shape.spatial[-1]], factor=size[0])
    column_blocks, columns = stage.split(axes[shape.vector], factor=size[1])
    groups, place = stage.split(reduce[shape.main], factor=shape.group)
    stage.reorder(*outside, row_blocks, column_blocks, rows, columns, groups, place)
    stage.tensorize(rows, te.intrinsic_named(f"{shape.dot.name}_{size[0]}x{size[1]}x{size[2]}"))


__all__ = ["MATRIX", "VECTORS", "for_units", "multiply_tiles", "unit_knob", "with_unit"]
