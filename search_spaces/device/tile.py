"""Products and convolutions on a device: a tile of the result a group, a tile of registers a thread.

Threads of a row of a group compute neighbouring columns, so that they read and write neighbours in memory. With
``stage`` the group copies what it reads of both operands for ``steps`` steps of the reduction into shared memory
first, all threads together; ``pad`` puts an unused element behind each row there, so that a column of it lies in
different banks (V. Volkov and J. Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008).

Knobs: items_x and items_y (threads of a group along columns and rows), columns and rows (of a thread; its columns are
a vector), steps (of the reduction, unrolled), stage, pad.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune import te
from autotune.schedule.knob import Columns, Knob
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import ReadForm
from search_spaces.constraint import Constraint
from search_spaces.device.grid import place
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.common import item_bytes
from search_spaces.tile.knobs import column
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "device_tile"
_GRID_ITEMS = 64
_MOST_SUMS = 64
"""Accumulators of a thread."""
_STAGED_BYTES = 24 << 10
"""Of shared memory that a group takes: several groups of a device then run beside one another."""


@dataclass(frozen=True)
class DeviceTileRecipe:
    """The schedules of an anchor with a tile a group."""

    shape: TileShape

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Keep the anchor's sums in registers, and compute what is elementwise before and after it on the way."""
        plan = self.shape.structure
        for op in (*plan.side, *plan.epilogue, *plan.producers):
            if op.name != plan.stored.name:
                place(schedule[op.name], _GRID_ITEMS)
        if plan.stored is plan.anchor:
            sums = schedule[schedule.cache_write(schedule[plan.anchor.name].tensor, "local")]
        else:
            sums = schedule[plan.anchor.name]
            sums.set_scope("local")
        stored = schedule[plan.stored.name]
        sums.compute_at(stored, self._groups(stored, config))
        outer = self._reduction(sums, config)
        if config.get("stage", False):
            for read in self.shape.reads:
                self._stage(schedule, sums, outer, read, config)
        for op in plan.rest:
            place(schedule[op.name], _GRID_ITEMS)

    def _axes(self, stage: Stage) -> dict[str, IterVar]:
        assert isinstance(stage.op, ComputeOp)
        names = [axis.name for axis in self.shape.structure.anchor.axis]
        return dict(zip(names, stage.op.axis, strict=True))

    def _groups(self, stage: Stage, config: Choices) -> IterVar:
        """Return groups, threads and what a thread stores; returns the innermost loop over threads."""
        axes, row = self._axes(stage), row_axis(self.shape)
        x, columns = stage.split(axes[self.shape.vector], factor=config["columns"], tail="guard")
        blocks, x = stage.split(x, factor=config["items_x"], tail="guard")
        outer = [axis for name, axis in axes.items() if name not in (row, self.shape.vector)]
        threads, rows = [x], list[Any]()
        if row is not None:
            y, inner = stage.split(axes[row], factor=config["rows"], tail="guard")
            more, y = stage.split(y, factor=config["items_y"], tail="guard")
            outer, threads, rows = [*outer, more], [y, x], [inner]
        stage.reorder(*outer, blocks, *threads, *rows, columns)
        if outer:
            stage.bind(stage.fuse(*outer) if len(outer) > 1 else outer[0], te.thread_axis("blockIdx.x"))
        stage.bind(blocks, te.thread_axis("blockIdx.y"))
        for axis, tag in zip(reversed(threads), ("threadIdx.x", "threadIdx.y"), strict=False):
            stage.bind(axis, te.thread_axis(tag))
        for loop in rows:
            stage.unroll(loop)
        stage.vectorize(columns)
        return x

    def _reduction(self, stage: Stage, config: Choices) -> IterVar:
        """Return steps of the reduction around the sums; returns the loop whose iterations are staged."""
        assert isinstance(stage.op, ComputeOp)
        axes, row = self._axes(stage), row_axis(self.shape)
        names = [axis.name for axis in self.shape.structure.anchor.reduce_axis]
        reduce = dict(zip(names, stage.op.reduce_axis, strict=True))
        steps, step = stage.split(reduce[self.shape.main], factor=config["steps"])
        window = [reduce[name] for name in self.shape.window]
        around = [axis for name, axis in axes.items() if name not in (row, self.shape.vector)]
        rows = [] if row is None else [axes[row]]
        columns = axes[self.shape.vector]
        stage.reorder(*around, *window, steps, step, *rows, columns)
        for loop in (step, *rows):
            stage.unroll(loop)
        stage.vectorize(columns)
        return steps

    def _stage(
        self, schedule: Schedule, sums: Stage, steps: IterVar, read: ReadForm, config: Choices
    ) -> None:
        """Copy what a group reads of an operand into shared memory, a part each thread."""
        made = schedule.cache_read(schedule[read.tensor.op.name].tensor, "shared", [sums])
        copy = schedule[made]
        copy.compute_at(sums, steps)
        assert isinstance(copy.op, ComputeOp)
        axes = copy.op.axis
        if len(axes) > 1:
            copy.storage_align(axes[-2], 32, config["pad"])
        whole = copy.fuse(*axes) if len(axes) > 1 else axes[0]
        rest, x = copy.split(whole, factor=config["items_x"], tail="guard")
        if row_axis(self.shape) is not None:
            rest, y = copy.split(rest, factor=config["items_y"], tail="guard")
            copy.bind(y, te.thread_axis("threadIdx.y"))
        copy.bind(x, te.thread_axis("threadIdx.x"))


def row_axis(shape: TileShape) -> str | None:
    """Return the axis that a thread computes several steps of beside its columns."""
    return shape.spatial[-1] if shape.spatial else None


def device_tile_space(workload: Workload, target: Target, shape: TileShape) -> Space:
    """Return the schedules of an anchor with a tile a group."""
    width = shape.extents[shape.vector]
    row = row_axis(shape)
    height = 1 if row is None else shape.extents[row]
    columns = _divisors(width, (1, 2, 4, 8, 16))
    rows = _divisors(height, (1, 2, 3, 4, 5, 6, 7, 8))
    most = target.group_items
    across = tuple(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most)
    along = tuple(n for n in (1, 2, 4, 8, 16) if n <= most and n <= max(1, height))
    steps = _divisors(shape.extents[shape.main], (1, 2, 4, 8, 16))
    wide = max(c for c in columns if c <= 4)
    tall = max(r for r in rows if r <= 4)
    x = max((n for n in across if n * wide <= max(width, wide) and n <= 16), default=1)
    y = max((n for n in along if n * tall <= max(height, tall) and n * x <= 128 and n <= 8), default=1)
    knobs = [
        Knob.of("items_x", across, x, "threads of a group along columns"),
        Knob.of("columns", columns, wide, "columns of a thread, a vector"),
        Knob.of("items_y", along, y, "threads of a group along rows"),
        Knob.of("rows", rows, tall, "rows of a thread, unrolled"),
        Knob.of("steps", steps, max(s for s in steps if s <= 8), "steps of the reduction, unrolled"),
    ]
    rules = [
        Constraint(
            "group_items",
            ("items_x", "items_y"),
            lambda c: column(c, "items_x", 1) * column(c, "items_y", 1) <= most,
            f"a group has {most} threads at most",
        ),
        Constraint(
            "across",
            ("items_x", "columns"),
            lambda c: (column(c, "items_x", 1) - 1) * column(c, "columns", 1) < width,
            "every thread of a group has columns",
        ),
        Constraint(
            "along",
            ("items_y", "rows"),
            lambda c: (column(c, "items_y", 1) - 1) * column(c, "rows", 1) < height,
            "every thread of a group has rows",
        ),
        Constraint(
            "sums",
            ("rows", "columns"),
            lambda c: column(c, "rows", 1) * column(c, "columns", 1) <= _MOST_SUMS,
            "the sums of a thread must fit its registers",
        ),
    ]
    if _stageable(shape):
        knobs += [
            Knob.of("stage", (False, True), "local" in target.features, "operands by way of shared memory"),
            Knob.of("pad", (0, 1), 1, "unused elements behind each row there"),
        ]
        rules.append(_staged_fits(shape, target))
    return Space(
        workload,
        target,
        FAMILY,
        tuple(knobs),
        tuple(rules),
        DeviceTileRecipe(shape),
    )


def _divisors(extent: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """Return those values that divide an extent: what is left over would be tested for in every step."""
    return tuple(v for v in values if extent % v == 0)


def _stageable(shape: TileShape) -> bool:
    """Return whether both operands are read at places that only loops decide, and each once."""
    reads = shape.reads
    same = len({id(read.tensor.op) for read in reads}) == len(reads)
    return len(reads) == 2 and same and all(read.affine and not read.looked_up for read in reads)


def _staged_fits(shape: TileShape, target: Target) -> Constraint:
    """Return the limit of what a group stages at once."""
    row = row_axis(shape)

    def fits(c: Columns) -> object:
        tile = {
            shape.vector: column(c, "items_x", 1) * column(c, "columns", 1),
            shape.main: column(c, "steps", 1),
        }
        if row is not None:
            tile[row] = column(c, "items_y", 1) * column(c, "rows", 1)
        total: Any = 0
        for read in shape.reads:
            elements: Any = 1
            for terms in read.dims:
                reach: Any = 1
                for axis, step in terms:
                    reach = reach + (tile.get(axis, 1) - 1) * abs(step)
                elements = elements * reach
            total = total + 2 * elements * item_bytes(read.tensor)  # rows may be padded
        return ~c["stage"].astype(bool) | (total <= min(_STAGED_BYTES, target.shared_bytes))

    knobs = ("items_x", "columns", "items_y", "rows", "steps", "stage")
    return Constraint("shared_bytes", knobs, fits, "what a group stages must fit its shared memory")


__all__ = ["FAMILY", "DeviceTileRecipe", "device_tile_space", "row_axis"]
