"""Software prefetch of inputs.

Hardware prefetchers start anew in every page, and cannot follow rows that are looked up in an index. The knob ``ahead``
is the prefetch distance in bytes of inputs that come from beyond a core's own cache; 0 leaves it to the hardware.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.schedule.knob import Knob
from autotune.schedule.knob_value import ceil_div, maximum
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor
from search_spaces.analysis import ReadForm, read_forms
from search_spaces.tile.common import item_bytes

_DISTANCES = (512, 1024, 2048, 4096)


def prefetch_knob(distances: Sequence[int] = _DISTANCES, *, always: bool = False) -> Knob:
    """Return the knob of the prefetch distance; not 0 if there ``always`` is one."""
    values = tuple(distances) if always else (0, *distances)
    return Knob.of("ahead", values, values[0], "prefetch distance of far inputs in bytes")


def far_reads(stages: Sequence[ComputeOp], least: int, shape: tuple[int, ...]) -> list[ReadForm]:
    """Return reads of inputs of at least ``least`` bytes by stages of ``shape``: as many elements, or looked-up rows.

    Only inputs that are always read at the same place, along their lines: what an iteration reads of others is not
    one piece.
    """
    found: dict[Tensor, list[ReadForm]] = {}
    fetched = set()
    for op in stages:
        for read in read_forms(op):
            known = found.setdefault(read.tensor, [])
            known += [read] if read not in known else []
            size = math.prod(read.tensor.shape)
            wide = op.shape == shape and (bool(read.looked_up) or size >= math.prod(op.shape))
            far = isinstance(read.tensor.op, PlaceholderOp) and size * item_bytes(read.tensor) >= least
            if wide and far and _in_one_piece(read, op):
                fetched.add(read.tensor)
    return [reads[0] for tensor, reads in found.items() if tensor in fetched and len(reads) == 1]


def _in_one_piece(read: ReadForm, op: ComputeOp) -> bool:
    """Return whether what a vector of the last axis reads is a piece of a line, in a row that is known or looked up."""
    last = op.axis[-1].name if op.axis else ""
    return read.regular and read.contiguous == last and last not in read.looked_up


def iterations(distance: Any, nbytes: Any) -> Any:
    """Return the iterations of ``nbytes`` that are ``distance`` bytes, at least one; numbers or knob values."""
    return maximum(1, ceil_div(distance, maximum(1, nbytes)))


__all__ = ["far_reads", "iterations", "prefetch_knob"]
