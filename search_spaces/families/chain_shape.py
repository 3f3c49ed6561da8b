"""A chain of anchors as links: each anchor with what is done to its result and to its operand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from autotune.te.tensor import ComputeOp
from search_spaces.analysis import depends, structure

if TYPE_CHECKING:
    from autotune.graph.region import RegionProgram


_IMAGE_AXES = 2
_SHORT = 3
"""Steps of a window along one axis."""


@dataclass(frozen=True)
class Link:
    """An anchor, the stage ``stored`` that finishes it, and the ``padding`` that prepares its operand.

    The others of its stages are computed where they are read.
    """

    anchor: ComputeOp
    stored: ComputeOp
    padding: ComputeOp | None

    @property
    def window(self) -> int:
        """Steps of the reduction along all axes but the last."""
        return math.prod(axis.extent for axis in self.anchor.reduce_axis[:-1])

    @property
    def of_pool(self) -> bool:
        """Return whether a window slides over each channel alone."""
        return len(self.anchor.reduce_axis) == _IMAGE_AXES

    @property
    def reads_few(self) -> bool:
        """Return whether it is a short line of each channel: padding is then decided as it is read, not copied."""
        return self.of_pool and math.prod(axis.extent for axis in self.anchor.reduce_axis) <= _SHORT


def links_of(program: RegionProgram) -> tuple[Link, ...] | None:
    """Return the links of a chain of channels-last images, first to last; None where it is one of other things."""
    plan = structure(program)
    anchors = [*(op for op in plan.producers if op.reduction is not None), plan.anchor]
    if not plan.fused or not all(_is_image(op) for op in anchors):
        return None
    found = []
    for anchor, reader in pairwise([*anchors, None]):
        assert anchor is not None
        stored = plan.stored if reader is None else _finished(program, anchor, reader)
        found.append(Link(anchor, stored, _padding(anchor)))
    return tuple(found)


def _is_image(op: ComputeOp) -> bool:
    return len(op.axis) == 4 and len(op.body) == 1 and len(op.reduce_axis) > 1 and 0 not in op.shape


def _padding(anchor: ComputeOp) -> ComputeOp | None:
    """Return the stage that gives the anchor its padded operand, if one does."""
    padded = [t.op for t in anchor.input_tensors if t.name.endswith(".pad")]
    return padded[0] if padded and isinstance(padded[0], ComputeOp) else None


def _finished(program: RegionProgram, anchor: ComputeOp, reader: ComputeOp) -> ComputeOp:
    """Return the last stage before ``reader`` that goes on with the anchor's result element by element."""
    found = anchor
    for op in structure(program, reader).producers:
        if op.reduction is None and depends(op, anchor):
            alone = replace(program, outputs=(op.output(0),))
            if structure(alone, anchor).fused:
                found = op
    return found


__all__ = ["Link", "links_of"]
