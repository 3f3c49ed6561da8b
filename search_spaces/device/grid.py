"""The plain schedule of a stage on a device: a thread an element, neighbours in memory by neighbouring threads.

It is legal for every stage: what is not worth more, and every region that no other sketch serves, runs so. Elementwise
stages are computed where they are read. Knob: items (threads of a group).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune import te
from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.sketch import Choices
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target

FAMILY = "device_grid"
_ITEMS = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class GridRecipe:
    """A thread an element of each stage that is stored."""

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Inline elementwise stages, and make a kernel of each other."""
        for stage in schedule.order():
            place(stage, config["items"])


def place(stage: Stage, items: Any) -> None:
    """Inline a stage where it may be, else bind its loops."""
    op = stage.op
    if not isinstance(op, ComputeOp):
        return
    if op.reduction is None and not stage.is_output:
        stage.compute_inline()
    elif op.axis and 0 not in op.shape:
        bind_grid(stage, items)


def bind_grid(stage: Stage, items: Any) -> None:
    """Bind all data loops as one, cut into groups; the loops of a reduction inside."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    whole = stage.fuse(*op.axis) if len(op.axis) > 1 else op.axis[0]
    group, item = stage.split(whole, factor=items, tail="guard")
    stage.reorder(group, item, *op.reduce_axis)
    stage.bind(group, te.thread_axis("blockIdx.x"))
    stage.bind(item, te.thread_axis("threadIdx.x"))


def grid_space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a region with a thread an element."""
    elements = max(
        (math.prod(stage.shape) for stage in _stored(workload)),
        default=1,
    )
    values = tuple(n for n in _ITEMS if n <= target.group_items and (n == _ITEMS[0] or n <= elements))
    default = max(n for n in values if n <= 64)
    knob = Knob.of("items", values, default, "threads of a group")
    return Space(workload, target, FAMILY, (knob,), (), GridRecipe())


def _stored(workload: Workload) -> list[ComputeOp]:
    from autotune.te.tensor import post_order

    found = post_order(list(workload.expressions.outputs))
    return [op for op in found if isinstance(op, ComputeOp) and not isinstance(op, PlaceholderOp)]


__all__ = ["FAMILY", "bind_grid", "grid_space", "place"]
