"""Work of the stages of a path: loop nests are about the one with most of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.lower.inlining import Inlined
from autotune.schedule.arithmetic import Value
from autotune.schedule.knob import Columns
from autotune.schedule.stage import Stage
from autotune.te.expr import IterVar, Reduce
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.nest.axes import roots
from search_spaces.nest.counting import operations_of
from search_spaces.nest.places import Places
from search_spaces.nest.recorded import OperationRecorder, Replay
from search_spaces.nest.regions import Indexes
from search_spaces.nest.replay import Replayed
from search_spaces.nest.written import written_out


class Shared:
    """The common part of all paths of a sketch, whose schedules are of the same program."""

    def __init__(self) -> None:
        self.indexes = Indexes()
        self.inlined: dict[tuple[object, ...], Inlined] = {}
        self.operations: dict[tuple[object, ...], float] = {}


class Work:
    """The stages of a path, and which of them has most work in each of its candidates.

    ``knobs`` are the names of all, ``constants`` those of the inputs that are known at compile time; ``shared`` is
    what is known of the program already.
    """

    def __init__(
        self, replayed: Replayed, knobs: Iterable[str], constants: frozenset[str], shared: Shared
    ) -> None:
        self._shared = shared
        self.places = Places(replayed, shared.indexes, shared.inlined)
        self.recording = OperationRecorder()
        self.knobs = {name: self.recording.knob(name) for name in knobs}
        self.frames = self.places.frames(self.knobs)
        self._constants = constants
        self._operations: dict[Stage, float] = {}

    @cached_property
    def computed(self) -> dict[Stage, list[Stage]]:
        """The kernels that run with each call: their stages by the one at the root, consumers first."""
        groups: dict[Stage, list[Stage]] = {}
        for stage in reversed(self.places.stages):
            groups.setdefault(root_of(stage), []).append(stage)
        return {root: group for root, group in groups.items() if not self._hoisted(group)}

    def operations(self, stage: Stage) -> float:
        """Return arithmetic of one element of a stage, or of one step of a reduction, in vector instructions."""
        if stage not in self._operations:
            body = self.places.bodies[stage]
            sources = body[0].sources if isinstance(body[0], Reduce) else body
            frame = self.frames[stage]
            inner = roots(stage, stage.leaf_iter_vars[-1]) if stage.leaf_iter_vars else []
            written = written_out(frame)
            key = tuple(sources), tuple((axis, *values) for axis, values in written.items()), tuple(inner)
            known = self._shared.operations.get(key)
            if known is None:
                known = self._shared.operations[key] = operations_of(sources, written, inner)
            self._operations[stage] = known
        return self._operations[stage]

    def mains(self, columns: Columns, n: int) -> list[tuple[NDArray[np.intp], Stage]]:
        """Return the stages with most work in some of ``n`` candidates, each with the rows of these."""
        if len(self._heavy) == 1:
            return [(np.arange(n), self._heavy[0])]
        work = np.stack([np.broadcast_to(one, n) for one in self._program.run(columns)])
        most = np.argmax(work, axis=0)
        return [(np.flatnonzero(most == number), self._heavy[number]) for number in np.unique(most)]

    @cached_property
    def _heavy(self) -> list[Stage]:
        """Reductions come before what prepares or finishes them."""
        stages = [stage for group in self.computed.values() for stage in group]
        return [stage for stage in stages if stage.op.reduce_axis] or stages

    @cached_property
    def _program(self) -> Replay:
        """Return the program of the arithmetic of those stages."""
        return self.recording.program([self._steps(s) * max(1, self.operations(s)) for s in self._heavy])

    def _steps(self, stage: Stage) -> Value:
        """Return iterations of all loops around what a stage computes."""
        return math.prod(self.frames[at].extent(loop) for at, loops in around(stage) for loop in loops)

    def _hoisted(self, group: Sequence[Stage]) -> bool:
        """Return whether a kernel reads compile-time constants only."""
        if any(stage.is_output for stage in group):
            return False
        schedule = self.places.replayed.schedule
        read = [schedule[r.tensor] for stage in group for r in self.places.reads[stage]]
        outside = [s for s in read if s not in group]
        return bool(outside) and all(self._constant(s) for s in outside)

    def _constant(self, stage: Stage) -> bool:
        if isinstance(stage.op, PlaceholderOp):
            return stage.op.name in self._constants
        inputs = [self.places.replayed.schedule[t] for t in stage.op.input_tensors]
        return isinstance(stage.op, ComputeOp) and bool(inputs) and all(self._constant(s) for s in inputs)


def root_of(stage: Stage) -> Stage:
    """Return the stage at the root that a stage is computed inside of."""
    while stage.attach_stage is not None:
        stage = stage.attach_stage
    return stage


def around(stage: Stage) -> list[tuple[Stage, Sequence[IterVar]]]:
    """Return a stage with all its loops, and before it those that it is computed in with the loops around it."""
    found: list[tuple[Stage, Sequence[IterVar]]] = [(stage, stage.leaf_iter_vars)]
    while stage.attach_stage is not None and stage.attach_ivar is not None:
        parent = stage.attach_stage
        count = parent.leaf("derive", stage.attach_ivar) + 1
        found.insert(0, (parent, parent.leaf_iter_vars[:count]))
        stage = parent
    return found


__all__ = ["Shared", "Work", "around", "root_of"]
