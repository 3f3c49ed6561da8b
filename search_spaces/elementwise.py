"""Elementwise, broadcast and movement regions: one nest, outer loops parallel, the last axis in vectors.

Knobs: vectors (unrolled a step), row_block (rows a tile), tile (rows of a transposed input's axis kept
together, where there is one), parallel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from autotune import te
from autotune.te.tensor import ComputeOp, PlaceholderOp, post_order
from search_spaces.analysis import read_forms
from search_spaces.constraint import Constraint
from search_spaces.flat_nest import flat_nest
from search_spaces.knob import Columns, Config, Knob
from search_spaces.nest import LoopNest
from search_spaces.plain import schedule_plain
from search_spaces.space import Space
from search_spaces.tile_knobs import ceil_div, column, ints

if TYPE_CHECKING:
    from autotune.graph.region import RegionProgram, Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "elementwise"
_ROW_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_PARALLEL_BYTES = 1 << 16


@dataclass(frozen=True)
class FlatRecipe:
    """Everything inlined into the outputs; each output is one nest."""

    workload: Workload
    family: str
    lanes: int

    @cached_property
    def stages(self) -> list[ComputeOp]:
        """All computed stages, producers first."""
        found = post_order(list(self.workload.program().outputs))
        return [op for op in found if isinstance(op, ComputeOp)]

    @cached_property
    def output(self) -> ComputeOp:
        """The largest output, which the knobs are about."""
        outputs = [t.op for t in self.workload.program().outputs]
        computed = [op for op in outputs if isinstance(op, ComputeOp)]
        return max(computed, key=lambda op: math.prod(op.shape))

    @property
    def rows(self) -> int:
        """Rows of the output: all axes but the last."""
        return max(1, math.prod(self.output.shape[:-1]))

    @property
    def columns(self) -> int:
        """Extent of the last axis."""
        return max(1, self.output.shape[-1]) if self.output.shape else 1

    @cached_property
    def transposed(self) -> str | None:
        """The axis of the output that walks along an input's lines where the last axis does not."""
        for op in self.stages:
            if op.shape != self.output.shape or not op.axis:
                continue
            for read in read_forms(op):
                along = read.contiguous
                outer = [axis.name for axis in op.axis[:-1]]
                if isinstance(read.tensor.op, PlaceholderOp) and along in outer:
                    return self.output.axis[outer.index(along)].name
        return None

    def schedule(self, program: RegionProgram, config: Config) -> Schedule:
        """The program with everything inlined into the outputs."""
        schedule: Schedule = te.create_schedule([tensor.op for tensor in program.outputs])
        for stage in schedule.order():
            if isinstance(stage.op, PlaceholderOp):
                continue
            if stage.op.name == self.output.name:
                self._output(stage, config)
            else:
                schedule_plain(stage, self.lanes, inline=True)
        return schedule

    def _output(self, stage: Stage, config: Config) -> None:
        assert isinstance(stage.op, ComputeOp)
        plain = len(stage.op.body) > 1 or stage.op.reduction is not None
        if plain or not stage.op.axis or 0 in stage.op.shape:
            schedule_plain(stage, self.lanes, inline=False)
            return
        *outer, last = stage.op.axis
        width = min(self.lanes, self.columns)
        step, inner = stage.split(last, factor=width * int(config["vectors"]), tail="overlap")
        vectors, lanes = stage.split(inner, factor=width)
        tile_loops: list[IterVar] = []
        if config.get("tile", 1) != 1:
            axis = next(axis for axis in outer if axis.name == self.transposed)
            position = outer.index(axis)
            outer[position], tiled = stage.split(axis, factor=int(config["tile"]), tail="overlap")
            tile_loops = [tiled]
        stage.reorder(*outer, step, *tile_loops, vectors, lanes)
        if self._few_rows() or not outer:
            outer.append(step)
        block = stage.fuse(*outer) if len(outer) > 1 else outer[0]
        if config["row_block"] != 1:
            block, _ = stage.split(block, factor=int(config["row_block"]))
        if config["parallel"]:
            stage.parallel(block)
        stage.unroll(vectors)
        if width > 1:
            stage.vectorize(lanes)

    def _few_rows(self) -> bool:
        return self.rows < 16

    def tiles(self, columns: Columns) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Iterations of the fused outer loop [n]."""
        width = min(self.lanes, self.columns)
        rows = np.full(len(columns["vectors"]), float(self.rows))
        if "tile" in columns and self.transposed is not None:
            extent = dict(zip([a.name for a in self.output.axis], self.output.shape, strict=True))[
                self.transposed
            ]
            rows = rows / extent * ceil_div(extent, column(columns, "tile", 1))
        if self._few_rows():
            rows = rows * ceil_div(self.columns, column(columns, "vectors", 1) * width)
        return rows

    def loop_nest(self, columns: Columns) -> LoopNest:
        """The loop nests of a population."""
        vectors = column(columns, "vectors", 1)
        block = column(columns, "row_block", 1)
        tile = column(columns, "tile", 1)
        return flat_nest(
            self.family,
            self.workload.flops,
            self.lanes,
            [op for op in self.stages if op.shape == self.output.shape] or [self.output],
            self.rows,
            self.columns,
            block * tile,
            vectors,
            columns["parallel"].astype(np.bool_),
            tags={"vectors": vectors, "unroll": vectors, "rows": tile},
        )


def space(workload: Workload, target: Target, family: str = FAMILY) -> Space:
    """The schedules of a region without a tiled anchor; legal for every region."""
    dtype = workload.program().outputs[0].dtype
    lanes = max(1, target.lanes(dtype) if dtype != "bool" else target.lanes("float32"))
    recipe = FlatRecipe(workload, family, lanes)
    most = max(1, math.ceil(recipe.columns / lanes))
    vectors = ints(v for v in (1, 2, 4, 8) if v <= most)
    blocks = ints(b for b in _ROW_BLOCKS if b == 1 or b * 2 <= recipe.rows)
    wide = workload.bytes >= _PARALLEL_BYTES
    knobs = [
        Knob.of("vectors", vectors, vectors[min(1, len(vectors) - 1)], "vectors a step"),
        Knob.of("row_block", blocks, 1, "iterations of the fused outer loops a tile"),
        Knob.of("parallel", (False, True), wide, "share the tiles among workers"),
    ]
    reads = ["row_block", "vectors"]
    if recipe.transposed is not None:
        extent = recipe.output.shape[[axis.name for axis in recipe.output.axis].index(recipe.transposed)]
        tiles = ints(t for t in (1, 4, 8, 16, 32) if t <= extent)
        knobs.append(Knob.of("tile", tiles, tiles[-1], "rows of the transposed axis kept together"))
        reads.append("tile")

    def divides(c: Columns) -> object:
        total, size = recipe.tiles(c), column(c, "row_block", 1)
        return (size == 1) | ((np.mod(total, size) == 0) & (size < total))

    rule = Constraint("row_block", tuple(reads), divides, "tiles hold a whole number of iterations")
    return Space(workload, target, family, tuple(knobs), (rule,), recipe)


__all__ = ["FAMILY", "FlatRecipe", "space"]
