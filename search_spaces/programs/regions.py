"""The division of a program of tensor expressions into regions, each stored by one stage, as models are divided.

A region takes in whoever is read by it alone: what finishes a reduction, what prepares its operands, what stays with
its rows. Readers come first, so that a stage is either in the region of its readers or the stored stage of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from typing import TYPE_CHECKING

from autotune import te
from autotune.graph.program import ProgramWorkload
from autotune.schedule.rewrite import with_reads
from autotune.te.expr import Call, Read, Select
from autotune.te.printer import expr_text
from autotune.te.sequential import SequentialOp
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor
from autotune.te.traversal import nodes, reads
from search_spaces.analysis import operations
from search_spaces.programs.spaces import keeps_rows, program_space
from search_spaces.rows.flat_recipe import FlatRecipe
from search_spaces.rows.shape import row_shape

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from search_spaces.space import Space

_CHEAP = 3
"""Operations of a stage that is rather computed again than stored."""


@dataclass(frozen=True)
class ProgramRegion:
    """A region by the names of its stages; ``space`` has its schedules, None where loops stay as they are."""

    stored: str
    stages: tuple[str, ...]
    anchor: str | None
    space: Space | None
    output: bool
    """True if what it stores is an output of the program."""

    @property
    def nest(self) -> bool:
        """Return whether it is one nest without a reduction, which other nests may be computed in."""
        recipe = None if self.space is None else self.space.recipe
        return isinstance(recipe, FlatRecipe) and not recipe.plain


@dataclass
class Division:
    """One division of a fresh schedule."""

    s: Schedule
    target: Target
    _inside: set[str] = field(default_factory=set)
    """The stages of the regions so far."""

    def regions(self) -> tuple[ProgramRegion, ...]:
        """Return all regions, readers first."""
        computed = [stage for stage in reversed(self.s.order()) if isinstance(stage.op, ComputeOp)]
        return tuple(self._region(stage) for stage in computed if stage.op.name not in self._inside)

    def _region(self, stored: Stage) -> ProgramRegion:
        stages, anchor = self._taken_in(stored)
        names = tuple(stage.op.name for stage in stages)
        self._inside.update(names)
        space = None
        if not isinstance(stored.op, SequentialOp) and all(_points(stage) for stage in stages):
            workload = self._program(stages, stored)
            near = frozenset(producer.op.name for stage in stages for producer in self._producers(stage))
            space = None if workload is None else program_space(workload, anchor, self.target, near)
        return ProgramRegion(stored.op.name, names, anchor, space, stored.is_output)

    def _taken_in(self, stored: Stage) -> tuple[list[Stage], str | None]:
        """Return the stages of the region that ``stored`` ends, and the reduction that tiles go around."""
        if isinstance(stored.op, SequentialOp):
            return [stored], None
        rows = self._rows(stored)
        if rows:
            return rows, None
        finished = self._finished(stored)
        if finished is None:
            return self._with_cheap([stored]), None
        stages, anchor = finished
        prepared = [p for p in self._producers(anchor) if self._may_join(p, stages) and not p.op.reduce_axis]
        return self._with_cheap([*stages, *prepared]), anchor.op.name

    # -- what a region takes in -----------------------------------------------------------------------------

    def _rows(self, stored: Stage) -> list[Stage]:
        """Return the stages that stay with the rows of a stored one, as many as make a row space; none
        without reductions."""
        stages = [stored]
        waiting = [stored]
        while waiting:
            for producer in self._producers(waiting.pop()):
                if (
                    producer in stages
                    or not self._may_join(producer, stages)
                    or not self._on_the_way(producer)
                ):
                    continue
                if not producer.op.reduce_axis or self._are_rows([*stages, producer], stored):
                    stages.append(producer)
                    waiting += stages  # its producers, and those that had other readers before
        found = any(stage.computed("automatic").reduction is not None for stage in stages)
        return stages if found and self._are_rows(stages, stored) else []

    def _are_rows(self, stages: list[Stage], stored: Stage) -> bool:
        reductions = [
            op for op in (stage.computed("automatic") for stage in stages) if op.reduction is not None
        ]
        if not all(keeps_rows(op) for op in reductions) or 0 in stored.op.shape:
            return False
        workload = self._program(stages, stored)
        return workload is not None and row_shape(workload) is not None

    def _finished(self, stored: Stage) -> tuple[list[Stage], Stage] | None:
        """Return the reduction with the most work whose elements ``stored`` takes one by one, and the
        stages on the way."""
        if stored.op.reduce_axis:
            return [stored], stored
        found: list[tuple[list[Stage], Stage]] = []
        waiting = [[stored]]
        while waiting:
            stages = waiting.pop()
            for producer in self._producers(stages[-1]):
                if not self._may_join(producer, stages) or not _one_by_one(stages[-1], producer, self.s):
                    continue
                if producer.op.reduce_axis:
                    found.append(([*stages, producer], producer))
                else:
                    waiting.append([*stages, producer])
        return max(found, key=lambda pair: _points(pair[1]), default=None)

    def _with_cheap(self, stages: list[Stage]) -> list[Stage]:
        """Return the stages, and all elementwise ones that only they read and that are rather computed
        again than stored."""
        for stage in stages:  # grows on the way
            for producer in self._producers(stage):
                if producer not in stages and self._may_join(producer, stages) and self._recomputed(producer):
                    stages.append(producer)
        return stages

    def _producers(self, stage: Stage) -> list[Stage]:
        found = dict.fromkeys(self.s[tensor] for tensor in stage.op.input_tensors)
        return [producer for producer in found if isinstance(producer.op, ComputeOp)]

    def _may_join(self, producer: Stage, stages: list[Stage]) -> bool:
        """Return whether nobody but ``stages`` needs a stage of one tensor, and loops may compute it anywhere."""
        op = producer.op
        if (
            producer.is_output
            or isinstance(op, SequentialOp)
            or len(op.dtypes) > 1
            or op.name in self._inside
        ):
            return False
        return all(reader in stages for reader in self.s.readers_of(producer))

    def _recomputed(self, stage: Stage) -> bool:
        """Return whether an elementwise stage is read once, or costs next to nothing."""
        op = stage.computed("automatic")
        if op.reduction is not None:
            return False
        parts = [node for expr in op.body for node in nodes(expr)]
        cheap = operations(op) <= _CHEAP and not any(isinstance(node, Call | Select) for node in parts)
        return cheap or sum(self._uses(stage, reader) for reader in self.s.readers_of(stage)) <= 1

    def _on_the_way(self, stage: Stage) -> bool:
        """Return whether each reader takes an element about once, so that it may be computed with the
        rows of its readers."""
        once = all(self._uses(stage, reader) <= 1 for reader in self.s.readers_of(stage))
        return once or bool(stage.op.reduce_axis) or self._recomputed(stage)

    def _uses(self, stage: Stage, reader: Stage) -> float:
        """Return the number of times that a reader takes an element."""
        found = [read for expr in reader.computed("automatic").body for read in reads(expr)]
        distinct = {expr_text(read) for read in found if self.s[read.tensor] is stage}
        return len(distinct) * _points(reader) / max(1, math.prod(stage.op.shape))

    # -- the region as a program ----------------------------------------------------------------------------

    def _program(self, stages: Iterable[Stage], stored: Stage) -> ProgramWorkload | None:
        """Return the region as a program, the others being inputs; None where one of these has several tensors."""
        chosen = set(stages)
        tensors: dict[Stage, Tensor] = {}
        for stage in (stage for stage in self.s.order() if stage in chosen):
            sources = [self.s[tensor] for tensor in stage.op.input_tensors]
            if any(len(source.op.dtypes) > 1 for source in sources):
                return None
            for source in sources:
                if source not in tensors:
                    shape, (dtype,) = source.op.shape, source.op.dtypes
                    tensors[source] = te.placeholder(shape, dtype, name=source.op.name)
            op = stage.computed("automatic")
            for tensor, source in zip(stage.op.input_tensors, sources, strict=True):
                op = with_reads(op, partial(eq, tensor), partial(Read, tensors[source]))
            tensors[stage] = op.output(0)
        results = tensors[stored].op
        inputs = [tensor for tensor in tensors.values() if isinstance(tensor.op, PlaceholderOp)]
        return ProgramWorkload.of(
            [*inputs, *(results.output(number) for number in range(len(results.dtypes)))]
        )


def _points(stage: Stage) -> int:
    op = stage.computed("automatic")
    return math.prod(axis.extent for axis in op.axis + op.reduce_axis)


def _one_by_one(reader: Stage, producer: Stage, schedule: Schedule) -> bool:
    """Return whether a reader takes the element of its own indices, and no other."""
    op = reader.computed("automatic")
    found = [read for expr in op.body for read in reads(expr) if schedule[read.tensor] is producer]
    return producer.op.shape == op.shape and all(
        index is axis or axis.extent == 1
        for read in found
        for index, axis in zip(read.indices, op.axis, strict=True)
    )


__all__ = ["Division", "ProgramRegion"]
