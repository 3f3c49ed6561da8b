"""A trace whose arguments may be knobs, replayed once for all the candidates that share its steps.

Which stages and loops there are, and in which order, the schedule of any one of the candidates tells; how long the
loops are follows from the factors of their splits, which the steps hold as quantities of knobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import KnobError
from autotune.schedule.relations import Split
from autotune.schedule.schedule import Schedule
from autotune.schedule.trace import Step, Trace
from autotune.te.expr import IterVar
from search_spaces.nest.quantity import Quantity, combined, is_knob, value_of

_RESHAPING = ("pad_to_multiple", "peel")
"""Steps that make other loops of an argument."""


@dataclass
class Replayed:
    """A schedule of one candidate, and what differs in the others.

    ``widths`` are the factors of splits, or their ``nparts``; ``roots`` the extents of axes that a step made of
    loops. ``joined`` are, for each stage of partial results, reduction axes that are the two parts of one.
    """

    schedule: Schedule
    widths: dict[Split, Quantity] = field(default_factory=dict)
    roots: dict[IterVar, Quantity] = field(default_factory=dict)

    def width(self, split: Split) -> Quantity:
        """What was given to a split: the extent of the inner loop, or of the outer one."""
        return self.widths.get(split, split.factor or split.nparts)


def replayed(schedule: Schedule, trace: Trace, config: Mapping[str, Any]) -> Replayed:
    """Apply ``trace`` to a fresh ``schedule`` with its knobs as in ``config``, and remember what depends on them.

    Raises ScheduleError as the steps do.
    """
    walk = _Walk(schedule)
    bound(trace, config).apply(schedule)
    for step in trace.steps:
        walk.take(step)
    result = Replayed(schedule)
    for stage in schedule.stages:
        for axis in (*stage.op.axis, *stage.op.reduce_axis):
            extent = walk.extent(stage.op.name, axis.name)
            if is_knob(extent):
                result.roots[axis] = extent
        for relation in stage.relations:
            if isinstance(relation, Split):
                given = walk.widths.get((stage.op.name, relation.outer.name))
                if given is not None and is_knob(given):
                    result.widths[relation] = given
    return result


def bound(trace: Trace, config: Mapping[str, Any]) -> Trace:
    """The trace of one candidate: plain values for its knobs."""
    steps = [
        Step(step.primitive, step.stage, tuple((n, _bound(v, config)) for n, v in step.args), step.results)
        for step in trace.steps
    ]
    return Trace(tuple(steps))


def _bound(value: Any, config: Mapping[str, Any]) -> Any:
    if is_knob(value):
        found = value_of(value, config)
        return found.item() if hasattr(found, "item") else found
    return tuple(_bound(part, config) for part in value) if isinstance(value, tuple) else value


class _Walk:
    """The extents of loops by name, step by step: what later steps make axes of is gone in the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.widths: dict[tuple[str, str], Quantity] = {}
        self._schedule = schedule
        self._loops: dict[tuple[str, str], Quantity] = {
            (stage.op.name, axis.name): axis.extent
            for stage in schedule.stages
            for axis in (*stage.op.axis, *stage.op.reduce_axis)
        }

    def extent(self, stage: str, loop: str) -> Quantity:
        """The extent of a loop so far; that of the schedule's candidate where no step here made it."""
        known = self._loops.get((stage, loop))
        if known is not None:
            return known
        found = self._schedule.stage_named(stage)
        return next((iv.extent for iv in found.all_iter_vars if iv.name == loop), 1)

    def take(self, step: Step) -> None:
        """Follow one step; raises KnobError where a knob decides what this does not follow."""
        args = dict(step.args)
        if step.primitive == "split":
            factor, nparts = args.get("factor"), args.get("nparts")
            self._split(step.stage, args["parent"], step.results, factor, nparts)
        elif step.primitive == "tile":
            outer, inner = step.results[:2], step.results[2:]
            for number, axis in enumerate("xy"):
                loops = (outer[number], inner[number])
                self._split(step.stage, args[f"{axis}_parent"], loops, args[f"{axis}_factor"], None)
        elif step.primitive == "fuse":
            self._fuse(step.stage, args["order"], step.results)
        elif step.primitive == "rfactor":
            self._factor(args["tensor"], args["axis"], step.results)
        elif step.primitive == "reverse_compute_at":
            self._take_over(step.stage, args["producer"][1])
        elif step.primitive == "cache_write":
            self._rename(args["tensor"][1], step.results[0], lambda loop: (f"{loop}.c", loop))
        elif step.primitive == "cache_read":
            axes = [axis.name for axis in self._schedule.stage_named(args["tensor"][1]).op.axis]
            names = {axis: (f"ax{number}",) for number, axis in enumerate(axes)}
            self._rename(args["tensor"][1], step.results[0], lambda loop: names.get(loop, ()))
        elif any(is_knob(value) for value in args.values()) and step.primitive in _RESHAPING:
            raise KnobError(f"{step.primitive} takes no knobs where loop nests are derived: {step.text()}")

    def _split(
        self,
        stage: str,
        parent: Any,
        names: tuple[str, ...],
        factor: Quantity | None,
        nparts: Quantity | None,
    ) -> None:
        (outer, inner), extent = names, combined("max", self.extent(stage, parent[2]), 1)
        if isinstance(factor or nparts, tuple) and not is_knob(factor or nparts):
            return  # decided by a step of the schedule, which is the same for all
        if factor is not None:
            self.widths[stage, outer] = factor
            width = combined("min", factor, extent)
            self._loops[stage, outer], self._loops[stage, inner] = combined("ceil_div", extent, width), width
        elif nparts is not None:
            self.widths[stage, outer] = nparts
            count = combined("min", nparts, extent)
            self._loops[stage, outer], self._loops[stage, inner] = count, combined("ceil_div", extent, count)

    def _fuse(self, stage: str, order: Any, names: tuple[str, ...]) -> None:
        extent: Quantity = 1
        for _, _, name in order[1:]:
            extent = combined("*", extent, self.extent(stage, name))
        for name in names:
            self._loops[stage, name] = extent

    def _take_over(self, stage: str, producer: str) -> None:
        """A stage gets loops like those of its producer."""
        self._rename(producer, stage, lambda loop: (loop,))
        copied = {loop: given for (owner, loop), given in self.widths.items() if owner == producer}
        self.widths.update({(stage, loop): given for loop, given in copied.items()})

    def _factor(self, tensor: Any, axis: Any, names: tuple[str, ...]) -> None:
        """The loop becomes an axis of a new stage over the other loops, and the old stage reduces over it."""
        self._rename(tensor[1], names[0], lambda loop: (loop,))
        self._loops[tensor[1], f"{axis[2]}.v"] = self.extent(tensor[1], axis[2])

    def _rename(self, old: str, tensor: str, names: Callable[[str], Sequence[str]]) -> None:
        """What is known of the loops of a stage holds for those of a new one."""
        new = tensor.split(".v")[0]  # of several values that one stage computes
        for (stage, loop), extent in list(self._loops.items()):
            if stage == old:
                self._loops.update({(new, name): extent for name in names(loop)})


__all__ = ["Replayed", "bound", "replayed"]
