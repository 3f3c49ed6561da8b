"""Products of tiles in loop nests: a matrix unit takes a block of rows and columns, a tile's depth a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.schedule.arithmetic import Value
from autotune.schedule.stage import Stage
from autotune.te.dot_products import DOT_PRODUCTS, TILE_PRODUCTS
from autotune.te.expr import IterVar
from autotune.te.instructions import TileMultiply
from search_spaces.nest.loops import Body

_OF_VECTORS = frozenset(each.intrinsic for each in DOT_PRODUCTS if each.rows == 1)
"""Names of dot products of vectors."""
_OF_PAIRS = frozenset(each.intrinsic for each in DOT_PRODUCTS if each.of_pairs)
"""Those of pairs of bfloat16 numbers."""

_CODE = 32.0
"""Instructions of a step, about."""


def tiles_of(stage: Stage) -> TileMultiply | None:
    """Return the product of tiles that computes parts of a stage, if one does."""
    parts = (
        step for call in stage.tensorized.values() for steps in call.instructions.values() for step in steps
    )
    return next((step for step in parts if isinstance(step, TileMultiply) and step.depth[0]), None)


def depth_of(stage: Stage) -> IterVar | None:
    """Return the loop over groups of steps in a product of tiles."""
    return None if tiles_of(stage) is None else stage.leaf_iter_vars[-2]


def group_of(stage: Stage) -> IterVar | None:
    """Return the loop over the neighbouring steps that one dot product of vectors multiplies."""
    by_dots = any(intrinsic.name in _OF_VECTORS for intrinsic in stage.tensorized.values())
    return stage.leaf_iter_vars[-1] if by_dots else None


def groups_of(tiles: TileMultiply | None) -> int:
    """Return the groups of steps in the depth of a tile; one where there are no tiles."""
    return 1 if tiles is None else tiles.depth[1] // TILE_PRODUCTS[tiles.instruction].group


def loops_around(stage: Stage) -> list[IterVar]:
    """Return the loops of a product of tiles that the unit goes through one after another: window and depth."""
    tiles = tiles_of(stage)
    return [] if tiles is None else stage.leaf_iter_vars[-2 - len(tiles.window) : -1]


def depth_first(stage: Stage, loops: Sequence[IterVar]) -> list[IterVar]:
    """Return loops in the order in which a product of tiles goes along them: its depth is around rows and columns."""
    around = loops_around(stage)
    if not around or around[-1] not in loops:
        return list(loops)
    first = stage.leaf_iter_vars.index(min(stage.tensorized, key=stage.leaf_iter_vars.index))
    inside = [loop for loop in stage.leaf_iter_vars[first:] if loop not in around]
    return [*(loop for loop in loops if loop not in inside and loop not in around), *around, *inside]


def multiplies_pairs(stage: Stage) -> bool:
    """Return whether the instructions of a stage are products of pairs of bfloat16 numbers, which have a rate of their
    own."""
    return any(intrinsic.name in _OF_PAIRS for intrinsic in stage.tensorized.values())


def body_of(tiles: TileMultiply, steps: Value) -> Body:
    """Return the body of a step: so many tiles of both factors, loaded line by line, and all products of two of them.

    A sum is added to once a step, and is complete before the next one.
    """
    dot = TILE_PRODUCTS[tiles.instruction]
    none: Any = 0.0 * steps
    (rows, height), (columns, _) = tiles.rows, tiles.columns
    return Body(
        steps=none + steps,
        arithmetic=none,
        loads=none + height * rows + groups_of(tiles) * columns,
        stores=none,
        chains=none + 1.0,
        registers=none,
        instructions=none + _CODE,
        matrix=float(dot.latency),
        tiles=rows * columns * height / dot.rows,
    )


__all__ = ["body_of", "depth_first", "depth_of", "groups_of", "loops_around", "multiplies_pairs", "tiles_of"]
