"""CumSum, CumProd (x): axis (default 0), exclusive (default 0), reverse (default 0): sums or products so far.

An exclusive one leaves the element itself out, a reverse one begins at the end. float16 and bfloat16 are summed in
float32. te: a sequential kernel walks along the axis with up to 64 neighbours side by side, or with up
to 8 rows where the axis is the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, accumulated_in, at, complete_axis, delinear, int_attr
from autotune.graph.ops.definition import Arrays, Attribute, OpDef, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.te.sequential import sequential
from autotune.te.statements import Steps

_BLOCK = 64
"""At most so many neighbouring elements are summed side by side."""
_ROWS = 8
"""So many rows are summed side by side where the axis is the last one: a sum waits for the one before."""
_LANES = 16


def _infer(name: str, types: Types) -> list[TensorType]:
    x = at(types, 0)
    if x.dtype == "bool":
        raise GraphError(f"{name} does not take bool")
    return [x.dense]


def _reference(fold: Any, neutral: int, arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, axis = at(arrays, 0), int_attr(attrs, "axis")
    wide = x.astype(accumulated_in(x.dtype.name))
    if int_attr(attrs, "reverse"):
        wide = np.flip(wide, axis)
    found = fold(wide, axis=axis, dtype=wide.dtype)
    if int_attr(attrs, "exclusive"):
        first = np.full_like(np.take(found, [0], axis=axis), neutral)
        found = np.concatenate([first, np.delete(found, -1, axis=axis)], axis=axis)
    if int_attr(attrs, "reverse"):
        found = np.flip(found, axis)
    return [np.ascontiguousarray(found.astype(x.dtype))]


def _compute(
    neutral: int, product: bool, tensors: Tensors, attrs: Attrs, names: Sequence[str]
) -> list[te.Tensor]:
    x, axis = at(tensors, 0), int_attr(attrs, "axis")
    reverse, exclusive = bool(int_attr(attrs, "reverse")), bool(int_attr(attrs, "exclusive"))
    size, wide = x.shape[axis], accumulated_in(x.dtype)
    sides = _sides(x.shape, axis)
    count = math.prod(sides)

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        totals = steps.scratch((count,), wide, "totals")

        def each(body: Callable[[Expr], None]) -> None:
            """Visit each sum of the point, neighbours in vectors."""
            lanes = _LANES if sides[-1] % _LANES == 0 else 1
            with steps.loop(count // lanes, "block", "unrolled") as block:
                if lanes == 1:
                    body(block)
                    return
                with steps.loop(lanes, "lane", "vectorized") as lane:
                    body(block * lanes + lane)

        each(lambda side: steps.store(totals, (side,), te.const(neutral, wide)))
        with steps.loop(size, "t") as t:
            place = size - 1 - t if reverse else t

            def step(side: Expr) -> None:
                index = [p * own + d for p, own, d in zip(point, sides, delinear(side, sides), strict=True)]
                index[axis] = place
                value = te.cast(x(*index), wide)
                after = totals(side) * value if product else totals(side) + value
                if exclusive:
                    steps.store(steps.results[0], index, totals(side))
                steps.store(totals, (side,), after)
                if not exclusive:
                    steps.store(steps.results[0], index, totals(side))

            each(step)

    apart = {dim: d // own for dim, (d, own) in enumerate(zip(x.shape, sides, strict=True)) if dim != axis}
    return sequential(x.shape, (x.dtype,), [x], build, names, apart=apart, length=size, keeps_inside=True)


def _sides(shape: Sequence[int], axis: int) -> list[int]:
    """Return the number of sums along the axis that one point takes in each dimension: divisors of the extents."""
    sides = [1] * len(shape)
    last = len(shape) - 1
    if axis != last:
        sides[last] = divisor(shape[last], _BLOCK)
    elif last:
        sides[last - 1] = divisor(shape[last - 1], _ROWS)
    return sides


def divisor(extent: int, most: int) -> int:
    """Return the largest divisor of an extent up to a number."""
    return next((d for d in range(min(most, extent), 0, -1) if extent % d == 0), 1)


def _scan(name: str, fold: Any, neutral: int, *, product: bool) -> OpDef:
    return define(
        name,
        "sequential",
        (1, 1),
        lambda types, attrs: _infer(name, types),
        partial(_reference, fold, neutral),
        partial(_compute, neutral, product),
        {"axis": Attribute("int", 0), "exclusive": Attribute("int", 0), "reverse": Attribute("int", 0)},
        complete_axis,
    )


_scan("CumSum", np.cumsum, 0, product=False)
_scan("CumProd", np.cumprod, 1, product=True)
