"""Attention: two register tiles around a softmax, by blocks of query rows.

Knobs: rows, vectors, unroll (product with the values), score_rows, score_vectors, score_unroll (product with
the keys), row_block, share (what the workers share: heads, or blocks of rows), copy_values, parallel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.schedule.knob import Columns, Knob
from search_spaces.constraint import Constraint
from search_spaces.families import elementwise
from search_spaces.families.attention_schedule import schedule_attention
from search_spaces.families.attention_shape import AttentionShape, attention_shape
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import column, ints, parallel_knob

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.target import Target

FAMILY = "attention"
_MAX_ROWS = 14
_MAX_BODY = 192
_ROW_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_SMALL_WORK = 1 << 15


@dataclass(frozen=True)
class AttentionRecipe:
    """Schedules of an attention, from which its loop nests follow."""

    shape: AttentionShape

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Apply the tiles of ``config``."""
        schedule_attention(schedule, self.shape, config)


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of an attention; plain loops where there is nothing to compute."""
    shape = attention_shape(workload, target)
    if shape is None:
        return elementwise.space(workload, target, FAMILY)
    return Space(
        workload=workload,
        target=target,
        family=FAMILY,
        knobs=tuple(_knobs(workload, shape, target)),
        constraints=tuple(_constraints(shape, target)),
        recipe=AttentionRecipe(shape),
    )


def _knobs(workload: Workload, shape: AttentionShape, target: Target) -> list[Knob]:
    few = min(shape.m, 4 if target.registers < 32 else 6)
    rows = ints(range(1, min(shape.m, _MAX_ROWS) + 1))
    knobs = [
        Knob.of("rows", rows, few, "rows of the tile over the values"),
        _vectors("vectors", shape.e, shape, "vectors a row of the tile over the values"),
        _unroll("unroll", shape.block, "keys a step of the product with the values"),
        Knob.of("score_rows", rows, few, "rows of the tile of scores"),
        _vectors("score_vectors", shape.block, shape, "vectors a row of the tile of scores"),
        _unroll("score_unroll", shape.d, "steps of the product with the keys"),
    ]
    blocks = ints(b for b in _ROW_BLOCKS if b <= shape.m)
    knobs.append(Knob.of("row_block", blocks, 1, "tiles of rows whose scores are kept at a time"))
    if shape.lead:
        help = "what the workers share: heads, or blocks of rows of all heads"
        knobs.append(Knob.of("share", ("blocks", "heads"), "blocks", help))
    wide = workload.flops >= _SMALL_WORK
    copied = (False,) if shape.once else (False, True)
    return [
        *knobs,
        Knob.of("copy_values", copied, False, "copy the values to dense rows"),
        parallel_knob(target, wide, "share the work among workers"),
    ]


def _vectors(name: str, extent: int, shape: AttentionShape, help: str) -> Knob:
    vectors = math.ceil(extent / shape.lanes)
    return Knob.of(name, ints(v for v in (1, 2, 3, 4) if v <= vectors), min(vectors, 2), help)


def _unroll(name: str, extent: int, help: str) -> Knob:
    values = ints(u for u in (1, 2, 4) if u <= extent)
    return Knob.of(name, values, values[-1], help)


def _constraints(shape: AttentionShape, target: Target) -> list[Constraint]:
    def fits(prefix: str) -> Constraint:
        rows, vectors, unroll = f"{prefix}rows", f"{prefix}vectors", f"{prefix}unroll"

        def holds(c: Columns) -> object:
            tile = column(c, rows, 1) * column(c, vectors, 1)
            few = tile + column(c, vectors, 1) + 1 <= target.registers
            return few & (tile * column(c, unroll, 1) <= _MAX_BODY)

        help = "the accumulators would spill, or the unrolled body would not fit the instruction cache"
        return Constraint(f"{prefix}registers", (rows, vectors, unroll), holds, help)

    def available(c: Columns) -> object:
        return column(c, "rows", 1) * column(c, "row_block", 1) <= shape.m

    def enough(c: Columns) -> object:
        return column(c, "score_rows", 1) <= column(c, "rows", 1) * column(c, "row_block", 1)

    return [
        fits(""),
        fits("score_"),
        Constraint("row_block", ("rows", "row_block"), available, "a block has more rows than there are"),
        Constraint(
            "score_rows",
            ("rows", "row_block", "score_rows"),
            enough,
            "a tile of scores would have more rows than the block",
        ),
    ]


__all__ = ["FAMILY", "AttentionRecipe", "space"]
