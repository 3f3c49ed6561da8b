"""Interleave(x_0, ..., x_m): the phases of a channels-last image, woven together along its spatial axes.

With strides s, operand p (row-major over the phases p_i < s_i) holds the elements of the result whose index is p_i
modulo s_i: ``y[n, a_i*s_i + p_i, c] = x_p[n, a_i, c]``. It is the inverse of slicing with steps s_i from p_i on.
Attributes: strides, size (spatial extents of the result, each >= its stride).

te stages: one. Where views allow it, the operands are written in place and there is no operation at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, ints_attr, require_same_dtype, stage
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.facts import Part
from autotune.graph.ops.registry import define

_MANY = 1 << 16


def phases(strides: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the phases in the order of the operands."""
    return list(np.ndindex(*strides))


def phase_size(size: Sequence[int], strides: Sequence[int], phase: Sequence[int]) -> tuple[int, ...]:
    """Return the spatial extents of a phase.

    >>> phase_size((5, 4), (2, 2), (1, 0))
    (2, 2)
    """
    return tuple(-(-(o - p) // s) for o, s, p in zip(size, strides, phase, strict=True))


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    strides, size = ints_attr(attrs, "strides"), ints_attr(attrs, "size")
    first = at(types, 0)
    dtype = require_same_dtype("Interleave", types)
    fits = len(strides) == len(size) == first.rank - 2 and all(
        1 <= s <= o for s, o in zip(strides, size, strict=True)
    )
    if not fits or len(types) != math.prod(strides):
        raise GraphError(
            f"Interleave of {len(types)} operands of rank {first.rank} with strides {strides}, size {size}; it "
            "takes one operand a phase, and sizes that are not smaller than the strides"
        )
    for i, phase in enumerate(phases(strides)):
        wanted = (first.shape[0], *phase_size(size, strides, phase), first.shape[-1])
        if at(types, i).shape != wanted:
            raise GraphError(f"Interleave: phase {phase} has shape {at(types, i).shape}, expected {wanted}")
    return [TensorType((first.shape[0], *size, first.shape[-1]), dtype)]


def _part(types: Types, attrs: Attrs, index: int) -> Part:
    strides = ints_attr(attrs, "strides")
    axes = range(1, len(strides) + 1)
    phase = phases(strides)[index]
    return Part.cut(
        at(types, 0).rank, dict(zip(axes, phase, strict=True)), dict(zip(axes, strides, strict=True))
    )


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    types = [TensorType.of(at(arrays, i)) for i in range(len(arrays))]
    (result,) = _infer(types, attrs)
    strides = ints_attr(attrs, "strides")
    out = np.empty(result.shape, result.dtype)
    for i, phase in enumerate(phases(strides)):
        out[(slice(None), *(slice(p, None, s) for p, s in zip(phase, strides, strict=True)))] = arrays[i]
    return [out]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    operands = [at(tensors, i) for i in range(len(tensors))]
    (result,) = _infer([TensorType(t.shape, t.dtype) for t in operands], attrs)
    strides = ints_attr(attrs, "strides")

    def element(*index: Expr) -> Expr:
        source = [o // s if s > 1 else o for o, s in zip(index[1:-1], strides, strict=True)]
        rest = [o % s if s > 1 else 0 for o, s in zip(index[1:-1], strides, strict=True)]
        cells = [x(index[0], *source, index[-1]) for x in operands]
        chosen: Expr = cells[-1]
        for phase, cell in list(zip(phases(strides), cells, strict=True))[-2::-1]:
            here = [r == p for r, p, s in zip(rest, phase, strides, strict=True) if s > 1]
            chosen = te.if_then_else(te.all(*here), cell, chosen)
        return chosen

    return [stage(result.shape, element, names[0])]


define(
    "Interleave",
    "movement",
    (1, _MANY),
    _infer,
    _reference,
    _compute,
    {"strides": Attribute("ints", required=True), "size": Attribute("ints", required=True)},
    view="join",
    part_rule=_part,
    in_onnx=False,
)
