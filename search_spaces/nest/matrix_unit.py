"""Products of tiles in loop nests: a matrix unit takes a block of rows and columns, a tile's depth a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.schedule.arithmetic import Value
from autotune.schedule.stage import Stage
from autotune.target import Target
from autotune.te.dot_products import TILE_PRODUCTS
from autotune.te.expr import IterVar
from autotune.te.instructions import TileMultiply
from search_spaces.nest.loops import Body

DEPTH = 16
"""Groups of steps of a reduction that a tile has."""

_PAIR_CYCLES = 2.0
"""Of vdpbf16ps on cores with a matrix unit: a Xeon with AMX takes 0.54 ns for one, and 0.13 for a multiply-add."""

_CODE = 32.0
"""Instructions of a step, about."""


def tiles_of(stage: Stage) -> TileMultiply | None:
    """Return the product of tiles that computes parts of a stage, if one does."""
    parts = (
        step for call in stage.tensorized.values() for steps in call.instructions.values() for step in steps
    )
    return next((step for step in parts if isinstance(step, TileMultiply) and step.depth), None)


def depth_of(stage: Stage) -> IterVar | None:
    """Return the loop over groups of steps in a product of tiles."""
    return None if tiles_of(stage) is None else stage.leaf_iter_vars[-2]


def depth_first(stage: Stage, loops: Sequence[IterVar]) -> list[IterVar]:
    """Return loops in the order in which a product of tiles goes along them: its depth is around rows and columns."""
    depth = depth_of(stage)
    if depth is None or depth not in loops:
        return list(loops)
    first = loops.index(depth) - 2
    return [*loops[:first], depth, *loops[first : first + 2], *loops[first + 3 :]]


def pair_cycles(stage: Stage, target: Target, elements: Value) -> Value:
    """Return the cycles of ``elements`` multiply-adds of vectors, as far as a unit of its own bounds them: products of
    pairs of bfloat16 numbers on cores that have tiles for these."""
    pairs = any(intrinsic.name.startswith("vdpbf16ps") for intrinsic in stage.tensorized.values())
    return elements * (_PAIR_CYCLES / 2 if pairs and "amx-bf16" in target.features else 0.0)


def body_of(tiles: TileMultiply, steps: Value) -> Body:
    """Return the body of a step: so many tiles of both factors, loaded line by line, and all products of two of them.

    A sum is added to once a step, and is complete before the next one.
    """
    dot = TILE_PRODUCTS[tiles.instruction]
    none: Any = 0.0 * steps
    rows, columns = tiles.rows // dot.rows, tiles.columns // dot.lanes
    return Body(
        steps=none + steps,
        arithmetic=none,
        loads=none + dot.rows * (rows + columns),
        stores=none,
        chains=none + 1.0,
        registers=none,
        instructions=none + _CODE,
        matrix=float(max(dot.cycles * rows * columns, dot.latency)),
    )


__all__ = ["DEPTH", "body_of", "depth_first", "depth_of", "pair_cycles", "tiles_of"]
