"""Regions as one flat nest: what elementwise and movement recipes share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.lower.ir import NONTEMPORAL
from autotune.schedule.knob import Knob
from autotune.te.tensor import ComputeOp, post_order
from search_spaces.families.plain import schedule_plain
from search_spaces.sketch import Choices
from search_spaces.tile.common import item_bytes
from search_spaces.tile.knobs import parallel_knob

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

_PARALLEL_BYTES = 1 << 16


@dataclass(frozen=True)
class FlatRecipe:
    """Everything inlined into the outputs; each output is one nest, the largest as the knobs say."""

    workload: AnyWorkload
    family: str
    lanes: int

    @cached_property
    def stages(self) -> list[ComputeOp]:
        """All computed stages, producers first."""
        found = post_order(list(self.workload.expressions.outputs))
        return [op for op in found if isinstance(op, ComputeOp)]

    @cached_property
    def output(self) -> ComputeOp:
        """The largest output, which the knobs are about."""
        outputs = [t.op for t in self.workload.expressions.outputs]
        computed = [op for op in outputs if isinstance(op, ComputeOp)]
        return max(computed, key=lambda op: math.prod(op.shape))

    @property
    def wide_stages(self) -> list[ComputeOp]:
        """The stages of the output's shape, which its loops compute."""
        return [op for op in self.stages if op.shape == self.output.shape] or [self.output]

    @property
    def plain(self) -> bool:
        """Return whether the output is no elementwise stage that knobs could be about."""
        op = self.output
        return len(op.body) > 1 or op.reduction is not None or not op.axis or 0 in op.shape

    @property
    def rows(self) -> int:
        """Rows of the output: all axes but the last."""
        return max(1, math.prod(self.output.shape[:-1]))

    @property
    def columns(self) -> int:
        """Extent of the last axis."""
        return max(1, self.output.shape[-1]) if self.output.shape else 1

    @property
    def width(self) -> int:
        """Lanes of the vectors along the last axis."""
        return min(self.lanes, self.columns)

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Inline everything into the outputs."""
        for stage in [schedule[op.name] for op in self.stages]:
            if stage.op.name != self.output.name:
                schedule_plain(stage, self.lanes, inline=True)
            elif self.plain:
                schedule_plain(stage, self.lanes, inline=False)
            else:
                self._output(stage, config)

    def _output(self, stage: Stage, config: Choices) -> None:
        """Schedule the loops of the output."""
        raise NotImplementedError


def sharing_knob(recipe: FlatRecipe, target: Target) -> Knob:
    """Return whether workers share the nest."""
    return parallel_knob(target, recipe.workload.bytes >= _PARALLEL_BYTES, "share the tiles among workers")


def stream_knob(output: ComputeOp, workload: AnyWorkload, target: Target) -> list[Knob]:
    """Return whether ``output`` is stored past the caches, where it does not stay in a core's own; see :func:`stream`.

    Such stores are aligned: where vectors do not divide rows, those of some rows are and of others are not, which takes
    longer than none: a softmax of 8000x1000 on a Zen 4 1.3 to 1.5 times as long.
    """
    item = item_bytes(output.output(0))
    row, vector = output.shape[-1] * item, target.vector_bits // 8
    ragged = len(output.shape) > 1 and row > vector and row % vector
    if ragged or math.prod(output.shape) * item < target.l2_bytes:
        return []
    large = workload.bytes > target.l3_bytes
    return [Knob.of("stream", (False, True), large, "store past the caches")]


def stream(stage: Stage, loop: IterVar, config: Choices) -> None:
    """Store what is computed inside of a loop past the caches, as the knob says."""
    if config.get("stream", False):
        stage.pragma(loop, NONTEMPORAL)


__all__ = ["FlatRecipe", "sharing_knob", "stream", "stream_knob"]
