"""Axes with symbolic factors (:mod:`autotune.runtime.axes`): what reshaping makes of them, and where padding is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.compiler.dynamic.grown import GrownExtents
from autotune.errors import PaddingError
from autotune.graph.ir import Array
from autotune.runtime.axes import Axes, Axis, Factor, Sizes, axis, shape_text, size_of


def regrouped(axes: Axes, shape: Sequence[int], grown: GrownExtents) -> Axes:
    """Return the axes of a value after a reshape to ``shape``. Raises PaddingError where a symbolic factor would be
    split into what it is no multiple of.

    >>> sizes = {"batch": 8, "seq": 128}
    >>> grown = GrownExtents(sizes, {"batch": 1, "seq": 64}, {"seq": 64})
    >>> regrouped((("batch",), ("seq",), (64,)), (8 * 128, 4, 16), grown)
    (('batch', 'seq'), (4,), (16,))
    >>> regrouped((("batch",), ("seq",)), (8, 16, 8), grown)
    (('batch',), ('(seq)/8',), (8,))
    """
    waiting = [factor for each in axes for factor in each][::-1]
    found: list[Axis] = []
    for wanted in shape:
        taken: list[Factor] = []
        rest = wanted
        while rest > 1:
            factor = waiting.pop()
            size = size_of(factor, grown.sizes)
            if rest % size == 0:
                taken.append(factor)
                rest //= size
            elif isinstance(factor, int) and size % rest == 0:
                taken.append(rest)
                waiting.append(size // rest)
                rest = 1
            elif size % rest == 0 and (part := grown.divided(factor, size // rest)) is not None:
                taken.append(part)
                waiting.append(size // rest)
                rest = 1
            else:
                raise PaddingError(f"a reshape to {tuple(shape)} divides {shape_text(axes)}")
        found.append(axis(*taken))
    return tuple(found)


def coordinates(of: Axis, symbol: str, sizes: Sizes) -> Array:
    """Return the coordinate of each index, int64 [extent], along a symbolic factor that the axis has once."""
    shape = [size_of(factor, sizes) for factor in of]
    found: Array = np.indices(shape)[of.index(symbol)].reshape(-1)
    return found.astype(np.int64)


__all__ = ["coordinates", "regrouped"]
