"""Regions that reduce along rows: reductions, softmax and normalisation of the last axes.

The stored stage runs row by row; everything before it is computed inside the row loop, so that a row is read
from memory once. Reductions keep vectors of partial results (rfactor) that are folded at the row's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob, Value
from autotune.te.tensor import ComputeOp
from search_spaces.rows.flat_recipe import stream, stream_knob
from search_spaces.rows.shape import RowShape, line_axis
from search_spaces.rows.vectors import (
    attach,
    fetch_next_row,
    folds_lanes,
    line_of,
    partial_vectors,
    vectorize_row,
)
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import ints, parallel_knob

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

_BLOCKS = (1, 2, 4, 8, 16, 32)
_PARALLEL_WORK = 1 << 14


@dataclass(frozen=True)
class RowRecipe:
    """Schedules and loop nests of row-wise regions."""

    workload: AnyWorkload
    shape: RowShape
    family: str
    lanes: int

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Schedule row by row."""
        output = schedule[self.shape.output.name]
        if config.get("parts", 1) != 1:
            self._split(schedule, config)
            return
        if output.op.name in {op.name for op in self.shape.reductions}:
            self._inline(schedule)
            partial = self._reduce(schedule, output, config, None)
            row = self._rows(output, config)
            if row is not None:
                attach(partial, output, row)
            return
        row = self._rows(output, config)
        assert isinstance(output.op, ComputeOp)
        vectorize_row(output, output.op.axis[self.shape.rank :], self.lanes, config["vectors"])
        for op in reversed(self.shape.stages[:-1]):
            stage = schedule[op.name]
            if op.name in self.shape.wide:
                self._wide(stage, output, row, config)
            elif op.reduction is not None:
                self._reduce(schedule, stage, config, None if row is None else (output, row))
            elif row is None:
                stage.compute_inline()
            else:
                stage.compute_at(output, row)
                stage.set_scope("local")

    def _split(self, schedule: Schedule, config: Choices) -> None:
        """Reduce parts of few long rows in parallel, then the parts."""
        self._inline(schedule)
        stage = schedule[self.shape.reductions[0].name]
        assert isinstance(stage.op, ComputeOp)
        # The steps that follow depend on how long a part is: each number of parts has its own.
        part, _ = stage.split(stage.op.reduce_axis[0], nparts=int(config["parts"]))
        made = schedule.rfactor(stage.tensor, part, factor_axis=0)
        partial = schedule[
            made[0] if isinstance(made, list) else made
        ]  # of a tuple reduction all in one stage
        vectors = self._reduce(schedule, partial, config, None)
        assert isinstance(partial.op, ComputeOp)
        axes = partial.op.axis
        piece = partial.fuse(*axes) if len(axes) > 1 else axes[0]
        partial.parallel(piece, when=config["parallel"])
        attach(vectors, partial, piece)

    def _inline(self, schedule: Schedule) -> None:
        for op in self.shape.stages:
            if op.reduction is None and op is not self.shape.output:
                schedule[op.name].compute_inline()

    def _rows(self, output: Stage, config: Choices) -> IterVar | None:
        """Return the loop over rows inside its parallel blocks; None where there is one row only."""
        assert isinstance(output.op, ComputeOp)
        axes = output.op.axis[: self.shape.rank]
        if not axes:
            return None
        row = output.fuse(*axes) if len(axes) > 1 else axes[0]
        block, row = output.split(row, factor=config["row_block"])
        output.parallel(block, when=config["parallel"])
        stream(output, block, config)
        return row

    def _wide(self, stage: Stage, output: Stage, row: IterVar | None, config: Choices) -> None:
        if config.get("store") == "inline" or stage.op.name not in self.shape.stored_rows:
            stage.compute_inline()
            return
        assert isinstance(stage.op, ComputeOp)
        if row is not None:
            stage.compute_at(output, row)
            stage.set_scope("local")
        steps = vectorize_row(stage, stage.op.axis[self.shape.rank :], self.lanes, config["vectors"])
        if steps is not None and row is not None:
            fetch_next_row(stage, steps)

    def _reduce(
        self, schedule: Schedule, stage: Stage, config: Choices, at: tuple[Stage, IterVar] | None
    ) -> list[Stage]:
        """Return vectors of partial results, folded at the end of the row.

        ``at`` is where the reduction is computed; returns the stages of partial results, to be attached by
        the caller where it is None.
        """
        assert isinstance(stage.op, ComputeOp)
        partial: list[Stage] = []
        if config["method"] == "fold":
            line = line_of(stage)
            width = min(self.lanes, line.extent)
            _, lanes = stage.split(line, factor=width)
            if width > 1:
                stage.vectorize(lanes)
        else:
            partial = partial_vectors(schedule, stage, self.lanes, config["vectors"])
        if at is not None:
            attach([*partial, stage], *at)
        return partial


def _parts(shape: RowShape, target: Target) -> tuple[Value, ...]:
    """Return the numbers of pieces of a row: where there are too few rows for the workers."""
    few = shape.rows < 4 * target.threads and shape.rows * shape.columns >= _PARALLEL_WORK
    reduction = shape.reductions[0]
    if len(shape.reductions) > 1 or not few or line_axis(reduction) is not reduction.reduce_axis[-1]:
        return (1,)
    extent = reduction.reduce_axis[0].extent
    limit = min(16 * target.threads, extent // 2)
    return ints(p for p in (1, 2, 4, 8, 16, 32, 64) if p <= limit and extent % p == 0)


def row_space(family: str, workload: AnyWorkload, target: Target, shape: RowShape) -> Space:
    """Return the row-wise schedules of a reduction, softmax or normalisation."""
    dtype = shape.reductions[0].body[0].dtype
    lanes = max(1, min(target.lanes(dtype), shape.width))
    most = max(1, shape.width // lanes)
    vectors = ints(v for v in (1, 2, 4, 8) if v <= most)
    even = [int(v) for v in vectors if shape.width % (lanes * int(v)) == 0]
    blocks = ints(b for b in _BLOCKS if shape.rows % b == 0 and (b == 1 or b * 2 <= shape.rows))
    wide = shape.rows > 1 and shape.rows * shape.columns >= _PARALLEL_WORK
    methods = ("fold", "partial") if all(folds_lanes(op) for op in shape.reductions) else ("partial",)
    knobs = [
        Knob.of("vectors", vectors, even[-1] if even else vectors[-1], "vectors of partial results"),
        Knob.of("row_block", blocks, 1, "rows a tile"),
        Knob.of("method", methods, "partial", "fold lanes each step, or keep partial results"),
        parallel_knob(target, wide, "share the rows among workers"),
    ]
    parts = _parts(shape, target)
    if len(parts) > 1:
        knobs.append(Knob.of("parts", parts, parts[-1], "pieces of a row reduced in parallel"))
    if shape.stored_rows:
        knobs.append(Knob.of("store", ("row", "inline"), "row", "keep wide stages of a row, or recompute"))
    if shape.wide_output:
        knobs += stream_knob(shape.output, workload, target)
    return Space(workload, target, family, tuple(knobs), (), RowRecipe(workload, shape, family, lanes))


__all__ = ["RowRecipe", "row_space"]
