"""Long sums in float32 are made of partial sums.

The error of a sum grows with the terms that are added to one accumulator (Higham, "The Accuracy of Floating Point
Summation", 1993). Where a layer's sums nearly cancel, as a batch norm takes off a mean that is larger than what varies
about it, layers that follow enlarge it, each anew. With partial sums products of 1024 to 4608 terms are 5 to 9 times as
exact, and take the time that they took.
"""

from __future__ import annotations

import math

from autotune.lower.opened import OpenFrame
from autotune.schedule.stage import Stage
from autotune.te.expr import IterVar, Reduce
from autotune.te.reductions import SUM
from autotune.te.tensor import ComputeOp

LONGEST = 128
"""Steps of a sum that are added to one accumulator, about. With 32 whole models take 2 to 4 % longer."""


def is_long_sum(stage: Stage) -> bool:
    """Return whether the elements of a stage are float32 sums of many steps that are loops, not instructions."""
    assert isinstance(stage.op, ComputeOp)
    body = stage.op.body[0]
    if not isinstance(body, Reduce) or body.reducer is not SUM or body.dtype != "float32":
        return False
    if stage.tensorized:
        return False
    return math.prod(axis.extent for axis in stage.op.reduce_axis) > LONGEST


def iterations_in_part(frame: OpenFrame, at: int, count: int) -> int:
    """Return the iterations, of ``count``, of loop ``at`` that make a partial sum; 0 where the reduction
    is not cut there."""
    leaves = frame.stage.leaf_iter_vars
    if leaves[at].kind != "reduce" or frame.stage.kind_of(leaves[at]) == "vectorized":
        return 0
    inside = math.prod(frame.extent(iv) for iv in leaves[at + 1 :] if _is_step(frame.stage, iv))
    if inside > LONGEST or count * inside <= LONGEST:
        return 0
    most = max(1, LONGEST // inside)
    divisors = [size for size in range(most, most // 2, -1) if count % size == 0]
    return divisors[0] if divisors else most


def _is_step(stage: Stage, iv: IterVar) -> bool:
    return iv.kind == "reduce" and stage.kind_of(iv) != "vectorized"


__all__ = ["LONGEST", "is_long_sum", "iterations_in_part"]
