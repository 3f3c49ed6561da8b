"""Steps that all row-wise recipes share: a row in vectors, and its reduction by vectors of partial results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.te.reductions import shipped_name
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.rows.shape import line_axis

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.te.expr import IterVar


def vectorize_row(stage: Stage, axes: Sequence[IterVar], lanes: int, count: Any) -> IterVar | None:
    """Vectorise the last of ``axes`` in steps of ``count`` vectors; returns the loop over the steps."""
    if not axes or axes[-1].extent < 2:
        return None
    width = min(lanes, axes[-1].extent)
    steps, inner = stage.split(axes[-1], factor=count * width)
    vectors, last = stage.split(inner, factor=width)
    stage.unroll(vectors)
    stage.vectorize(last)
    return steps


def fetch_next_row(stage: Stage, steps: IterVar) -> None:
    """Fetch the row after the one that ``stage`` computes in ``steps``, which follows in memory.

    Arithmetic then hides the way of a row to the core; without it the first pass over the next row waits.
    """
    assert isinstance(stage.op, ComputeOp)
    for tensor in stage.op.input_tensors:
        if isinstance(tensor.op, PlaceholderOp) and tensor.shape == stage.op.shape:
            stage.prefetch(tensor, steps, steps.extent)


def partial_vectors(schedule: Schedule, stage: Stage, lanes: int, count: Any) -> list[Stage]:
    """Reduce the lines of what is read into ``count`` vectors of partial results, add those up, then the lanes.

    Of a row that is not whole vectors only the last step has idle lanes, which take a mask a vector.

    Returns the new stages, each read by the next and the last one by ``stage``, to be attached by the caller.
    """
    assert isinstance(stage.op, ComputeOp)
    last = line_of(stage)
    width = min(lanes, last.extent)
    steps, inner = stage.split(last, factor=count * width)
    partial = [_factor(schedule, stage, inner, width)]
    if last.extent % (count * width) != 0 and steps.extent > 1:
        assert isinstance(partial[0].op, ComputeOp)
        partial[0].peel(partial[0].op.reduce_axis[-1], last=1)
    if count > 1:  # add the vectors up before the lanes
        _, rest = stage.split(stage.op.reduce_axis[-1], factor=width)
        total = _factor(schedule, stage, rest, width)
        assert isinstance(total.op, ComputeOp)
        total.unroll(total.op.reduce_axis[-1])  # so that the vectors stay in registers
        partial.append(total)
    if folds_lanes(stage.op):
        stage.vectorize(stage.op.reduce_axis[-1])
    return partial


def line_of(stage: Stage) -> IterVar:
    """Return the reduce axis along the lines that a stage reads, as its innermost one; the last where there is none."""
    assert isinstance(stage.op, ComputeOp)
    *others, last = stage.op.reduce_axis
    line = line_axis(stage.op)
    if line is None or line is last:
        return last
    stage.reorder(*(axis for axis in others if axis is not line), last, line)
    return line


def folds_lanes(op: ComputeOp) -> bool:
    """Return whether the lanes of a register can be reduced together; else (argmax) one after the other."""
    return op.reduction is not None and shipped_name(op.reduction.reducer) != ""


def attach(stages: Sequence[Stage], parent: Stage, loop: IterVar) -> None:
    """Compute stages, each read by the next, inside a loop, in registers or on the stack."""
    for stage in reversed(stages):  # readers first
        stage.compute_at(parent, loop)
        stage.set_scope("local")


def _factor(schedule: Schedule, stage: Stage, loop: IterVar, width: int) -> Stage:
    """Make ``loop`` a vectorised axis of a stage of partial results."""
    assert isinstance(stage.op, ComputeOp)
    made = schedule.rfactor(stage.tensor, loop, factor_axis=len(stage.op.axis))
    partial = schedule[made[0] if isinstance(made, list) else made]  # of a tuple reduction all in one stage
    assert isinstance(partial.op, ComputeOp)
    *rows, factored = partial.op.axis
    vectors, lanes = partial.split(factored, factor=width)
    partial.reorder(*rows, *partial.op.reduce_axis, vectors, lanes)
    partial.unroll(vectors)
    partial.vectorize(lanes)
    return partial


__all__ = ["attach", "fetch_next_row", "folds_lanes", "line_of", "partial_vectors", "vectorize_row"]
