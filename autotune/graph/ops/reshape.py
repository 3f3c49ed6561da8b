"""Operators that keep the elements' row-major order, and those that repeat elements.

Reshape(x): attribute shape; on input 0 copies a dimension and -1 is what is left over, the complete
attribute has neither. Flatten(x): axis (default 1), to 2-D. Squeeze(x): axes (absent: every
dimension of 1). Unsqueeze(x): axes, counted in the output. Expand(x): shape, which broadcasts with
x's; the complete attribute is the output's shape. Tile(x): repeats, one a dimension.

te: dimensions that the reshape leaves alone are read by plain indices; only groups that merge or
split are linearised with // and %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    Index,
    at,
    broadcast_shapes,
    delinear,
    int_attr,
    ints_attr,
    linear,
    positive_axes,
    read_broadcast,
    stage,
)
from autotune.graph.ops.definition import Arrays, Attribute, Complete, OpDef, Tensors, Types
from autotune.graph.ops.registry import define

ShapeRule: TypeAlias = Callable[[tuple[int, ...], Attrs], tuple[int, ...]]


def dimension_groups(source: Sequence[int], result: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Yield the finest cut of a reshape into (source dimensions, result dimensions) of equal size."""
    i = j = 0
    while i < len(source) or j < len(result):
        i0, j0 = i, j
        left = right = 1
        if i < len(source):
            left, i = source[i], i + 1
        if j < len(result):
            right, j = result[j], j + 1
        while left != right:
            if left < right and i < len(source):
                left, i = left * source[i], i + 1
            elif j < len(result):
                right, j = right * result[j], j + 1
            else:
                left, i = left * source[i], i + 1
        yield range(i0, i), range(j0, j)


def reshaped_index(index: Index, source: Sequence[int], result: Sequence[int]) -> list[Expr]:
    """Return the index in `source` of the element at `index` of the shape `result`."""
    found: list[Expr] = []
    for dims, outs in dimension_groups(source, result):
        shape = [source[d] for d in dims]
        position = linear([index[o] for o in outs], [result[o] for o in outs])
        found += delinear(position, shape)
    return found


def _reshaping(
    name: str,
    shape_rule: ShapeRule,
    attributes: dict[str, Attribute],
    complete: Complete | None = None,
) -> OpDef:
    def infer(types: Types, attrs: Attrs) -> list[TensorType]:
        x = at(types, 0)
        shape = shape_rule(x.shape, attrs)
        if math.prod(shape) != x.size:
            raise GraphError(f"{name}: {x.shape} has {x.size} elements, {shape} does not")
        return [TensorType(shape, x.dtype)]

    def reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = at(arrays, 0)
        return [x.reshape(shape_rule(x.shape, attrs))]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        x = at(tensors, 0)
        shape = shape_rule(x.shape, attrs)

        def element(*index: Expr) -> Expr:
            if 0 in shape:
                return te.const(0, x.dtype)  # there is no element to read
            return x(*reshaped_index(index, x.shape, shape))

        return [stage(shape, element, names[0])]

    def is_copy(types: Types, attrs: Attrs) -> bool:
        return infer(types, attrs)[0].shape == at(types, 0).shape

    return define(
        name,
        "movement",
        (1, 1),
        infer,
        reference,
        compute,
        attributes,
        complete,
        view="reshape",
        is_copy_rule=is_copy,
    )


def _complete_reshape(types: Types, attrs: dict[str, Attr]) -> None:
    x = at(types, 0)
    wanted = list(ints_attr(attrs, "shape"))
    for i, d in enumerate(wanted):
        if d == 0 and x.size != 0:
            if i >= x.rank:
                raise GraphError(f"Reshape of {x.shape} to {attrs['shape']}: no dimension {i}")
            wanted[i] = x.shape[i]
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
        raise GraphError(f"Reshape to {attrs['shape']}: one -1 is allowed, nothing below it")
    if -1 in wanted:
        known = math.prod(d for d in wanted if d != -1)
        if known == 0 or x.size % known:
            raise GraphError(f"Reshape of {x.shape} to {attrs['shape']}: sizes do not divide")
        wanted[wanted.index(-1)] = x.size // known
    attrs["shape"] = tuple(wanted)


def _complete_flatten(types: Types, attrs: dict[str, Attr]) -> None:
    rank = at(types, 0).rank
    axis = int_attr(attrs, "axis")
    if not -rank <= axis <= rank:
        raise GraphError(f"Flatten: axis {axis} is out of range for rank {rank}")
    attrs["axis"] = axis + rank if axis < 0 else axis


def _flat_shape(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    axis = int_attr(attrs, "axis")
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _complete_squeeze(types: Types, attrs: dict[str, Attr]) -> None:
    shape = at(types, 0).shape
    if "axes" not in attrs:
        attrs["axes"] = tuple(i for i, d in enumerate(shape) if d == 1)
    axes = positive_axes(ints_attr(attrs, "axes"), len(shape))
    wrong = [a for a in axes if shape[a] != 1]
    if wrong:
        raise GraphError(f"Squeeze: dimension {wrong[0]} of {shape} is not 1")
    attrs["axes"] = axes


def _squeezed_shape(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    return tuple(d for i, d in enumerate(shape) if i not in ints_attr(attrs, "axes"))


def _complete_unsqueeze(types: Types, attrs: dict[str, Attr]) -> None:
    axes = ints_attr(attrs, "axes")
    attrs["axes"] = positive_axes(axes, at(types, 0).rank + len(axes))


def _unsqueezed_shape(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    axes = ints_attr(attrs, "axes")
    own = iter(shape)
    return tuple(1 if i in axes else next(own) for i in range(len(shape) + len(axes)))


_reshaping(
    "Reshape",
    lambda _, attrs: ints_attr(attrs, "shape"),
    {"shape": Attribute("ints", required=True)},
    _complete_reshape,
)
_reshaping("Flatten", _flat_shape, {"axis": Attribute("int", 1)}, _complete_flatten)
_reshaping("Squeeze", _squeezed_shape, {"axes": Attribute("ints")}, _complete_squeeze)
_reshaping(
    "Unsqueeze",
    _unsqueezed_shape,
    {"axes": Attribute("ints", required=True)},
    _complete_unsqueeze,
)


def _complete_expand(types: Types, attrs: dict[str, Attr]) -> None:
    attrs["shape"] = broadcast_shapes(at(types, 0).shape, ints_attr(attrs, "shape"))


def _expand_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    return [TensorType(ints_attr(attrs, "shape"), at(types, 0).dtype)]


def _expand_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    return [np.broadcast_to(at(arrays, 0), ints_attr(attrs, "shape")).copy()]


def _expand_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    return [stage(ints_attr(attrs, "shape"), lambda *i: read_broadcast(x, i), names[0])]


define(
    "Expand",
    "movement",
    (1, 1),
    _expand_infer,
    _expand_reference,
    _expand_compute,
    {"shape": Attribute("ints", required=True)},
    _complete_expand,
    moves="rearrangement",
    is_copy_rule=lambda types, attrs: attrs["shape"] == at(types, 0).shape,
)


def _repeats(shape: Sequence[int], attrs: Attrs) -> tuple[int, ...]:
    repeats = ints_attr(attrs, "repeats")
    if len(repeats) != len(shape) or any(r < 0 for r in repeats):
        raise GraphError(f"Tile: repeats = {repeats} do not fit shape {tuple(shape)}")
    return tuple(d * r for d, r in zip(shape, repeats, strict=True))


def _tile_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    return [TensorType(_repeats(x.shape, attrs), x.dtype)]


def _tile_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    return [np.tile(at(arrays, 0), ints_attr(attrs, "repeats"))]


def _tile_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, repeats = at(tensors, 0), ints_attr(attrs, "repeats")

    def element(*index: Expr) -> Expr:
        own = zip(index, x.shape, repeats, strict=True)
        return x(*(i if r == 1 else i % d for i, d, r in own))

    return [stage(_repeats(x.shape, attrs), element, names[0])]


define(
    "Tile",
    "movement",
    (1, 1),
    _tile_infer,
    _tile_reference,
    _tile_compute,
    {"repeats": Attribute("ints", required=True)},
)
