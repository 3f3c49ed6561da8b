"""Matrix products: register tile, blocks, packed panels of the right operand.

Knobs: rows, vectors, row_block, vector_block, block_order, tile_order, unroll, pack, k_block, kernel,
tail, parallel; ahead (:mod:`search_spaces.tile.prefetch`) where weights of dot products are read once; left
(:mod:`search_spaces.tile.lhs`) where the left operand is several times the second cache; unit
(:mod:`search_spaces.tile.matrix_unit`) where the target multiplies tiles of the operands' types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from search_spaces.space import Space
from search_spaces.tile.block_sums import words_knob
from search_spaces.tile.blocked import k_block_constraint, k_block_knob
from search_spaces.tile.lhs import lhs_constraints, lhs_knob
from search_spaces.tile.library import kernel_constraint, kernel_knob
from search_spaces.tile.prefetch import weights_knob
from search_spaces.tile.tiled import stage_knob, tiled_space

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.target import Target
    from search_spaces.tile.shape import TileShape

FAMILY = "contraction"


def space(workload: AnyWorkload, target: Target, shape: TileShape) -> Space:
    """Return the schedules of a matrix product around ``shape``."""
    if shape.dot is not None:
        knobs = [*pack_knob(shape), *weights_knob(shape, target), *stage_knob(shape)]
        return tiled_space(FAMILY, workload, target, shape, knobs)
    if shape.blocks is not None:
        knobs = [*pack_knob(shape), *stage_knob(shape, ("root",)), *words_knob(shape, target)]
        return tiled_space(FAMILY, workload, target, shape, knobs)
    blocks, kernel = k_block_knob(shape), kernel_knob(shape)
    knobs = [*pack_knob(shape), *blocks, *kernel, *lhs_knob(shape, target), *stage_knob(shape)]
    rules = [k_block_constraint(shape, target)] if blocks else []
    rules += lhs_constraints(shape, knobs)
    if kernel:
        rules.append(kernel_constraint(shape, knobs))
    return tiled_space(FAMILY, workload, target, shape, knobs, rules)


def pack_knob(shape: TileShape) -> list[Knob]:
    """Return the knob of panels: free where the operand is a compile-time constant, else they cost a pass."""
    if shape.weights is None:
        return []
    if shape.blocks is not None:
        known = shape.weights_constant
        return [Knob.of("pack", (known,), known, "lay the weights out in panels")]
    if shape.dot is not None or shape.taps is not None:
        return [Knob.of("pack", (True,), True, "lay the weights out in groups of neighbouring steps")]
    return [Knob.of("pack", (False, True), shape.weights_constant, "lay the weights out in visiting order")]


__all__ = ["FAMILY", "pack_knob", "space"]
