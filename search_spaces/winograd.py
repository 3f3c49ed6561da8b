"""Winograd's transforms: both axes of a tile at once, in registers, vectors along the channels.

A block is a row of tiles by some vectors of channels. The last transform goes on with what follows. Knobs: vectors (of
channels in a block), parallel, and walk: "tile" keeps the sums of one axis of a tile in registers for those of the
other; "row" stores those of a whole row of tiles, to read or write few positions of the windows at a time, as
prefetchers follow only so many. Tiles at the left and right border of a padded image have code of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import Structure, structure
from search_spaces.plain import schedule_plain
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile_knobs import ints, parallel_knob
from search_spaces.winograd_transform import ROW, TILE, Transform, TransformLoops, Walk

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target

FAMILY = "winograd"
_PARALLEL_BYTES = 1 << 16


@dataclass(frozen=True)
class WinogradRecipe:
    """The transform of an image, or of products with what follows it."""

    workload: Workload
    is_input: bool
    transform: Transform

    @cached_property
    def shape(self) -> Structure:
        """The stages around the transform."""
        return structure(self.workload.expressions)

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """The program by rows of tiles."""
        plan, walk = self.shape, Walk(config["walk"], config["vectors"])
        for op in (*plan.side, *plan.epilogue):
            if op.name != plan.stored.name:
                schedule[op.name].compute_inline()
        *outside, first = plan.producers
        stored = schedule[plan.stored.name]
        if self.is_input:
            padded = first.input_tensors[0].op
            loops = self.transform.windows(stored, walk, padded)
        else:
            loops = self._results(stored, walk)
        block = stored.fuse(*loops.rows, loops.channels)
        stored.parallel(block, when=config["parallel"])
        if plan.stored is not plan.anchor:
            schedule[plan.anchor.name].compute_inline()
        loops = replace(loops, channels=block)
        if self.is_input:
            self.transform.first_of_windows(schedule[first.name], stored, loops, walk, padded)
        else:
            self.transform.first_of_results(schedule[first.name], stored, loops, walk)
        for op in (*outside, *plan.rest):
            schedule_plain(schedule[op.name], self.transform.width, inline=True)

    def _results(self, stage: Stage, walk: Walk) -> TransformLoops:
        assert isinstance(stage.op, ComputeOp)
        image, h, w, channel = stage.op.axis
        row, i = stage.split(h, factor=self.transform.tile)
        tile, j = stage.split(w, factor=self.transform.tile)
        return self.transform.results(stage, walk, [image, row, tile], [i, j], channel)


def space(workload: Workload, target: Target) -> Space:
    """The schedules of a transform with what follows it."""
    anchor = workload.region.anchor
    assert anchor is not None
    is_input = anchor.op == "WinogradInput"
    graph = workload.region.graph
    transformed = graph.type_of(anchor.outputs[0] if is_input else anchor.inputs[0]).shape
    window, *_, channels = transformed
    transform = Transform(window - 2, min(target.lanes("float32"), channels))
    recipe = WinogradRecipe(workload, is_input, transform)
    most = math.ceil(channels / transform.width)
    # Fewer than four vectors were never faster by more than a twentieth, and up to half as slow again.
    vectors = ints(v for v in (4, 8, 16) if v < 2 * most) or (most,)
    wide = workload.bytes >= _PARALLEL_BYTES
    knobs = (
        Knob.of("walk", (TILE, ROW), ROW, "whether few positions of windows go through all tiles"),
        Knob.of("vectors", vectors, vectors[0], "vectors of channels in a block"),
        parallel_knob(target, wide, "share the blocks among workers"),
    )
    return Space(workload, target, FAMILY, knobs, (), recipe)


__all__ = ["FAMILY", "WinogradRecipe", "space"]
