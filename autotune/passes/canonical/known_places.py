"""Gather of known places: what takes them at equal distances is a Slice, with a Reshape and Transpose around.

Exporters write ``x[i]``, the halves of a tensor and its division into windows as Gather with constant indices, which
copies. A Slice is a part of its operand's memory, or is fused with what reads it (``views``, ``fuse``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autotune.graph.ir import Array, Node
from autotune.passes.attributes import integer
from autotune.passes.canonical.rearrange import rearranged
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class Lattice:
    """Places ``start``, ``start + step``, ...: their axes are of ``sizes``, and come in the order ``perm``."""

    start: int
    step: int
    sizes: tuple[int, ...]
    perm: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of places."""
        return math.prod(self.sizes)


def lattice(places: Array) -> Lattice | None:
    """Return places as a lattice that visits each once; None where they are none.

    >>> lattice(np.array([[0, 2], [1, 3]]))
    Lattice(start=0, step=1, sizes=(2, 2), perm=(1, 0))
    >>> lattice(np.array([0, 1, 3])) is None
    True
    """
    axes = [axis for axis, extent in enumerate(places.shape) if extent > 1]
    start = int(places.flat[0])
    steps = [int(np.take(places, 1, axis).flat[0]) - start for axis in axes]
    offsets = np.full(places.shape, start)
    for axis, step in zip(axes, steps, strict=True):
        along = np.arange(places.shape[axis]) * step
        offsets += along.reshape([-1 if d == axis else 1 for d in range(places.ndim)])
    if not np.array_equal(offsets, places):
        return None
    order = sorted(range(len(axes)), key=lambda i: -abs(steps[i]))
    sizes = tuple(places.shape[axes[i]] for i in order)
    step = steps[order[-1]] if order else 1
    for i, inner in pairwise(order):
        if steps[i] != steps[inner] * places.shape[axes[inner]]:
            return None
    if step == 0:
        return None
    return Lattice(start, step, sizes, tuple(order.index(i) for i in range(len(axes))))


def gather_of_known_places(rewriter: Rewriter, node: Node) -> bool:
    """Rewrite a Gather of known places; a rule of :class:`~autotune.passes.canonical.simplify.Simplify`."""
    indices = rewriter.constant_of(rewriter.current(node.inputs[1]))
    x, (output,), axis = rewriter.current(node.inputs[0]), node.outputs, integer(node, "axis")
    shape = rewriter.type_of(x).shape
    if indices is None or not indices.size or 0 in shape or x in rewriter.constants:
        return False
    places = np.where(indices < 0, indices + shape[axis], indices)
    found = lattice(places) if places.min() >= 0 and places.max() < shape[axis] else None
    if found is None:
        return False
    before, after = shape[:axis], shape[axis + 1 :]
    stop = found.start + found.step * found.count
    bounds = {"starts": (found.start,), "ends": (stop if stop >= 0 else -shape[axis] - 1,)}
    how = {**bounds, "axes": (axis,), "steps": (found.step,)}
    value = rewriter.emit("Slice", [x], how, name=f"{output}.slice")
    around = (*range(axis), *(axis + i for i in found.perm))
    perm = (*around, *range(len(around), len(around) + len(after)))
    steps = [("Reshape", (*before, *found.sizes, *after)), ("Transpose", perm)]
    value = rearranged(rewriter, value, steps, f"{output}.moved")
    rewriter.become(output, "Reshape", [value], {"shape": (*before, *indices.shape, *after)})
    return True


__all__ = ["Lattice", "gather_of_known_places", "lattice"]
