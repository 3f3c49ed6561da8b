"""Elementwise, broadcast and movement regions: one nest, outer loops parallel, the last axis in vectors.

Rows are visited in the order in which the input has them: a core waits for scattered loads, not for scattered
stores. Knobs: vectors (unrolled a step), row_block (rows a tile), parallel, ahead (:mod:`search_spaces.prefetch`),
stream (stores past the caches, where the output is larger than a core's own); those of
:mod:`search_spaces.rows.transposed` where the last axis walks across an input's lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from autotune.schedule.knob import Columns, Knob
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.analysis import ReadForm, read_forms
from search_spaces.constraint import Constraint
from search_spaces.nest import Numbers
from search_spaces.prefetch import far_reads, iterations, prefetch_knob
from search_spaces.rows.flat_recipe import FlatRecipe, sharing_knob, stream, stream_knob
from search_spaces.rows.interleaved import interleaved_space, is_interleaved
from search_spaces.rows.transposed import crossed_lines, transposed_space
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.common import item_bytes
from search_spaces.tile.knobs import ceil_div, column, ints

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "elementwise"
_ROW_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_WHOLE_ROW = 4096  # bytes of a row that are fetched at once


@dataclass(frozen=True)
class RowsRecipe(FlatRecipe):
    """Row by row, in steps of several vectors; inputs of at least ``far`` bytes may be prefetched."""

    far: int = 0
    near: frozenset[str] = frozenset()
    """Names of inputs that may be computed on the way, and are never prefetched."""

    def _output(self, stage: Stage, config: Choices) -> None:
        assert isinstance(stage.op, ComputeOp)
        *outer, last = stage.op.axis
        outer.sort(key=lambda axis: self.input_order.index(axis.name))
        step, inner = stage.split(last, factor=config["vectors"] * self.width, tail="overlap")
        vectors, lanes = stage.split(inner, factor=self.width)
        stage.reorder(*outer, step, vectors, lanes)
        if self._few_rows() or not outer:
            outer.append(step)
        block = stage.fuse(*outer) if len(outer) > 1 else outer[0]
        row = block
        if config["row_block"] != 1:
            block, row = stage.split(block, factor=config["row_block"])
        stage.parallel(block, when=config["parallel"])
        stage.unroll(vectors)
        if self.width > 1:
            stage.vectorize(lanes)
        stream(stage, block, config)
        if "ahead" in config:
            self._prefetch(stage, row, row if step in outer else step, config)

    def _prefetch(self, stage: Stage, row: IterVar, step: IterVar, config: Choices) -> None:
        """Prefetch inputs of later steps, at the end of a row those of the next one; looked-up rows by their index."""
        distance = config["ahead"]
        for read in self.far_reads:
            tensor, item = stage.schedule[read.tensor.op.name].tensor, item_bytes(read.tensor)
            whole = self.columns * item <= _WHOLE_ROW and step is not row
            loop, nbytes = step, config["vectors"] * self.width * item
            if whole and (read.looked_up or step.extent == 1):
                loop, nbytes = row, self.columns * item
            stage.prefetch(tensor, loop, iterations(distance, nbytes), when=distance != 0)

    @cached_property
    def far_reads(self) -> list[ReadForm]:
        """The inputs that may be prefetched: what the output reads itself or through stages inlined into it."""
        outputs = {tensor.op.name for tensor in self.workload.expressions.outputs}
        inlined: dict[str, ComputeOp] = {}
        waiting = [self.output]
        while waiting:
            op = waiting.pop()
            inlined[op.name] = op
            for producer in (tensor.op for tensor in op.input_tensors):
                if (
                    isinstance(producer, ComputeOp)
                    and producer.reduction is None
                    and producer.name not in outputs
                ):
                    waiting.append(producer)
        found = far_reads(list(inlined.values()), self.far, self.output.shape)
        return [read for read in found if read.tensor.op.name not in self.near]

    @cached_property
    def input_order(self) -> list[str]:
        """The output's axes but the last, in the order in which the input that has most of them has its rows."""
        outer = [axis.name for axis in self.output.axis[:-1]]
        orders = [
            [axis for terms in read.dims for axis, _ in terms if axis in outer]
            for op in self.wide_stages
            for read in read_forms(op)
            if isinstance(read.tensor.op, PlaceholderOp)
        ]
        longest: list[str] = max(orders, key=len, default=outer)
        return list(dict.fromkeys([*longest, *outer]))

    def _few_rows(self) -> bool:
        return self.rows < 16

    def tiles(self, columns: Columns) -> Numbers:
        """Return iterations of the fused outer loop [n]."""
        rows = np.full(len(columns["vectors"]), float(self.rows))
        if self._few_rows():
            rows = rows * ceil_div(self.columns, column(columns, "vectors", 1) * self.width)
        return rows


def lanes_of(workload: AnyWorkload, target: Target) -> int:
    """Return elements of the first output in a vector."""
    dtype = workload.expressions.outputs[0].dtype
    return max(1, target.lanes(dtype) if dtype != "bool" else target.lanes("float32"))


def rows_knobs(recipe: RowsRecipe, target: Target) -> tuple[list[Knob], Constraint]:
    """Return the knobs of a nest row by row, and what they must keep to."""
    most = max(1, math.ceil(recipe.columns / recipe.lanes))
    vectors = ints(v for v in (1, 2, 4, 8) if v <= most)
    blocks = ints(b for b in _ROW_BLOCKS if b == 1 or b * 2 <= recipe.rows)
    knobs = [
        Knob.of("vectors", vectors, vectors[min(1, len(vectors) - 1)], "vectors a step"),
        Knob.of("row_block", blocks, 1, "iterations of the fused outer loops a tile"),
        sharing_knob(recipe, target),
    ]
    if not recipe.plain:
        knobs += [prefetch_knob()] if recipe.far_reads else []
        knobs += stream_knob(recipe.output, recipe.workload, target)

    def divides(c: Columns) -> object:
        total, size = recipe.tiles(c), column(c, "row_block", 1)
        return (size == 1) | ((np.mod(total, size) == 0) & (size < total))

    rule = Constraint(
        "row_block", ("row_block", "vectors"), divides, "tiles hold a whole number of iterations"
    )
    return knobs, rule


def space(
    workload: AnyWorkload, target: Target, family: str = FAMILY, near: frozenset[str] = frozenset()
) -> Space:
    """Return the schedules of a region without a tiled anchor, which are legal for every region.

    ``near``: see :class:`RowsRecipe`.
    """
    recipe = RowsRecipe(workload, family, lanes_of(workload, target), target.l2_bytes, near)
    if is_interleaved(recipe):
        return interleaved_space(recipe, target)
    crossed = crossed_lines(recipe)
    if crossed is not None:
        return transposed_space(recipe, target, *crossed)
    knobs, rule = rows_knobs(recipe, target)
    return Space(workload, target, family, tuple(knobs), (rule,), recipe)


__all__ = ["FAMILY", "RowsRecipe", "lanes_of", "rows_knobs", "space"]
