"""Winograd's transforms: both axes of a tile at once, in registers, vectors along the channels.

A block is a row of tiles by some vectors of channels. The last transform goes on with what follows. Knobs: vectors (of
channels in a block), parallel, and walk: "tile" keeps the sums of one axis of a tile in registers for those of the
other; "row" stores those of a whole row of tiles, to read or write few positions of the windows at a time, as
prefetchers follow only so many. Tiles at the left and right border of a padded image have code of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import Structure, structure
from search_spaces.plain import schedule_plain
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile_border import inside
from search_spaces.tile_knobs import ints, parallel_knob

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "winograd"
_PARALLEL_BYTES = 1 << 16
_COLUMNS = 2
"""The dimension of an image along its rows."""


@dataclass(frozen=True)
class WinogradRecipe:
    """``tile`` is m, the side of a tile of outputs; ``width`` are lanes of the vectors along the channels."""

    workload: Workload
    is_input: bool
    tile: int
    width: int

    @cached_property
    def shape(self) -> Structure:
        """The stages around the transform."""
        return structure(self.workload.program())

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """The program by rows of tiles."""
        plan = self.shape
        for op in (*plan.side, *plan.epilogue):
            if op.name != plan.stored.name:
                schedule[op.name].compute_inline()
        *outside, first = plan.producers
        stored = schedule[plan.stored.name]
        block, tile = (self._windows if self.is_input else self._results)(stored, config)
        if plan.stored is not plan.anchor:
            schedule[plan.anchor.name].compute_inline()
        in_rows = bool(config["walk"] == "row")
        self._first(schedule[first.name], stored, block if in_rows else tile, in_rows)
        for op in (*outside, *plan.rest):
            schedule_plain(schedule[op.name], self.width, inline=True)

    def _windows(self, stage: Stage, config: Choices) -> tuple[IterVar, IterVar]:
        """The loops of the transformed input: (block, tile)."""
        assert isinstance(stage.op, ComputeOp)
        i, j, image, row, tile, channel = stage.op.axis
        if config["walk"] == "row":
            return self._blocked(stage, [image, row], [i, tile], [j], channel, config)
        self._peel_border(stage, tile, self.tile, self.tile + 2)
        return self._blocked(stage, [image, row], [tile], [i, j], channel, config)

    def _peel_border(self, stage: Stage, loop: IterVar, step: int, size: int) -> None:
        """Give the iterations code of their own that read padding beside the image: ``size`` columns, ``step`` apart.

        What is above and below is the same for a whole row of tiles.
        """
        padded = self.shape.producers[-1].input_tensors[0].op
        if not isinstance(padded, ComputeOp) or _COLUMNS not in inside(padded):
            return
        begin, end = inside(padded)[_COLUMNS]
        first = min(-(-begin // step), loop.extent)
        last = 0 if end == padded.shape[_COLUMNS] else loop.extent - max((end - size) // step + 1, first)
        if first + last:
            stage.peel(loop, first, last)

    def _results(self, stage: Stage, config: Choices) -> tuple[IterVar, IterVar]:
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
        config: Choices,
    ) -> tuple[IterVar, IterVar]:
        channels, vectors = stage.split(channel, factor=config["vectors"] * self.width)
        vector, lanes = stage.split(vectors, factor=self.width)
        stage.reorder(*rows, channels, *tiles, vector, *inside, lanes)
        block = stage.fuse(*rows, channels)
        stage.parallel(block, when=config["parallel"])
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
        position = outer.pop(0 if self.is_input else -1)
        if self.is_input or in_rows:  # all sums of a column before the next one
            stage.reorder(*outer, vector, position, lanes)
        if self.is_input and in_rows:
            self._peel_border(stage, outer[-1], 1, 1)
        for loop in [position] if in_rows else [*outer, vector, position]:
            stage.unroll(loop)
        stage.vectorize(lanes)


def space(workload: Workload, target: Target) -> Space:
    """The schedules of a transform with what follows it."""
    anchor = workload.region.anchor
    assert anchor is not None
    is_input = anchor.op == "WinogradInput"
    graph = workload.region.graph
    transformed = graph.type_of(anchor.outputs[0] if is_input else anchor.inputs[0]).shape
    window, *_, channels = transformed
    recipe = WinogradRecipe(workload, is_input, window - 2, min(target.lanes("float32"), channels))
    most = math.ceil(channels / recipe.width)
    # Fewer than four vectors were never faster by more than a twentieth, and up to half as slow again.
    vectors = ints(v for v in (4, 8, 16) if v < 2 * most) or (most,)
    wide = workload.bytes >= _PARALLEL_BYTES
    knobs = (
        Knob.of("walk", ("tile", "row"), "row", "whether few positions of windows go through all tiles"),
        Knob.of("vectors", vectors, vectors[0], "vectors of channels in a block"),
        parallel_knob(target, wide, "share the blocks among workers"),
    )
    return Space(workload, target, FAMILY, knobs, (), recipe)


__all__ = ["FAMILY", "WinogradRecipe", "space"]
