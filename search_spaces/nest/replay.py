"""A trace whose arguments may be knobs, replayed once for all the candidates that share its steps.

Which stages and loops there are, and in which order, the schedule of any one of the candidates tells; how long the
loops are follows from the factors of their splits, which the steps hold as expressions of knobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune import te
from autotune.errors import KnobError
from autotune.schedule.index_map import IndexMap, Piece
from autotune.schedule.knob_expression import Expression, combined_expression, is_expression
from autotune.schedule.relations import Fuse, Relation, Split
from autotune.schedule.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.schedule.trace import WHEN, Step, Trace
from autotune.te.expr import IterVar
from autotune.te.instructions import KernelCall
from search_spaces.nest.matrix_unit import loops_around, tiles_of

_RESHAPING = ("pad_to_multiple",)
"""Steps after which the extents of axes that knobs decide are not known."""
_KINDS = {"parallel": "parallel", "unroll": "unrolled", "vectorize": "vectorized"}


@dataclass
class Replayed:
    """A schedule of one candidate, and what differs in the others.

    ``tails`` are what splits do with the rest; ``roots`` the extents of axes that a step made of loops. ``kinds`` says
    of annotated loops when they are parallel, unrolled or vectorized, ``distances`` how many iterations ahead a stage
    fetches a tensor at a loop, ``panels`` of copies that are laid out in pieces of dimensions what each of theirs is a
    piece of.
    """

    schedule: Schedule
    tails: dict[Split, Expression] = field(default_factory=dict)
    roots: dict[IterVar, Expression] = field(default_factory=dict)
    kinds: dict[IterVar, dict[str, Expression]] = field(default_factory=dict)
    distances: dict[tuple[str, str, str], Expression] = field(default_factory=dict)
    panels: dict[str, Sequence[Piece]] = field(default_factory=dict)

    def tail(self, split: Split) -> Expression:
        """Return the treatment of a split's rest: a text, or an expression of knobs."""
        return self.tails.get(split, split.tail)

    def is_kind(self, stage: Stage, iv: IterVar, kind: str) -> Expression:
        """Return whether a loop runs so: a bool, or an expression of knobs."""
        return self.kinds.get(iv, {stage.kind_of(iv): True}).get(kind, False)


def followed(schedule: Schedule, trace: Trace) -> Replayed:
    """Return the dependence on knobs of a ``schedule`` to which ``trace`` was applied.

    Raises KnobError for knobs that decide what is not followed here.
    """
    walk = _Walk(schedule)
    for step in trace.steps:
        walk.take(step)
    result = Replayed(schedule, distances=walk.distances, panels=walk.panels)
    for stage in schedule.stages:
        result.kinds |= _of_calls(stage)
        named = {iv: walk.kinds.get((stage.op.name, iv.name)) for iv in stage.leaf_iter_vars}
        result.kinds |= {iv: kinds for iv, kinds in named.items() if kinds}
        for axis in (*stage.op.axis, *stage.op.reduce_axis):
            extent = walk.extent(stage.op.name, axis.name)
            if is_expression(extent):
                result.roots[axis] = extent
        for relation in stage.relations:
            if isinstance(relation, Split):
                tail = walk.tails.get((stage.op.name, relation.outer.name))
                if tail is not None:
                    result.tails[relation] = tail
    return result


def calls_library(stage: Stage) -> bool:
    """Return whether a kernel of a library computes parts of a stage."""
    steps = [
        step for intrin in stage.tensorized.values() for part in intrin.instructions.values() for step in part
    ]
    return any(isinstance(step, KernelCall) for step in steps)


def _of_calls(stage: Stage) -> dict[IterVar, dict[str, Expression]]:
    """Return the loops that calls of a library or products of tiles stand for: one piece of code, its columns in
    vectors; the depth of a product of tiles is a loop."""
    if not calls_library(stage) and tiles_of(stage) is None:
        return {}
    first = min(stage.leaf("derive", loop) for loop in stage.tensorized)
    inside = [loop for loop in stage.leaf_iter_vars[first:] if loop not in loops_around(stage)]
    columns = [loop for loop in inside if loop.kind == "data"][-1]
    return {loop: {"vectorized" if loop is columns else "unrolled": True} for loop in inside}


class _Walk:
    """The extents of loops by name, step by step: what later steps make axes of is gone in the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.tails: dict[tuple[str, str], Expression] = {}
        self.kinds: dict[tuple[str, str], dict[str, Expression]] = {}
        self.distances: dict[tuple[str, str, str], Expression] = {}
        self.panels: dict[str, Sequence[Piece]] = {}
        self._schedule = schedule
        fresh = te.create_schedule(schedule.outputs).stages
        self._shapes: dict[str, tuple[Expression, ...]] = {stage.op.name: stage.op.shape for stage in fresh}
        self._copies: set[str] = set()
        self._loops: dict[tuple[str, str], Expression] = {
            (stage.op.name, axis.name): axis.extent
            for stage in fresh
            for axis in (*stage.op.axis, *stage.op.reduce_axis)
        }

    def extent(self, stage: str, loop: str) -> Expression:
        """Return the extent of a loop so far; that of the schedule's candidate where no step here made it."""
        known = self._loops.get((stage, loop))
        if known is not None:
            return known
        found = self._schedule.stage_named(stage)
        return next((iv.extent for iv in found.all_iter_vars if iv.name == loop), 1)

    def take(self, step: Step) -> None:
        """Follow one step; raises KnobError where a knob decides what this does not follow."""
        args = dict(step.args)
        for stage, relation in step.made:
            self._relate(stage, relation)
        if step.primitive == "split" and is_expression(args.get("tail")):
            self.tails[step.stage, step.results[0]] = args["tail"]
        elif step.primitive in _KINDS:
            self._annotate(step, args)
        elif step.primitive == "prefetch":
            given = combined_expression("*", args.get("offset", 1), args.get(WHEN, True))
            self.distances[step.stage, args["tensor"][1], args["var"][2]] = given
        elif step.primitive == "transform_layout":
            self._lay_out(args["tensor"][1], IndexMap(args["index_map"][1:]))
        elif step.primitive == "rfactor":
            self._factor(args["tensor"][1], args["axis"][2], args["factor_axis"], step.results[0])
        elif step.primitive == "reverse_compute_at":
            self._take_over(step.stage, args["producer"][1])
        elif step.primitive == "cache_write":
            if shape := self._shapes.get(args["tensor"][1]):  # no layout is given to a stage made by padding
                self._shapes[_stage_of(step.results[0])] = shape
            self._rename(args["tensor"][1], step.results[0], lambda loop: (f"{loop}.c", loop))
        elif step.primitive == "cache_read":
            self._copy(args["tensor"][1], step.results[0])
        elif step.primitive in _RESHAPING and self._reshapes(args):
            raise KnobError(f"{step.primitive} takes no knobs where loop nests are derived: {step.text()}")

    def _reshapes(self, args: dict[str, Any]) -> bool:
        """Return whether knobs decide how long the loops are that a step makes."""
        sizes = [self.extent(v[1], v[2]) for v in args.values() if isinstance(v, tuple) and v[0] == "loop"]
        return any(is_expression(value) for value in (*sizes, *args.values()))

    def _relate(self, stage: str, relation: Relation) -> None:
        """Follow the extents of loops that were made of others."""
        if isinstance(relation, Fuse):
            product = [self.extent(stage, loop.name) for loop in (relation.outer, relation.inner)]
            self._loops[stage, relation.fused.name] = combined_expression("*", *product)
            return
        extent = combined_expression("max", self.extent(stage, relation.parent.name), 1)
        part = combined_expression("min", relation.given, extent)
        rest = combined_expression("ceil_div", extent, part)
        outer, inner = (rest, part) if relation.factor else (part, rest)
        self._loops[stage, relation.outer.name], self._loops[stage, relation.inner.name] = outer, inner

    def _annotate(self, step: Step, args: dict[str, Any]) -> None:
        loop = (step.stage, args["var"][2])
        kinds, kind, when = self.kinds.setdefault(loop, {}), _KINDS[step.primitive], args.get(WHEN, True)
        kinds[kind] = when if kind not in kinds else combined_expression("|", kinds[kind], when)

    def _take_over(self, stage: str, producer: str) -> None:
        """Give the splits of a stage the rests of those of its producer, which they repeat."""
        copied = {loop: tail for (owner, loop), tail in self.tails.items() if owner == producer}
        self.tails.update({(stage, loop): tail for loop, tail in copied.items()})

    def _copy(self, old: str, tensor: str) -> None:
        """Give the copy of a tensor the loops and the shape that it has so far."""
        op, copy = self._schedule.stage_named(old).op, _stage_of(tensor)
        names = {axis.name: (f"ax{number}",) for number, axis in enumerate(op.axis)}
        self._rename(old, tensor, lambda loop: names.get(loop, ()))
        self._shapes[copy] = self._shapes.get(old, op.shape)
        self._copies.add(copy)

    def _factor(self, stage: str, loop: str, place: int, tensor: str) -> None:
        """Make the loop an axis of a new stage over the other loops; the old stage reduces over it."""
        extent, shape = self.extent(stage, loop), self._shapes[stage]
        self._rename(stage, tensor, lambda loop: (loop,))
        self._shapes[_stage_of(tensor)] = (*shape[:place], extent, *shape[place:])
        self._loops[stage, f"{loop}.v"] = extent
        self.kinds = {loop: kinds for loop, kinds in self.kinds.items() if loop[0] != stage}

    def _lay_out(self, stage: str, mapping: IndexMap) -> None:
        """Give a stage one loop for each new index."""
        shape, pieces = self._shapes[stage], mapping.pieces
        if stage in self._copies and any(stride != 1 or modulus != 0 for _, stride, modulus in pieces):
            self.panels[stage] = pieces
        outer = [combined_expression("ceil_div", shape[old], stride) for old, stride, _ in pieces]
        extents = [modulus or most for most, (_, _, modulus) in zip(outer, pieces, strict=True)]
        self._shapes[stage] = tuple(extents)
        self._loops.update({(stage, f"ax{number}"): extent for number, extent in enumerate(extents)})

    def _rename(self, old: str, tensor: str, names: Callable[[str], Sequence[str]]) -> None:
        """Transfer what is known of the loops of a stage to those of a new one."""
        new = _stage_of(tensor)
        for (stage, loop), extent in list(self._loops.items()):
            if stage == old:
                self._loops.update({(new, name): extent for name in names(loop)})


def _stage_of(tensor: str) -> str:
    """Return the stage that computes a tensor, one of several perhaps."""
    return tensor.split(".v")[0]


__all__ = ["Replayed", "calls_library", "followed"]
