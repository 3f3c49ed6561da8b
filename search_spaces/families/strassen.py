"""The sums of Strassen's algorithm: all that a vector of each quarter is part of, one after the other.

So every element is read once. The last sums go on with what follows. Knobs: vectors (of a quarter at a time), parallel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import Structure, structure
from search_spaces.families.plain import schedule_plain
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import ints, parallel_knob

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "strassen"
_PARALLEL_BYTES = 1 << 16


@dataclass(frozen=True)
class StrassenRecipe:
    """The sums of quarters of an operand, or of products with what follows them."""

    workload: Workload
    is_input: bool
    width: int

    @cached_property
    def shape(self) -> Structure:
        """The stages around the sums."""
        return structure(self.workload.expressions)

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Schedule one nest, by rows of a quarter and steps of vectors."""
        plan = self.shape
        for op in (*plan.producers, *plan.side, *plan.epilogue):
            if op.name != plan.stored.name:
                schedule[op.name].compute_inline()
        if plan.stored is not plan.anchor:
            schedule[plan.anchor.name].compute_inline()
        stage = schedule[plan.stored.name]
        rows, which, column = self._quarters(stage)
        steps, inner = stage.split(column, factor=config["vectors"] * self.width, tail="overlap")
        vector, lanes = stage.split(inner, factor=self.width)
        stage.reorder(*rows, steps, vector, *which, lanes)
        stage.parallel(stage.fuse(*rows) if len(rows) > 1 else rows[0], when=config["parallel"])
        for loop in (vector, *which):
            stage.unroll(loop)
        stage.vectorize(lanes)
        for op in plan.rest:
            schedule_plain(schedule[op.name], self.width, inline=True)

    def _quarters(self, stage: Stage) -> tuple[list[IterVar], list[IterVar], IterVar]:
        """Return the loops over rows of a quarter, those over sums or quarters, and that over columns of a quarter."""
        assert isinstance(stage.op, ComputeOp)
        if self.is_input:
            which, *rows, column = stage.op.axis
            return rows, [which], column
        *rows, row, column = stage.op.axis
        below, row = stage.split(row, factor=row.extent // 2)
        beside, column = stage.split(column, factor=column.extent // 2)
        return [*rows, row], [below, beside], column


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of sums with what follows them."""
    anchor = workload.region.anchor
    assert anchor is not None
    is_input = anchor.op == "StrassenInput"
    graph = workload.region.graph
    columns = graph.type_of(anchor.outputs[0] if is_input else anchor.inputs[0]).shape[-1]
    width = min(target.lanes("float32"), columns)
    most = math.ceil(columns / width)
    vectors = ints(v for v in (1, 2, 4, 8) if v <= most)
    wide = workload.bytes >= _PARALLEL_BYTES
    knobs = (
        Knob.of("vectors", vectors, vectors[0], "vectors of a quarter in a step"),
        parallel_knob(target, wide, "share the rows among workers"),
    )
    return Space(workload, target, FAMILY, knobs, (), StrassenRecipe(workload, is_input, width))


__all__ = ["FAMILY", "StrassenRecipe", "space"]
