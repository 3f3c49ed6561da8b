"""The rows of a region that reduces along contiguous elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.te.tensor import ComputeOp, post_order
from search_spaces.analysis import read_forms

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.te.expr import IterVar


@dataclass(frozen=True)
class RowShape:
    """``rank`` leading axes of the output number the rows; ``width`` is the reduced last extent."""

    stages: tuple[ComputeOp, ...]
    output: ComputeOp
    rank: int
    width: int

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return max(1, math.prod(self.output.shape[: self.rank]))

    @cached_property
    def reductions(self) -> tuple[ComputeOp, ...]:
        """The stages that reduce."""
        return tuple(op for op in self.stages if op.reduction is not None)

    @cached_property
    def columns(self) -> int:
        """Elements of a row that a reduction reads."""
        return max(math.prod(a.extent for a in op.reduce_axis) for op in self.reductions)

    @cached_property
    def wide(self) -> tuple[str, ...]:
        """Elementwise stages as wide as a row, before the output."""
        return tuple(
            op.name
            for op in self.stages
            if op is not self.output and op.reduction is None and math.prod(op.shape) > self.rows
        )

    @property
    def wide_output(self) -> bool:
        """Return whether the output has rows, not one element of each."""
        return math.prod(self.output.shape) > self.rows

    @cached_property
    def stored_rows(self) -> tuple[str, ...]:
        """The wide stages with several readers, which may be stored once or recomputed by each."""
        return tuple(name for name in self.wide if self.readers(name) > 1)

    def readers(self, name: str) -> int:
        """Return the number of stages that read the stage called ``name``."""
        return sum(any(tensor.op.name == name for tensor in op.input_tensors) for op in self.stages)


def row_shape(workload: AnyWorkload) -> RowShape | None:
    """Return the rows of a region, or None where it does not reduce along contiguous rows of one output."""
    program = workload.expressions
    output = program.outputs[0].op
    if len({id(t.op) for t in program.outputs}) > 1 or not isinstance(output, ComputeOp):
        return None
    order = [op for op in post_order(list(program.outputs)) if isinstance(op, ComputeOp)]
    reductions = [op for op in order if op.reduction is not None]
    if not reductions or any(len(op.body) != 1 for op in order if op.reduction is None):
        return None
    rank = min(len(op.shape) for op in (*reductions, output))
    while rank and any(op.shape[:rank] != output.shape[:rank] for op in reductions):
        rank -= 1
    if any(math.prod(op.shape[rank:]) != 1 for op in reductions):
        return None
    if output.reduction is not None and math.prod(output.shape[rank:]) != 1:
        return None
    widths = {None if (line := line_axis(op)) is None else line.extent for op in reductions}
    width = widths.pop()
    if 0 in output.shape or width is None or widths:
        return None
    return RowShape(tuple(order), output, rank, width)


def line_axis(op: ComputeOp) -> IterVar | None:
    """Return the reduce axis that walks along the lines of everything that it moves in, the last one if
    there are several."""
    return next((axis for axis in reversed(op.reduce_axis) if _along_lines(op, axis)), None)


def _along_lines(op: ComputeOp, axis: IterVar) -> bool:
    reads = [read for read in read_forms(op) if axis.name in read.axes]
    return bool(reads) and all(read.contiguous == axis.name for read in reads) and not axis.start


__all__ = ["RowShape", "line_axis", "row_shape"]
