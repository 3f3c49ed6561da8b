"""Winograd's transforms: both axes of a tile at once, in registers, vectors along the channels.

A block is a row of tiles by some vectors of channels. The sums of one axis of a tile stay in registers for those of
the other, and the last transform goes on with what follows. Knobs: vectors (of channels in a block), parallel, and
for the input walk: "tile" computes all positions of a tile before the next one; "row" stores the sums of one axis of
a whole row of tiles, to write few positions at a time, as prefetchers follow only so many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune import te
from autotune.schedule.knob import Columns, Config, Knob
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.analysis import Structure, structure
from search_spaces.nest import Access, Body, Loop, LoopNest, Numbers
from search_spaces.plain import schedule_plain
from search_spaces.space import Space
from search_spaces.tile_common import item_bytes
from search_spaces.tile_knobs import ceil_div, column, ints

if TYPE_CHECKING:
    from autotune.graph.region import RegionProgram, Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "winograd"
_PARALLEL_BYTES = 1 << 16
_STREAMS, _STREAM, _RUN = 24, 0.75, 30.0
"""Places that are written in turns before hardware prefetchers lose track, and cycles that a vector then waits for
each place more; and cycles at the start of each short run. Measured on Cascade Lake, windows of 4 to 8, 14² to 56²."""
_IMAGE, _ROW, _TILE, _COLUMN, _I, _J = "image", "row", "tile", "column", "i", "j"


@dataclass(frozen=True)
class WinogradRecipe:
    """``tile`` is m, the side of a tile of outputs; ``window`` is m + 2; ``grid`` are images, rows, tiles a row."""

    workload: Workload
    lanes: int
    is_input: bool
    tile: int
    grid: tuple[int, int, int]
    channels: int

    @property
    def window(self) -> int:
        return self.tile + 2

    @property
    def width(self) -> int:
        """Lanes of the vectors along the channels."""
        return min(self.lanes, self.channels)

    @cached_property
    def shape(self) -> Structure:
        """The stages around the transform."""
        return structure(self.workload.program())

    def schedule(self, program: RegionProgram, config: Config) -> Schedule:
        """The program by rows of tiles."""
        schedule: Schedule = te.create_schedule([tensor.op for tensor in program.outputs])
        plan = structure(program)
        for op in (*plan.side, *plan.epilogue):
            if op.name != plan.stored.name:
                schedule[op.name].compute_inline()
        *outside, first = plan.producers
        stored = schedule[plan.stored.name]
        block, tile = (self._windows if self.is_input else self._results)(stored, config)
        if plan.stored is not plan.anchor:
            schedule[plan.anchor.name].compute_inline()
        in_rows = config.get("walk") == "row"
        self._first(schedule[first.name], stored, block if in_rows else tile, in_rows)
        for op in (*outside, *plan.rest):
            schedule_plain(schedule[op.name], self.lanes, inline=True)
        return schedule

    def _windows(self, stage: Stage, config: Config) -> tuple[IterVar, IterVar]:
        """The loops of the transformed input: (block, tile)."""
        assert isinstance(stage.op, ComputeOp)
        i, j, image, row, tile, channel = stage.op.axis
        if config["walk"] == "row":
            return self._blocked(stage, [image, row], [i, tile], [j], channel, config)
        return self._blocked(stage, [image, row], [tile], [i, j], channel, config)

    def _results(self, stage: Stage, config: Config) -> tuple[IterVar, IterVar]:
        """The loops of the convolution's result: (block, tile)."""
        assert isinstance(stage.op, ComputeOp)
        image, h, w, channel = stage.op.axis
        row, i = stage.split(h, factor=self.tile)
        tile, j = stage.split(w, factor=self.tile)
        return self._blocked(stage, [image, row], [tile], [i, j], channel, config)

    def _blocked(
        self,
        stage: Stage,
        rows: list[IterVar],
        tiles: list[IterVar],
        inside: list[IterVar],
        channel: IterVar,
        config: Config,
    ) -> tuple[IterVar, IterVar]:
        channels, vectors = stage.split(channel, factor=self.width * int(config["vectors"]))
        vector, lanes = stage.split(vectors, factor=self.width)
        stage.reorder(*rows, channels, *tiles, vector, *inside, lanes)
        block = stage.fuse(*rows, channels)
        if config["parallel"]:
            stage.parallel(block)
        for loop in inside:
            stage.unroll(loop)
        stage.vectorize(lanes)
        return block, vector

    def _first(self, stage: Stage, stored: Stage, place: IterVar, in_rows: bool) -> None:
        """The sums along the first axis: of a tile in registers, or of a row of tiles in memory."""
        assert isinstance(stage.op, ComputeOp)
        stage.compute_at(stored, place)
        stage.set_scope("local")
        *outer, channel = stage.op.axis
        vector, lanes = stage.split(channel, factor=self.width)
        if self.is_input:  # all sums of a column before the next one
            position, image, row, column = outer
            stage.reorder(image, row, column, vector, position, lanes)
            outer = [position] if in_rows else [*outer, vector]
        for loop in outer:
            stage.unroll(loop)
        stage.vectorize(lanes)

    def loop_nest(self, columns: Columns) -> LoopNest:
        """The loop nests of a population."""
        vectors = column(columns, "vectors", 1)
        one = np.ones(len(vectors))
        images, rows, tiles = self.grid
        steps = self.channels / self.width
        loops = (
            Loop(_IMAGE, one * images, "parallel"),
            Loop(_ROW, one * rows, "parallel"),
            Loop(_COLUMN, ceil_div(steps, vectors), "parallel"),
            Loop(_TILE, one * tiles),
            Loop(_COLUMN, np.minimum(vectors, steps)),
            Loop(_I, one * self.window, "unrolled"),
            Loop(_J, one * self.window, "unrolled"),
            Loop(_COLUMN, one * self.width, "vectorized"),
        )
        # Flops count an instruction as a multiply-add, of as many elements as there are lanes.
        elements = images * rows * tiles * self.channels
        arithmetic = one * (self.workload.flops / 2 / elements)
        in_rows = columns["walk"] == "row" if self.is_input else np.zeros(len(vectors), np.bool_)
        large, small = float(self.window**2), float(self.tile**2)
        summed = np.where(in_rows, float(self.window * self.tile), 0.0)
        loads = large + (0.0 if self.is_input else small * len(self._beside)) + summed
        stores = (large if self.is_input else small) + summed
        return LoopNest(
            family=FAMILY,
            lanes=self.lanes,
            flops=float(self.workload.flops),
            extents={
                _IMAGE: images,
                _ROW: rows,
                _TILE: tiles,
                _COLUMN: self.channels,
                _I: self.window,
                _J: self.window,
            },
            loops=loops,
            accesses=tuple(self._accesses()),
            body=Body(
                steps=one * images * rows * tiles * math.ceil(steps),
                arithmetic=arithmetic,
                loads=loads,
                stores=stores,
                chains=arithmetic,
                registers=one * self.window * (self.window if self.is_input else self.tile),
                instructions=arithmetic + loads + stores,
                stalls=self._stalls(np.minimum(vectors, steps), in_rows) if self.is_input else 0.0,
            ),
            scratch=self._scratch(np.minimum(vectors, steps), in_rows) if self.is_input else None,
            serial=~columns["parallel"].astype(np.bool_),
            tags={"vectors": vectors, "unroll": one * large},
        )

    def _stalls(self, vectors: Numbers, in_rows: NDArray[np.bool_]) -> Numbers:
        """Cycles that the stores of a tile wait: for lines where a run begins, and for what is not prefetched."""
        runs = np.where(vectors * self.width >= self.channels, 0.0, _RUN / vectors)
        streams = np.where(in_rows, self.window, self.window**2)
        return np.asarray(self.window**2 * (runs + _STREAM * np.maximum(streams - _STREAMS, 0.0)))

    def _scratch(self, vectors: Numbers, in_rows: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Bytes of the sums of a block where these are stored, and the blocks."""
        images, rows, tiles = self.grid
        line = float(
            (tiles * self.tile + 2) * self.window * self.width * item_bytes(self.shape.anchor.output(0))
        )
        return line * vectors * in_rows, images * rows * ceil_div(self.channels / self.width, vectors)

    @property
    def _beside(self) -> list[te.Tensor]:
        """What the stages after the transform read beside it, as large as the result."""
        plan = self.shape
        found = {t.name: t for op in (*plan.epilogue, *plan.side) for t in op.input_tensors}
        return [t for t in found.values() if isinstance(t.op, PlaceholderOp) and t.shape == plan.stored.shape]

    def _accesses(self) -> list[Access]:
        plan = self.shape
        images, rows, tiles = self.grid
        rank = (((_I, 1),), ((_J, 1),), ((_IMAGE, 1),), ((_ROW, 1),), ((_TILE, 1),), ((_COLUMN, 1),))
        extents = (self.window, self.window, images, rows, tiles, self.channels)
        item = item_bytes(plan.stored.output(0))
        transformed = Access("transformed", item, rank, extents, write=self.is_input)
        dims = (((_IMAGE, 1),), ((_ROW, self.tile), (_I, 1)), ((_TILE, self.tile), (_J, 1)), ((_COLUMN, 1),))
        plain = (images, rows * self.tile, tiles * self.tile, self.channels)
        found = [transformed, Access("plain", item, dims, plain, write=not self.is_input)]
        found += [Access(t.name, item_bytes(t), dims, plain) for t in self._beside]
        return found


def space(workload: Workload, target: Target) -> Space:
    """The schedules of a transform with what follows it."""
    anchor = workload.region.anchor
    assert anchor is not None
    is_input = anchor.op == "WinogradInput"
    graph = workload.region.graph
    transformed = graph.type_of(anchor.outputs[0] if is_input else anchor.inputs[0]).shape
    window, _, *grid, channels = transformed
    lanes = target.lanes("float32")
    images, rows, tiles = grid
    recipe = WinogradRecipe(workload, lanes, is_input, window - 2, (images, rows, tiles), channels)
    most = math.ceil(channels / recipe.width)
    vectors = ints(v for v in (1, 2, 4, 8, 16) if v < 2 * most)
    walk = Knob.of(
        "walk", ("tile", "row"), "row", "whether a row of a window's positions goes through all tiles"
    )
    knobs = (
        *((walk,) if is_input else ()),
        Knob.of("vectors", vectors, vectors[min(2, len(vectors) - 1)], "vectors of channels in a block"),
        Knob.of(
            "parallel", (False, True), workload.bytes >= _PARALLEL_BYTES, "share the blocks among workers"
        ),
    )
    return Space(workload, target, FAMILY, knobs, (), recipe)


__all__ = ["FAMILY", "WinogradRecipe", "space"]
