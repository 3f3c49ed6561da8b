"""Normalisations of channels-last images: statistics of each channel over all places, then the image row by row.

The sums of a channel are vectors of channels that stay in registers; the places are divided into parts, which workers
share. What has an element a channel or a group is little, and computed in between. Knobs: parts, sum_vectors (vectors
of channels at a time), and those of :mod:`search_spaces.families.elementwise` for the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp, PlaceholderOp, post_order
from search_spaces.analysis import read_forms
from search_spaces.families.elementwise import RowsRecipe, lanes_of, rows_knobs
from search_spaces.families.plain import schedule_plain
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import ints

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target

_LEAST_PLACES = 16
"""Of a part: fewer are not worth the sums that are added up in the end."""


@dataclass(frozen=True)
class ChannelRecipe(RowsRecipe):
    """``sums`` names the stages that add up all places of a channel."""

    sums: tuple[str, ...] = ()

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Schedule sums in parts, small stages as they come, the rest inlined into the image."""
        for stage in list(schedule.order()):
            if isinstance(stage.op, PlaceholderOp):
                continue
            if stage.op.name == self.output.name:
                self._output(stage, config)
            elif stage.op.name in self.sums:
                self._sum(schedule, stage, config)
            else:
                schedule_plain(stage, self.lanes, inline=self._is_image(stage), parallel=False)

    def _is_image(self, stage: Stage) -> bool:
        return math.prod(stage.op.shape) >= math.prod(self.output.shape)

    def _sum(self, schedule: Schedule, stage: Stage, config: Choices) -> None:
        parts = int(config["parts"])  # the steps that follow are others where there is one
        partial = stage
        if parts > 1:
            assert isinstance(stage.op, ComputeOp)
            part, _ = stage.split(stage.op.reduce_axis[0], nparts=parts)
            made = schedule.rfactor(stage.tensor, part, factor_axis=0)
            assert not isinstance(made, list)  # one sum a stage
            partial = schedule[made]
            schedule_plain(stage, self.lanes, inline=False, parallel=False)
        sums = schedule[schedule.cache_write(partial.tensor, "local")]
        assert isinstance(partial.op, ComputeOp)
        assert isinstance(sums.op, ComputeOp)
        *outer, channel = partial.op.axis
        width = min(self.lanes, channel.extent)
        step, inner = partial.split(channel, factor=config["sum_vectors"] * width)
        vectors, lanes = partial.split(inner, factor=width)
        partial.unroll(vectors)
        partial.vectorize(lanes)
        block = partial.fuse(*outer) if len(outer) > 1 else outer[0]
        partial.parallel(block, when=config["parallel"])
        sums.compute_at(partial, step)
        several, inner_lanes = sums.split(sums.op.axis[-1], factor=width)
        sums.reorder(*sums.op.axis[:-1], *sums.op.reduce_axis, several, inner_lanes)
        sums.unroll(several)
        sums.vectorize(inner_lanes)


def channel_sums(workload: Workload) -> tuple[str, ...]:
    """Return the stages that add up a channel over all places; none where the region is not a
    channels-last normalisation."""
    program = workload.expressions
    output = program.outputs[0].op
    stages = [op for op in post_order(list(program.outputs)) if isinstance(op, ComputeOp)]
    if len(program.outputs) > 1 or not isinstance(output, ComputeOp) or output.reduction is not None:
        return ()
    if any(len(op.body) > 1 for op in stages) or 0 in output.shape:
        return ()
    found = [op for op in stages if op.reduction is not None and _adds_up_places(op, output)]
    return tuple(op.name for op in found)


def _adds_up_places(op: ComputeOp, output: ComputeOp) -> bool:
    """Return whether an element for each batch and channel is summed over all other axes of what is read."""
    if len(op.shape) != 2 or op.shape != (output.shape[0], output.shape[-1]):
        return False
    if [axis.extent for axis in op.reduce_axis] != list(output.shape[1:-1]):
        return False
    wide = [read for read in read_forms(op) if len(read.dims) == len(output.shape)]
    names = [axis.name for axis in (op.axis[0], *op.reduce_axis, op.axis[1])]
    return bool(wide) and all([read.single(d) for d in range(len(names))] == names for read in wide)


def channel_space(family: str, workload: Workload, target: Target, sums: tuple[str, ...]) -> Space:
    """Return the schedules of a channels-last normalisation with these sums."""
    lanes = lanes_of(workload, target)
    recipe = ChannelRecipe(workload, family, lanes, target.l2_bytes, sums=sums)
    knobs, rule = rows_knobs(recipe, target)
    batch, first, *rest = recipe.output.shape[:-1]
    most = max(1, min(16 * target.threads, first, first * math.prod(rest) // _LEAST_PLACES))
    parts = ints(p for p in (1, 2, 4, 8, 16, 32, 64) if p <= most and first % p == 0)
    wanted = max((int(p) for p in parts if int(p) * batch <= 4 * target.threads), default=1)
    vectors = ints(v for v in (1, 2, 4, 8) if v == 1 or v * lanes <= recipe.columns)
    default = max(int(v) for v in vectors if recipe.columns % (int(v) * lanes) == 0 or int(v) == 1)
    knobs += [
        Knob.of("parts", parts, wanted if target.threads > 1 else 1, "parts of the places"),
        Knob.of("sum_vectors", vectors, default, "vectors of channels that are summed at a time"),
    ]
    return Space(workload, target, family, tuple(knobs), (rule,), recipe)


__all__ = ["ChannelRecipe", "channel_space", "channel_sums"]
