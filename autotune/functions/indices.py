"""Indices that a schedule's code reads from its arguments and workspaces: checked as it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from autotune.runtime.image import Binding, IndexCheck
from autotune.strides import dense_strides, strided_runs
from autotune.te.accesses import Lookup, checked
from autotune.te.tensor import ComputeOp, post_order

if TYPE_CHECKING:
    from autotune.codegen.code import DispatchCode
    from autotune.schedule.schedule import Schedule


@dataclass(frozen=True)
class PlacedLookup:
    """A lookup whose indices lie in buffer number ``buffer`` of the code, complete before kernel ``kernel`` runs."""

    lookup: Lookup
    buffer: int
    kernel: int


def placed_lookups(schedule: Schedule, code: DispatchCode) -> list[PlacedLookup]:
    """Return the lookups of a program whose indices the code has in memory as a whole.

    They are those of the program as it was written: what a schedule copies into a cache is the same indices.
    """
    program = post_order([op.output(0) for op in schedule.outputs])
    lookups = [one for op in program if isinstance(op, ComputeOp) for one in checked(op).lookups]
    found = []
    for lookup in lookups:
        buffer = _buffer_of(schedule, lookup, code)
        if buffer is None:
            continue
        kernels = [n for n, kernel in enumerate(code.kernels) if buffer in kernel.buffers]
        readers = kernels if code.buffers[buffer].role == "input" else kernels[1:]
        found += [PlacedLookup(lookup, buffer, readers[0])] if readers else []
    return found


def _buffer_of(schedule: Schedule, lookup: Lookup, code: DispatchCode) -> int | None:
    """Return the number of the buffer that holds the indices as they were written, if there is one."""
    tensor = lookup.indices
    stage = schedule[tensor]
    whole = all(side == (0, extent - 1) for side, extent in zip(lookup.box, tensor.shape, strict=True))
    if not whole and isinstance(stage.op, ComputeOp) and stage.op is not tensor.op:
        return None  # a part of them may lie elsewhere in a layout of the schedule's
    if stage.op.shape != tensor.shape or stage.alignments or stage.attach_type != "root":
        return None
    names = {schedule.name_of(tensor), stage.op.output(tensor.value_index).name}
    numbers = (n for n, spec in enumerate(code.buffers) if spec.name in names and spec.shape == tensor.shape)
    return next(numbers, None)


def index_checks(lookups: Sequence[PlacedLookup], bindings: Sequence[Binding]) -> Iterator[IndexCheck]:
    """Yield the same as checks of a module; ``bindings`` are those of the buffers."""
    for placed in sorted(lookups, key=lambda one: one.kernel):
        lookup = placed.lookup
        width = np.dtype(lookup.indices.dtype).itemsize
        strides = dense_strides(lookup.indices.shape)
        shape = [high - low + 1 for low, high in lookup.box]
        start = sum(low * step for (low, _), step in zip(lookup.box, strides, strict=True))
        for first, runs, stride, count in strided_runs(shape, strides):
            where = bindings[placed.buffer]
            binding = replace(
                where,
                offset=where.offset + (start + first) * width,
                nbytes=((runs - 1) * stride + count) * width,
            )
            extent = lookup.tensor.shape[lookup.axis]
            yield IndexCheck(
                placed.kernel, 0, binding, width, runs, stride * width, count, extent, lookup.axis
            )


__all__ = ["PlacedLookup", "index_checks", "placed_lookups"]
