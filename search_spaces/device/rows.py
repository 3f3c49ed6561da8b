"""Reductions, softmax and normalisations on a device: a group a row, each thread a part of it.

Threads fold every ``items``-th element each (so that neighbours read neighbours), all of them fold what they found by a
tree in shared memory, and store the row. Knob: items (threads of a group).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune import te
from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp
from search_spaces.device.grid import place
from search_spaces.rows.shape import RowShape
from search_spaces.sketch import Choices
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target

FAMILY = "device_rows"
_SHORT = 32
"""Rows of fewer elements are computed by a thread each."""


@dataclass(frozen=True)
class DeviceRowsRecipe:
    """A group a row."""

    shape: RowShape

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Compute everything of a row in the loop over rows."""
        output = schedule[self.shape.output.name]
        for op in self.shape.reductions:
            self._by_all_threads(schedule[op.name], config)
        assert isinstance(output.op, ComputeOp)
        axes, rest = output.op.axis[: self.shape.rank], output.op.axis[self.shape.rank :]
        row = output.fuse(*axes) if len(axes) > 1 else axes[0]
        output.bind(row, te.thread_axis("blockIdx.x"))
        if self.shape.wide_output:
            line = output.fuse(*rest) if len(rest) > 1 else rest[0]
            _, item = output.split(line, factor=config["items"], tail="guard")
            output.bind(item, te.thread_axis("threadIdx.x"))
        for op in reversed(self.shape.stages):
            stage = schedule[op.name]
            if op is self.shape.output:
                continue
            if op.reduction is None:
                place(stage, config["items"])
            else:
                stage.set_scope("shared")
                stage.compute_at(output, row)

    def _by_all_threads(self, stage: Stage, config: Choices) -> None:
        assert isinstance(stage.op, ComputeOp)
        _, item = stage.split(stage.op.reduce_axis[-1], factor=config["items"], tail="guard")
        stage.bind(item, te.thread_axis("threadIdx.x"))


def device_rows_space(workload: Workload, target: Target, shape: RowShape) -> Space | None:
    """Return the schedules of a region with a group a row; None where rows are short, or a reduction has
    several results."""
    columns = min(math.prod(a.extent for a in op.reduce_axis) for op in shape.reductions)
    if not shape.rank or columns < _SHORT or any(len(op.body) > 1 for op in shape.reductions):
        return None
    values = tuple(n for n in (16, 32, 64, 128, 256) if n <= min(target.group_items, max(16, shape.width)))
    knob = Knob.of("items", values, min(64, max(values)), "threads of a group")
    return Space(workload, target, FAMILY, (knob,), (), DeviceRowsRecipe(shape))


__all__ = ["FAMILY", "DeviceRowsRecipe", "device_rows_space"]
