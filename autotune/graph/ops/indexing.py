"""Operators that read a part of a tensor, or around it.

Slice(x): starts, ends, axes (absent: the first ones), steps (absent: ones; negative steps walk
backwards), as ONNX and Python slices; the complete attributes are sorted by axis and leave out
whole dimensions. Gather(x, indices): axis (default 0); negative indices count from the end; te
clamps the index so that a wrong one reads an element of x. The runtime checks indices beside it, the
reference raises GraphError.
GatherElements(x, indices): axis (default 0); indices of x's rank, read as by Gather.
Trilu(x): upper (default 1), k (default 0): zeros below (upper=0: above) the k-th diagonal.
Pad(x): pads (begins then ends, negative ones crop), mode "constant", "reflect", "edge" or "wrap", value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    at,
    complete_axis,
    float_attr,
    int_attr,
    ints_attr,
    pad_stage,
    positive_axis,
    stage,
    str_attr,
)
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.facts import Part
from autotune.graph.ops.movement import define_parts
from autotune.graph.ops.registry import define
from autotune.te.bounds import settled_index
from autotune.te.dtypes import DTYPES


def _complete_slice(types: Types, attrs: dict[str, Attr]) -> None:
    shape = at(types, 0).shape
    starts, ends = ints_attr(attrs, "starts"), ints_attr(attrs, "ends")
    attrs.setdefault("axes", tuple(range(len(starts))))
    attrs.setdefault("steps", (1,) * len(starts))
    axes = tuple(positive_axis(a, len(shape)) for a in ints_attr(attrs, "axes"))
    steps = ints_attr(attrs, "steps")
    if not len(starts) == len(ends) == len(axes) == len(steps) == len(set(axes)):
        raise GraphError(f"Slice: starts {starts}, ends {ends}, axes {axes}, steps {steps} do not match")
    if 0 in steps:
        raise GraphError("Slice: a step is 0")
    kept = []
    for axis, start, end, step in sorted(zip(axes, starts, ends, steps, strict=True)):
        size = shape[axis]
        first, stop, step = slice(start, end, step).indices(size)
        if len(range(first, stop, step)) == 0:
            first, stop, step = 0, 0, 1
        if (first, stop, step) != (0, size, 1):
            kept.append((axis, first, stop if stop >= 0 else -size - 1, step))
    for i, key in enumerate(("axes", "starts", "ends", "steps")):
        attrs[key] = tuple(item[i] for item in kept)


def _slices(shape: Sequence[int], attrs: Attrs) -> list[range]:
    """Return the positions of x that are read, per dimension."""
    found = [range(d) for d in shape]
    for axis, *part in zip(*(ints_attr(attrs, k) for k in ("axes", "starts", "ends", "steps")), strict=True):
        found[axis] = range(*slice(*part).indices(shape[axis]))
    return found


def _is_whole(types: Types, attrs: Attrs) -> bool:
    shape = at(types, 0).shape
    return _slices(shape, attrs) == [range(d) for d in shape]


def _slice_part(types: Types, attrs: Attrs, _: int) -> Part:
    axes, starts, steps = (ints_attr(attrs, key) for key in ("axes", "starts", "steps"))
    return Part.cut(
        at(types, 0).rank, dict(zip(axes, starts, strict=True)), dict(zip(axes, steps, strict=True))
    )


def _slice_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    return [TensorType(tuple(len(r) for r in _slices(x.shape, attrs)), x.dtype)]


def _gather_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, indices, axis = at(types, 0), at(types, 1), int_attr(attrs, "axis")
    if indices.dtype not in ("int32", "int64"):
        raise GraphError(f"Gather: indices are {indices.dtype}, not int32 or int64")
    if x.shape[axis] == 0 and indices.size > 0:
        raise GraphError(f"Gather from the empty dimension {axis} of {x.shape}")
    return [TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)]


def _check_indices(name: str, indices: Array, size: int) -> None:
    wrong = indices[(indices < -size) | (indices >= size)]
    if wrong.size:
        raise GraphError(f"{name}: index {wrong.flat[0]} is out of range for {size} elements")


def _gather_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, indices, axis = at(arrays, 0), at(arrays, 1), int_attr(attrs, "axis")
    _check_indices("Gather", indices, x.shape[axis])
    return [np.asarray(np.take(x, indices, axis=axis))]


def _gather_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, indices, axis = at(tensors, 0), at(tensors, 1), int_attr(attrs, "axis")
    size, rank = x.shape[axis], indices.ndim
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def element(*index: Expr) -> Expr:
        chosen = settled_index(indices(*index[axis : axis + rank]), size)
        return x(*index[:axis], chosen, *index[axis + rank :])

    return [stage(shape, element, names[0])]


def _elements_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, indices, axis = at(types, 0), at(types, 1), int_attr(attrs, "axis")
    if indices.dtype not in ("int32", "int64"):
        raise GraphError(f"GatherElements: indices are {indices.dtype}, not int32 or int64")
    fits = len(indices.shape) == x.rank and all(
        i <= d for a, (i, d) in enumerate(zip(indices.shape, x.shape, strict=True)) if a != axis
    )
    if not fits or (x.shape[axis] == 0 and indices.size > 0):
        raise GraphError(f"GatherElements on axis {axis}: {indices.shape} does not fit {x.shape}")
    return [TensorType(indices.shape, x.dtype)]


def _elements_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, indices, axis = at(arrays, 0), at(arrays, 1), int_attr(attrs, "axis")
    _check_indices("GatherElements", indices, x.shape[axis])
    key: list[Array] = list(np.indices(indices.shape, sparse=True))
    key[axis] = indices
    return [x[tuple(key)]]


def _elements_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, indices, axis = at(tensors, 0), at(tensors, 1), int_attr(attrs, "axis")

    def element(*index: Expr) -> Expr:
        chosen = settled_index(indices(*index), x.shape[axis])
        return x(*index[:axis], chosen, *index[axis + 1 :])

    return [stage(indices.shape, element, names[0])]


def _complete_trilu(types: Types, attrs: dict[str, Attr]) -> None:
    """Bring a diagonal beyond the matrix to the nearest one that keeps as much, so that k fits any index type."""
    shape = at(types, 0).shape
    if len(shape) < 2:
        raise GraphError(f"Trilu takes matrices, got shape {shape}")
    attrs["k"] = max(-shape[-2], min(int_attr(attrs, "k"), shape[-1]))


def _trilu_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    return [at(types, 0).dense]


def _trilu_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    part = np.triu if int_attr(attrs, "upper") else np.tril
    return [np.asarray(part(at(arrays, 0), int_attr(attrs, "k")))]


def _trilu_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, k, upper = at(tensors, 0), int_attr(attrs, "k"), int_attr(attrs, "upper")

    def element(*index: Expr) -> Expr:
        row, column = index[-2:]
        kept = column >= row + k if upper else column <= row + k
        return te.if_then_else(kept, x(*index), te.const(0, x.dtype))

    return [stage(x.shape, element, names[0])]


def _pads(rank: int, attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pads = ints_attr(attrs, "pads")
    if len(pads) != 2 * rank:
        raise GraphError(f"Pad: pads = {pads}; it takes {2 * rank} ints for {rank} dimensions")
    return pads[:rank], pads[rank:]


def _pad_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    before, after = _pads(x.rank, attrs)
    shape = tuple(d + b + a for d, b, a in zip(x.shape, before, after, strict=True))
    mode = str_attr(attrs, "mode")
    for d, n, b, a in zip(x.shape, shape, before, after, strict=True):
        most = {"constant": n, "edge": n if d else 0, "wrap": n if d else 0, "reflect": d - 1}[mode]
        if n < 0 or max(b, a) > most or d + min(b, 0) + min(a, 0) < 0:
            raise GraphError(f"Pad: pads {attrs['pads']} do not fit shape {x.shape}, mode {mode}")
    return [TensorType(shape, x.dtype)]


def _pad_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    before, after = _pads(x.ndim, attrs)
    crop = tuple(slice(max(0, -b), d - max(0, -a)) for d, b, a in zip(x.shape, before, after, strict=True))
    if str_attr(attrs, "mode") == "constant":
        widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
        return [np.pad(x[crop], widths, constant_values=x.dtype.type(attrs["value"]))]
    key = [
        _border(np.arange(d + b + a) - b, d, attrs, np.minimum, np.maximum)
        for d, b, a in zip(x.shape, before, after, strict=True)
    ]
    return [x[np.ix_(*key)]]


def _border(i: Expr, size: int, attrs: Attrs, low: Expr, high: Expr) -> Expr:
    """Return the element that stands at position i of a dimension continued beyond its ends."""
    if str_attr(attrs, "mode") == "edge":
        return high(low(i, size - 1), 0)
    if str_attr(attrs, "mode") == "wrap":
        return i % size
    i = high(i, 0 - i)
    return low(i, 2 * (size - 1) - i)


def _pad_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    before, after = _pads(x.ndim, attrs)
    if str_attr(attrs, "mode") == "constant":
        value, stored = float_attr(attrs, "value"), x.dtype not in DTYPES
        filler = te.cast(te.const(value, "float32"), x.dtype) if stored else te.const(value, x.dtype)
        return [pad_stage(x, before, after, filler, names[0])]
    shape = [d + b + a for d, b, a in zip(x.shape, before, after, strict=True)]

    def element(*index: Expr) -> Expr:
        return x(
            *(
                _border(i - b, d, attrs, te.minimum, te.maximum) if b > 0 or a > 0 else i - b
                for i, d, b, a in zip(index, x.shape, before, after, strict=True)
            )
        )

    return [stage(shape, element, names[0])]


define_parts(
    "Slice",
    "window",
    _slice_infer,
    _slice_part,
    {
        "starts": Attribute("ints", required=True),
        "ends": Attribute("ints", required=True),
        "axes": Attribute("ints"),
        "steps": Attribute("ints"),
    },
    _complete_slice,
    is_copy_rule=_is_whole,
)
define(
    "Gather",
    "movement",
    (2, 2),
    _gather_infer,
    _gather_reference,
    _gather_compute,
    {"axis": Attribute("int", 0)},
    complete_axis,
    moves="lookup",
    index_input=1,
)
define(
    "GatherElements",
    "movement",
    (2, 2),
    _elements_infer,
    _elements_reference,
    _elements_compute,
    {"axis": Attribute("int", 0)},
    complete_axis,
    index_input=1,
)
define(
    "Trilu",
    "elementwise",
    (1, 1),
    _trilu_infer,
    _trilu_reference,
    _trilu_compute,
    {"k": Attribute("int", 0), "upper": Attribute("int", 1)},
    _complete_trilu,
    positional=True,
)
define(
    "Pad",
    "movement",
    (1, 1),
    _pad_infer,
    _pad_reference,
    _pad_compute,
    {
        "mode": Attribute("str", "constant", choices=("constant", "reflect", "edge", "wrap")),
        "pads": Attribute("ints", required=True),
        "value": Attribute("float", 0.0),
    },
    is_copy_rule=lambda types, attrs: not any(ints_attr(attrs, "pads")),
)
