"""Operators that rearrange whole dimensions.

Transpose(x): perm (default: reversed). Concat(x...): axis. Split(x): axis (default 0), split = the
sizes (required: the frontend works them out), an output a size. ChannelShuffle(x): groups, layout:
channel a * (c / groups) + b goes to b * groups + a. DepthToSpace(x), SpaceToDepth(x): blocksize,
mode "DCR" or "CRD", layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    at,
    channel_axis,
    complete_axis,
    int_attr,
    ints_attr,
    require_same_dtype,
    stage,
)
from autotune.graph.ops.definition import (
    LAYOUT,
    Arrays,
    Attribute,
    Complete,
    InferRule,
    OpDef,
    PartRule,
    Tensors,
    Types,
    ViewKind,
)
from autotune.graph.ops.facts import Part
from autotune.graph.ops.registry import define

_MANY = 1 << 16


def define_parts(
    name: str,
    view: ViewKind,
    infer: InferRule,
    part_rule: PartRule,
    attributes: dict[str, Attribute],
    complete: Complete,
    **facts: Any,
) -> OpDef:
    """Return an operator whose results are parts of its operand."""

    def parts(x: TensorType, attrs: Attrs) -> list[tuple[Part, tuple[int, ...]]]:
        return [(part_rule([x], attrs, i), t.shape) for i, t in enumerate(infer([x], attrs))]

    def reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = at(arrays, 0)
        return [part.taken(x, shape) for part, shape in parts(TensorType.of(x), attrs)]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        x = at(tensors, 0)
        found = zip(parts(TensorType(x.shape, x.dtype), attrs), names, strict=True)
        return [
            stage(shape, lambda *index, part=part: x(*part.position(index)), name)
            for (part, shape), name in found
            if name
        ]

    return define(
        name,
        "movement",
        (1, 1),
        infer,
        reference,
        compute,
        attributes,
        complete,
        view=view,
        part_rule=part_rule,
        **facts,
    )


def _complete_transpose(types: Types, attrs: dict[str, Attr]) -> None:
    rank = at(types, 0).rank
    perm = attrs.setdefault("perm", tuple(reversed(range(rank))))
    if not isinstance(perm, tuple) or sorted(perm) != list(range(rank)):
        raise GraphError(f"Transpose: perm = {perm} is not a permutation of {rank} dimensions")


def _transpose_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    return [TensorType(tuple(x.shape[p] for p in ints_attr(attrs, "perm")), x.dtype)]


def _concat_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    parts, axis = [at(types, i) for i in range(len(types))], int_attr(attrs, "axis")
    dtype = require_same_dtype("Concat", parts)
    first = parts[0].shape
    for part in parts[1:]:
        same = part.rank == len(first) and all(
            a == b for d, (a, b) in enumerate(zip(part.shape, first, strict=True)) if d != axis
        )
        if not same:
            raise GraphError(f"Concat on axis {axis}: shapes {first} and {part.shape} do not fit")
    total = sum(p.shape[axis] for p in parts)
    return [TensorType((*first[:axis], total, *first[axis + 1 :]), dtype)]


def _concat_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    parts = [a for a in arrays if a is not None]
    return [np.concatenate(parts, axis=int_attr(attrs, "axis"))]


def _concat_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    parts, axis = [t for t in tensors if t is not None], int_attr(attrs, "axis")
    starts = [sum(p.shape[axis] for p in parts[:k]) for k in range(len(parts) + 1)]
    shape = (*parts[0].shape[:axis], starts[-1], *parts[0].shape[axis + 1 :])

    def element(*index: Expr) -> Expr:
        def read(k: int) -> Expr:
            own = index[axis] - starts[k] if starts[k] else index[axis]
            return parts[k](*index[:axis], own, *index[axis + 1 :])

        filled = [k for k, p in enumerate(parts) if p.shape[axis] > 0] or [0]
        value = read(filled[-1])
        for k in reversed(filled[:-1]):
            value = te.if_then_else(index[axis] < starts[k + 1], read(k), value)
        return value

    return [stage(shape, element, names[0])]


def _concat_part(types: Types, attrs: Attrs, index: int) -> Part:
    axis = int_attr(attrs, "axis")
    return Part.cut(at(types, 0).rank, {axis: sum(at(types, i).shape[axis] for i in range(index))})


def _split_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, axis, sizes = at(types, 0), int_attr(attrs, "axis"), ints_attr(attrs, "split")
    if sum(sizes) != x.shape[axis] or any(s < 0 for s in sizes):
        raise GraphError(f"Split: sizes {sizes} do not add up to dimension {axis} of {x.shape}")
    return [TensorType((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype) for s in sizes]


def _split_part(types: Types, attrs: Attrs, index: int) -> Part:
    start = sum(ints_attr(attrs, "split")[:index])
    return Part.cut(at(types, 0).rank, {int_attr(attrs, "axis"): start})


def _shuffle_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, groups = at(types, 0), int_attr(attrs, "groups")
    if x.rank < 2:
        raise GraphError(f"ChannelShuffle needs a channel dimension, got shape {x.shape}")
    channels = x.shape[channel_axis(x.rank, attrs)]
    if groups < 1 or channels % groups:
        raise GraphError(f"ChannelShuffle: groups = {groups} does not divide {channels} channels")
    return [x.dense]


def _shuffle_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, groups = at(arrays, 0), int_attr(attrs, "groups")
    axis = channel_axis(x.ndim, attrs)
    split = x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
    return [split.swapaxes(axis, axis + 1).reshape(x.shape)]


def _shuffle_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, groups = at(tensors, 0), int_attr(attrs, "groups")
    axis = channel_axis(x.ndim, attrs)
    inner = x.shape[axis] // groups

    def element(*index: Expr) -> Expr:
        c = index[axis]
        return x(*index[:axis], c % groups * inner + c // groups, *index[axis + 1 :])

    return [stage(x.shape, element, names[0])]


def _blocks(name: str, types: Types, attrs: Attrs) -> tuple[int, int, int, int, int]:
    x, block = at(types, 0), int_attr(attrs, "blocksize")
    if x.rank != 4:
        raise GraphError(f"{name} takes 4 dimensions, got shape {x.shape}")
    n, c, h, w = x.shape if attrs["layout"] == "NCHW" else (x.shape[i] for i in (0, 3, 1, 2))
    fits = (
        (c % (block * block) == 0 if name == "DepthToSpace" else h % block == 0 and w % block == 0)
        if block > 0
        else False
    )
    if not fits:
        raise GraphError(f"{name}: blocksize = {block} does not divide shape {x.shape}")
    return n, c, h, w, block


def _in_layout(n: Expr, c: Expr, h: Expr, w: Expr, attrs: Attrs) -> tuple[Expr, Expr, Expr, Expr]:
    return (n, c, h, w) if attrs["layout"] == "NCHW" else (n, h, w, c)


def _block_source(name: str, attrs: Attrs, out_channels: int, index: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the index in the input of an element of the output, as (n, c, h, w) in the node's layout."""
    block = int_attr(attrs, "blocksize")
    nchw = attrs["layout"] == "NCHW"
    n, c, h, w = index if nchw else (index[0], index[3], index[1], index[2])
    if name == "DepthToSpace":
        dy, dx = h % block, w % block
        if attrs["mode"] == "DCR":
            channel = (dy * block + dx) * out_channels + c
        else:
            channel = (c * block + dy) * block + dx
        return _in_layout(n, channel, h // block, w // block, attrs)
    cells = block * block
    if attrs["mode"] == "DCR":
        cell, channel = c // (out_channels // cells), c % (out_channels // cells)
    else:
        cell, channel = c % cells, c // cells
    return _in_layout(n, channel, h * block + cell // block, w * block + cell % block, attrs)


def _block_operator(name: str) -> OpDef:
    def infer(types: Types, attrs: Attrs) -> list[TensorType]:
        n, c, h, w, b = _blocks(name, types, attrs)
        if name == "DepthToSpace":
            shape = _in_layout(n, c // (b * b), h * b, w * b, attrs)
        else:
            shape = _in_layout(n, c * b * b, h // b, w // b, attrs)
        return [TensorType(shape, at(types, 0).dtype)]

    def channels(shape: Sequence[int], attrs: Attrs) -> int:
        return shape[channel_axis(4, attrs)]

    def reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = at(arrays, 0)
        shape = infer([TensorType.of(x)], attrs)[0].shape
        index = np.indices(shape, sparse=True)
        return [x[_block_source(name, attrs, channels(shape, attrs), index)]]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        x = at(tensors, 0)
        shape = infer([TensorType(x.shape, x.dtype)], attrs)[0].shape

        def element(*index: Expr) -> Expr:
            return x(*_block_source(name, attrs, channels(shape, attrs), index))

        return [stage(shape, element, names[0])]

    declared = {
        "blocksize": Attribute("int", required=True),
        "layout": LAYOUT,
        "mode": Attribute("str", "DCR", choices=("DCR", "CRD")),
    }
    return define(name, "movement", (1, 1), infer, reference, compute, declared, moves="rearrangement")


define_parts(
    "Transpose",
    "permutation",
    _transpose_infer,
    lambda types, attrs, _: Part.permuted(ints_attr(attrs, "perm")),
    {"perm": Attribute("ints")},
    _complete_transpose,
    moves="rearrangement",
    is_copy_rule=lambda types, attrs: attrs["perm"] == tuple(range(at(types, 0).rank)),
)
define(
    "Concat",
    "movement",
    (1, _MANY),
    _concat_infer,
    _concat_reference,
    _concat_compute,
    {"axis": Attribute("int", required=True)},
    complete_axis,
    view="join",
    part_rule=_concat_part,
    permutable="axis",
    is_copy_rule=lambda types, attrs: len(types) == 1,
)
define_parts(
    "Split",
    "window",
    _split_infer,
    _split_part,
    {"axis": Attribute("int", 0), "split": Attribute("ints", required=True)},
    complete_axis,
    permutable="axis",
)
define(
    "ChannelShuffle",
    "movement",
    (1, 1),
    _shuffle_infer,
    _shuffle_reference,
    _shuffle_compute,
    {"groups": Attribute("int", required=True), "layout": LAYOUT},
    moves="rearrangement",
    in_onnx=False,
)
_block_operator("DepthToSpace")
_block_operator("SpaceToDepth")
