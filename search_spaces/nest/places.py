"""The loops of every stage of a schedule, as they are where the stage is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from autotune.lower.attached import attached_inside
from autotune.lower.inlining import Inlined, inlined_bodies
from autotune.schedule.arithmetic import Value, common_divisor
from autotune.schedule.knob_expression import evaluate
from autotune.schedule.stage import Stage
from autotune.te.expr import Binary, Const, Expr, IterVar, Read, const
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.nest.candidates import CandidateFrame, Knobs
from search_spaces.nest.regions import Box, Boxes, Indexes
from search_spaces.nest.replay import Replayed


class Places:
    """Stages that have loops, their reads through inlined ones, and the frames of a population."""

    def __init__(
        self,
        replayed: Replayed,
        indexes: Indexes | None = None,
        inlined: dict[tuple[object, ...], Inlined] | None = None,
    ) -> None:
        self.replayed = replayed
        order = replayed.schedule.order()
        self.bodies, self.epilogues = inlined_bodies(order, inlined)
        self.stages = [s for s in order if s.attach_type != "inline" and isinstance(s.op, ComputeOp)]
        self.indexes = indexes or Indexes()

    @cached_property
    def reads(self) -> Mapping[Stage, Sequence[Read]]:
        """All that each stage reads, stages inlined into it included."""
        found: dict[Stage, list[Read]] = {}
        for stage in self.stages:
            last = (self.epilogues[stage],) if stage in self.epilogues else ()
            exprs = (*self.bodies[stage], *last)
            found[stage] = [read for expr in exprs for read in self.indexes.reads(expr)]
        return found

    @cached_property
    def uses(self) -> Mapping[Stage, Sequence[tuple[Stage, Read]]]:
        """Who reads each stage, and how."""
        found: dict[Stage, list[tuple[Stage, Read]]] = {stage: [] for stage in self.stages}
        for reader, all_reads in self.reads.items():
            for read in all_reads:
                source = self.replayed.schedule[read.tensor]
                if not isinstance(source.op, PlaceholderOp):
                    found[source].append((reader, read))
        return found

    def frames(self, knobs: Knobs) -> dict[Stage, CandidateFrame]:
        """Return the loops of each stage for the candidates in ``knobs``."""
        found: dict[Stage, CandidateFrame] = {}
        waiting = list(reversed(self.stages))
        while waiting:
            ready = [s for s in waiting if s.attach_stage is None or s.attach_stage in found]
            for stage in ready:
                if stage.attach_stage is None:
                    found[stage] = self._frame(stage, knobs, [Box(e) for e in self.shape(stage, knobs)])
            for parent, iv in {(s.attach_stage, s.attach_ivar): None for s in ready if s.attach_stage}:
                assert parent is not None
                assert iv is not None
                for stage, region in self._regions(found[parent], iv, knobs).items():
                    if stage.attach_stage is parent and stage.attach_ivar is iv:
                        found[stage] = self._frame(stage, knobs, region)
            waiting = [stage for stage in waiting if stage not in found]
        return found

    def _frame(self, stage: Stage, knobs: Knobs, region: Sequence[Box]) -> CandidateFrame:
        sizes = dict(zip(stage.op.axis, (box.size for box in region), strict=True))
        sizes |= {axis: self._root(axis, knobs) for axis in stage.op.reduce_axis}
        return CandidateFrame(self.replayed, stage, knobs, sizes, finishes=stage in self.epilogues)

    def _root(self, axis: IterVar, knobs: Knobs) -> Value:
        extent = self.replayed.roots.get(axis)
        return axis.extent if extent is None else evaluate(extent, knobs)

    def shape(self, stage: Stage, knobs: Knobs) -> list[Value]:
        """Return the number of elements of a stage along each of its axes."""
        return [self._root(axis, knobs) for axis in stage.op.axis]

    def _regions(self, frame: CandidateFrame, iv: IterVar, knobs: Knobs) -> dict[Stage, list[Box]]:
        """Return the needs of one iteration of a loop of the stages that are computed inside of it."""
        at = frame.stage.leaf("derive", iv)
        inside = attached_inside(self.stages, frame.stage, at)
        boxes: dict[Stage, Boxes] = {frame.stage: self._boxes(frame, at)}
        regions: dict[Stage, list[Box]] = {}
        for stage in reversed(self.stages):
            if stage in inside:
                uses = [(read, boxes[reader]) for reader, read in self.uses[stage]]
                regions[stage] = self._required(stage, uses, knobs)
                whole = dict(zip(stage.op.axis, regions[stage], strict=True))
                whole |= {a: Box(self._root(a, knobs), {}, a.start) for a in stage.op.reduce_axis}
                boxes[stage] = whole
        return regions

    def _required(self, stage: Stage, uses: Sequence[tuple[Read, Boxes]], knobs: Knobs) -> list[Box]:
        """Return the needs of reads of a stage."""
        shape, pieces = self.shape(stage, knobs), self.replayed.panels.get(stage.op.name)
        if pieces is None:
            return self.indexes.required(shape, uses)
        return self.indexes.panels(pieces, shape, [(self.unpacked(r)[0], boxes) for r, boxes in uses], knobs)

    def unpacked(self, read: Read) -> tuple[Read, bool]:
        """Return a read of panels as a read of what was packed into them, and whether it is one of panels."""
        producer = self.replayed.schedule[read.tensor]
        pieces = self.replayed.panels.get(producer.op.name)
        if pieces is None:
            return read, False
        (source,) = producer.op.input_tensors
        indices: list[Expr] = [const(0)] * len(source.shape)
        for (old, _, _), index in zip(pieces, read.indices, strict=True):
            if isinstance(index, Const):
                continue  # a quotient or a remainder that is always the same: the other piece says all
            piece = isinstance(index, Binary) and index.op in ("//", "%")
            indices[old] = index.a if isinstance(index, Binary) and piece else index
        return Read(source, tuple(indices)), True

    def _boxes(self, frame: CandidateFrame, at: int) -> Boxes:
        """Return the ranges of the axes of a stage once its loops up to number ``at`` are open."""
        inside = frame.inside(frame.stage.leaf_iter_vars[: at + 1])
        found = {}
        for axis in (*frame.stage.op.axis, *frame.stage.op.reduce_axis):
            begin: dict[Expr, int] = {axis: 1} if inside.touched(axis) is not False else {}
            grain, size = inside.reach(axis)
            found[axis] = Box(size, begin, axis.start, common_divisor(grain, axis.start))
        return found


__all__ = ["Places"]
