"""Scans, sorts, scatters and searches: their points in parallel, and plain stages around them.

What a point does is fixed (:mod:`autotune.te.sequential`). Knob: parallel, whether workers share the points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.te.sequential import SequentialOp
from search_spaces.families.plain import schedule_plain
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import parallel_knob

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target

FAMILY = "sequential"
_PARALLEL_BYTES = 1 << 15
_TILES = 64
"""Points are shared in about so many tiles."""


@dataclass(frozen=True)
class SequentialRecipe:
    """Sequential kernels by points, other stages by rows; what a kernel reads is stored first."""

    lanes: int

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Schedule one nest a stage."""
        order = schedule.order()
        read = {t.op for stage in order if isinstance(stage.op, SequentialOp) for t in stage.op.input_tensors}
        for stage in order:
            if isinstance(stage.op, SequentialOp):
                _points(stage, config)
            else:
                schedule_plain(stage, self.lanes, inline=stage.op not in read)


def _points(stage: Stage, config: Choices) -> None:
    """Share the points of a kernel, in blocks of neighbours."""
    assert isinstance(stage.op, SequentialOp)
    axes = [axis for axis in stage.op.axis if axis.extent > 1]
    if not axes or 0 in stage.op.shape:
        return
    stage.reorder(*axes, *(axis for axis in stage.op.axis if axis.extent == 1))
    points = stage.fuse(*axes) if len(axes) > 1 else axes[0]
    count = math.prod(axis.extent for axis in axes)
    if count > _TILES:
        points, _ = stage.split(points, factor=-(-count // _TILES))
    stage.parallel(points, when=config["parallel"])


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a region about a sequential kernel."""
    lanes = max(1, target.lanes("float32"))
    knob = parallel_knob(target, workload.bytes >= _PARALLEL_BYTES, "share the points among workers")
    return Space(workload, target, FAMILY, (knob,), (), SequentialRecipe(lanes))


__all__ = ["FAMILY", "SequentialRecipe", "space"]
