"""Winograd's transforms: one or both axes of a tile at once, in registers, vectors along the channels.

A block is a row of tiles by some vectors of channels. The last transform goes on with what follows. Knobs: vectors (of
channels in a block), parallel, and walk: "tile" keeps the sums of one axis of a tile in registers for those of the
other; "row" stores those of a whole row of tiles, to read or write few positions of the windows at a time, as
prefetchers follow only so many. With dilation it is always "row". Tiles at the left and right border of a padded image
have code of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.graph.ops.common import int_attr, ints_attr
from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import Structure, structure
from search_spaces.families.plain import schedule_plain
from search_spaces.families.winograd_transform import ROW, TILE, Transform, TransformLoops, Walk
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import ints, parallel_knob

if TYPE_CHECKING:
    from autotune.graph.ir import Graph, Node
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
        """Schedule the program by rows of tiles."""
        plan, order = self.shape, TILE if self.transform.axes == 1 else ROW
        walk = Walk(config.get("walk", order), config["vectors"])
        for op in (*plan.side, *plan.epilogue):
            if op.name != plan.stored.name:
                schedule[op.name].compute_inline()
        stored = schedule[plan.stored.name]
        first = plan.producers[-1] if self.transform.axes > 1 else None
        padded = (first or plan.anchor).input_tensors[0].op if self.is_input else None
        if self.is_input:
            loops = self.transform.windows(stored, walk, padded)
        else:
            loops = self._results(stored, walk)
        block = stored.fuse(*loops.rows, loops.channels)
        stored.parallel(block, when=config["parallel"])
        if plan.stored is not plan.anchor:
            schedule[plan.anchor.name].compute_inline()
        loops = replace(loops, channels=block)
        if first is not None and self.is_input:
            self.transform.first_of_windows(schedule[first.name], stored, loops, walk, padded)
        elif first is not None:
            self.transform.first_of_results(schedule[first.name], stored, loops, walk)
        for op in (*plan.producers, *plan.rest):
            if op is not first:
                schedule_plain(schedule[op.name], self.transform.width, inline=True)

    def _results(self, stage: Stage, walk: Walk) -> TransformLoops:
        assert isinstance(stage.op, ComputeOp)
        axes = self.transform.tiles(stage)
        *images, channel = stage.op.axis
        *rows, last = axes
        outer = [*images[: -len(axes)], *(axis.place for axis in rows)]
        tiles = [*(phase for axis in rows for phase in axis.phases), last.place, *last.phases]
        return self.transform.results(stage, walk, outer, tiles, [axis.inside for axis in axes], channel)


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a transform with what follows it."""
    anchor = workload.region.anchor
    assert anchor is not None
    is_input = anchor.op == "WinogradInput"
    graph = workload.region.graph
    transform = transform_of(graph, anchor, target)
    channels = graph.type_of(anchor.outputs[0]).shape[-1]
    recipe = WinogradRecipe(workload, is_input, transform)
    most = math.ceil(channels / transform.width)
    # Fewer than four vectors were never faster by more than a twentieth, and up to half as slow again.
    vectors = ints(v for v in (4, 8, 16) if v < 2 * most) or (most,)
    wide = workload.bytes >= _PARALLEL_BYTES
    walk = Knob.of("walk", (TILE, ROW), ROW, "whether few positions of windows go through all tiles")
    knobs = (
        *([walk] if transform.dilations == (1, 1) else []),
        Knob.of("vectors", vectors, vectors[0], "vectors of channels in a block"),
        parallel_knob(target, wide, "share the blocks among workers"),
    )
    return Space(workload, target, FAMILY, knobs, (), recipe)


def transform_of(graph: Graph, node: Node, target: Target) -> Transform:
    """Return the effect of a node on the tiles of its image, with vectors of the image's channels."""
    image, transformed = graph.type_of(node.inputs[0]).shape, graph.type_of(node.outputs[0]).shape
    if node.op == "WinogradOutput":
        image, transformed = transformed, image
    axes = len(transformed) - len(image)
    dilations = ints_attr(node.attrs, "dilations") if "dilations" in node.attrs else (1,) * axes
    width = min(target.lanes("float32"), image[-1])
    return Transform(int_attr(node.attrs, "tile"), transformed[0], width, dilations)


__all__ = ["FAMILY", "WinogradRecipe", "space", "transform_of"]
