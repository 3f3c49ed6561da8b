"""Facts of the loops of a stage about its axes when code is made, as far as no knob decides them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from autotune.schedule.arithmetic import Value
from autotune.te.expr import IterVar
from search_spaces.nest.candidates import CandidateFrame
from search_spaces.nest.counting import KnownIndex, Written
from search_spaces.nest.recorded import Quantity


def written_out(frame: CandidateFrame) -> Written:
    """Return the axes of a stage that unrolled loops are parts of."""
    found = {}
    for axis in (*frame.stage.op.axis, *frame.stage.op.reduce_axis):
        unrolled, others = list[range](), list[tuple[int, Value]]()
        for loop, step in _parts(frame, axis, 1):
            extent = frame.extent(loop)
            if not isinstance(extent, Quantity) and frame.is_kind(loop, "unrolled") is True:
                unrolled.append(range(0, int(extent) * step, step))
            elif isinstance(extent, Quantity) or extent > 1:
                others.append((step, extent))
        size = frame.sizes[axis]
        if isinstance(size, Quantity) or size != axis.extent:  # it begins anywhere
            others.append((1, math.inf))
        if unrolled:
            step, width = _unknown(others, min(numbers.step for numbers in unrolled))
            found[axis] = [KnownIndex(axis.start + sum(p), step, width) for p in itertools.product(*unrolled)]
    return found


def _unknown(loops: list[tuple[int, Value]], least: int) -> tuple[int, int]:
    """Return the multiple that loops add, by step and extent, and the number of values of those of steps
    below ``least``."""
    width: float = 1
    for step, extent in loops:
        if step < least:
            width += math.inf if isinstance(extent, Quantity) else step * (float(extent) - 1)
    if width > least:
        return min(step for step, _ in loops), 1
    return min((step for step, _ in loops if step >= least), default=0), int(width)


def _parts(frame: CandidateFrame, iv: IterVar, step: int) -> Iterator[tuple[IterVar, int]]:
    """Yield the loops that an axis is cut into, and the distance of their iterations; 1 where that is
    not one number."""
    split = frame.splits.get(iv)
    if split is None or isinstance(frame.width(split), Quantity):
        yield iv, step
        return
    width = int(frame.width(split))
    moved = frame.overlaps(split) is not False and frame.extent(iv) % width
    yield from _parts(frame, split.outer, 1 if moved else step * width)
    yield from _parts(frame, split.inner, step)


__all__ = ["written_out"]
