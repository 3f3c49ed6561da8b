"""Attention(q, k, v[, mask]): softmax(scale * q @ k^T + mask) @ v as one operator.

q [..., m, d], k [..., n, d], v [..., n, e]; the result is [..., m, e]. Leading dimensions of k and v are
those of q, or 1 where all of q's read the same (grouped heads). ``mask`` broadcasts to [..., m, n]: a
floating one is added to the scaled scores, a bool one keeps the scores where it is true and puts ``fill``
elsewhere. ``causal`` keeps key j for query i where j <= i + ``first`` and puts minus infinity elsewhere. A
row of which nothing is kept gives NaN, as the separate operators do, or 0 with ``zero_empty``.

``block`` = 0 computes whole rows of scores. Otherwise keys come in blocks of that many, with a running
maximum and sum (FlashAttention: Dao et al., NeurIPS 2022), so that the memory needed in between does not
grow with n.

A block of keys of which a bool mask that puts minus infinity elsewhere keeps none is passed over: it neither reads
the keys and values nor computes anything ("<out>.filled": how many flags of a block are set, at most 1). So what a
cache of a fixed capacity takes depends on how full it is.

te stages: "<out>.keys" (k transposed), "<out>.scores" (reduce re), "<out>.masked", "<out>.max" (reduce
rj), "<out>.exp", "<out>.sum" (reduce rj), "<out>.acc" (reduce rj), then the output acc * rcp. With blocks
all of these have an axis b after the leading ones, and "<out>.merged" folds (max, sum, acc) over it. Where
nothing may be kept and that is no NaN, "<out>.base" is a finite maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    Index,
    at,
    broadcasts_to,
    float_attr,
    int_attr,
    named_axes,
    optional,
    read_broadcast,
    require_float,
    stage,
)
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.te.dtypes import float_limits

FEW_QUERIES = 8
"""Rows of queries, as of a step of decoding, for which keys come in blocks wherever masked blocks may be passed over:
each block of keys is transposed and read once."""
FEW_KEYS = 128
"""The keys of a block there."""


def _lowest(dtype: str) -> te.Expr:
    """Return the stand-in for the maximum of a block of which nothing is kept: its exponentials are 0 and not NaN."""
    return te.const(float(float_limits(dtype).min), dtype)


@dataclass(frozen=True)
class _AttentionSizes:
    """lead dimensions, m queries, n keys, d the size of a key and e that of a value."""

    lead: tuple[int, ...]
    m: int
    n: int
    d: int
    e: int

    @classmethod
    def of(cls, q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> _AttentionSizes:
        return cls(tuple(q[:-2]), q[-2], k[-2], q[-1], v[-1])

    @property
    def scores(self) -> tuple[int, ...]:
        return (*self.lead, self.m, self.n)


def _sizes(types: Types) -> _AttentionSizes:
    q, k, v = (at(types, i).shape for i in range(3))
    if min(len(q), len(k), len(v)) < 2 or not (_shares(k, q) and _shares(v, q)):
        raise GraphError(f"Attention of {q}, {k} and {v}: the leading dimensions differ")
    if q[-1] != k[-1] or k[-2] != v[-2]:
        raise GraphError(f"Attention of {q}, {k} and {v}: the inner dimensions differ")
    if 0 in (*k, *v):
        raise GraphError(f"Attention of {q}, {k} and {v}: there are no keys or values")
    return _AttentionSizes.of(q, k, v)


def _shares(own: Sequence[int], q: Sequence[int]) -> bool:
    """Return whether keys or values of a shape are there for each of the queries."""
    return len(own) == len(q) and all(a in (1, b) for a, b in zip(own[:-2], q[:-2], strict=True))


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    attrs.setdefault("scale", 1.0 / math.sqrt(max(at(types, 0).shape[-1], 1)))
    block = int_attr(attrs, "block")
    if block < 0:
        raise GraphError(f"Attention: block = {block}; a size, or 0 for all keys at once")
    if block >= at(types, 1).shape[-2]:
        attrs["block"] = 0


def _infer(types: Types, _: Attrs) -> list[TensorType]:
    require_float("Attention", types[:3])
    sizes, mask = _sizes(types), optional(types, 3)
    if mask is not None and not broadcasts_to(mask.shape, sizes.scores):
        raise GraphError(f"Attention: a mask of {mask.shape} does not broadcast to {sizes.scores}")
    if mask is not None and mask.dtype not in ("bool", at(types, 0).dtype):
        raise GraphError(f"Attention: a mask of {mask.dtype} beside {at(types, 0).dtype}; bool or the same")
    return [TensorType((*sizes.lead, sizes.m, sizes.e), at(types, 0).dtype)]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    q, k, v = (at(arrays, i) for i in range(3))
    mask = optional(arrays, 3)
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * q.dtype.type(float_attr(attrs, "scale"))
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, q.dtype.type(float_attr(attrs, "fill")))
    elif mask is not None:
        scores = scores + mask
    if int_attr(attrs, "causal"):
        kept = np.tri(q.shape[-2], k.shape[-2], k=int_attr(attrs, "first"), dtype=np.bool_)
        scores = np.where(kept, scores, q.dtype.type(-np.inf))
    with np.errstate(invalid="ignore"):
        exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = exps / exps.sum(axis=-1, keepdims=True)
    if int_attr(attrs, "zero_empty"):
        weights = np.where((scores == -np.inf).all(axis=-1, keepdims=True), q.dtype.type(0), weights)
    return [np.matmul(weights, v)]


def _read_shared(tensor: te.Tensor, lead: Index, row: Expr, column: Expr) -> Expr:
    """Return an element of keys or values, whose leading dimensions of extent 1 are read by all."""
    own = (0 if d == 1 else i for d, i in zip(tensor.shape[:-2], lead, strict=True))
    return tensor(*own, row, column)


class _AttentionProgram:
    """The tensor expressions of one attention; ``blocks`` is empty where rows are computed whole."""

    def __init__(self, tensors: Tensors, attrs: Attrs, out: str) -> None:
        self.q, self.k, self.v = (at(tensors, i) for i in range(3))
        self.mask: te.Tensor | None = optional(tensors, 3)
        self.attrs, self.out = attrs, out
        self.sizes = _AttentionSizes.of(self.q.shape, self.k.shape, self.v.shape)
        self.width = int_attr(attrs, "block") or self.sizes.n
        self.blocks = (-(-self.sizes.n // self.width),) if self.width < self.sizes.n else ()
        self.rank = len(self.sizes.lead)
        self.outer = [f"b{i}" for i in range(self.rank)] + ["b"] * len(self.blocks)

    @property
    def lead(self) -> tuple[int, ...]:
        return (*self.sizes.lead, *self.blocks)

    def stage(self, suffix: str, matrix: Sequence[int], axes: str, body: Expr) -> te.Tensor:
        names = [*self.outer, *axes]
        shape = (*self.lead, *matrix)
        return stage(shape, named_axes(names, body), f"{self.out}.{suffix}")

    def split(self, index: Index, j: Expr) -> tuple[Index, Expr]:
        """Return the leading index without the block, and the number of a key in all keys."""
        if not self.blocks:
            return index, j
        return index[: self.rank], index[self.rank] * self.width + j

    def key_guarded(self, key: Expr, value: Expr) -> Expr:
        """Return 0 for the keys that the last block does not have."""
        if not self.blocks or self.sizes.n % self.width == 0:
            return value
        return te.if_then_else(key < self.sizes.n, value, te.const(0.0, self.q.dtype))

    def exponentials(self) -> tuple[te.Tensor, te.Tensor]:
        """Return (maxima of the scores, exponentials of what they exceed the scores by)."""
        sizes, width, dtype = self.sizes, self.width, self.q.dtype

        def key(*index: Expr) -> Expr:
            lead, j = self.split(index[:-2], index[-1])
            return self.key_guarded(j, _read_shared(self.k, lead, j, index[-2]))

        keys = self.stage("keys", (sizes.d, width), "xj", key)
        re = te.reduce_axis((0, sizes.d), name="re")

        def score(*index: Expr) -> Expr:
            *outer, i, j = index
            return te.sum(self.q(*outer[: self.rank], i, re) * keys(*outer, re, j), axis=re)

        scores = self.stage("scores", (sizes.m, width), "ij", score)
        masked = self.stage("masked", (sizes.m, width), "ij", lambda *x: self.masked(x, scores(*x)))
        rj = te.reduce_axis((0, width), name="rj")
        top = self.stage("max", (sizes.m,), "i", lambda *row: te.max(masked(*row, rj), axis=rj))
        if self.blocks or int_attr(self.attrs, "zero_empty"):
            lowest = _lowest(dtype)
            top = self.stage("base", (sizes.m,), "i", lambda *row: te.maximum(top(*row), lowest))
        shape = (sizes.m, width)
        return top, self.stage("exp", shape, "ij", lambda *x: te.exp_nonpositive(masked(*x) - top(*x[:-1])))

    def masked(self, index: Index, score: Expr) -> Expr:
        """Return a score with scale and masks."""
        *outer, i, j = index
        lead, key = self.split(outer, j)
        dtype, mask = self.q.dtype, self.mask
        value = score * te.const(float_attr(self.attrs, "scale"), dtype)
        never = te.const(float("-inf"), dtype)
        partial = bool(self.blocks) and self.sizes.n % self.width != 0
        if mask is not None:
            inside = te.minimum(key, self.sizes.n - 1) if partial else key
            read = read_broadcast(mask, (*lead, i, inside))
            if mask.dtype == "bool":
                value = te.if_then_else(read, value, te.const(float_attr(self.attrs, "fill"), dtype))
            else:
                value = value + read
        if int_attr(self.attrs, "causal"):
            value = te.if_then_else(key <= i + int_attr(self.attrs, "first"), value, never)
        return te.if_then_else(key < self.sizes.n, value, never) if partial else value

    def result(self) -> te.Tensor:
        """Return the output."""
        sizes, width = self.sizes, self.width
        top, exps = self.exponentials()
        rs = te.reduce_axis((0, width), name="rj")
        total = self.stage("sum", (sizes.m,), "i", lambda *row: te.sum(exps(*row, rs), axis=rs))
        rj = te.reduce_axis((0, width), name="rj")

        def product(*index: Expr) -> Expr:
            *outer, i, c = index
            lead, key = self.split(outer, rj)
            value = self.key_guarded(key, _read_shared(self.v, lead, key, c))
            return te.sum(exps(*outer, i, rj) * value, axis=rj)

        acc = self.stage("acc", (sizes.m, sizes.e), "ic", product)
        shape = (*sizes.lead, sizes.m, sizes.e)
        if self.blocks:
            total, acc = self.merged(top, total, acc)
            return stage(shape, lambda *x: self.filled(total(*x), acc(*x) / total(*x)), self.out)
        inverse = self.stage("rcp", (sizes.m,), "i", lambda *row: self.filled(total(*row), 1.0 / total(*row)))
        return stage(shape, lambda *x: acc(*x) * inverse(*x[:-1]), self.out)

    def filled(self, total: Expr, value: Expr) -> Expr:
        """Return a value of a row; 0 where nothing of the row is kept, if that is asked for: any other
        sum is at least 1."""
        if not int_attr(self.attrs, "zero_empty"):
            return value
        zero = te.const(0.0, self.q.dtype)
        return te.if_then_else(total == zero, zero, value)

    def merged(self, top: te.Tensor, total: te.Tensor, acc: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        """Return sum and weighted values of all blocks, each [..., m, e]: the smaller maximum is rescaled."""
        rb = te.reduce_axis((0, math.prod(self.blocks)), name="rb")
        dtype = self.q.dtype

        def combine(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
            peak, one = te.maximum(a[0], b[0]), te.const(1.0, dtype)
            smaller = te.exp_nonpositive(te.minimum(a[0], b[0]) - peak)
            old = te.if_then_else(a[0] >= b[0], one, smaller)
            new = te.if_then_else(a[0] >= b[0], smaller, one)
            return peak, a[1] * old + b[1] * new, a[2] * old + b[2] * new

        lowest = _lowest(dtype)
        merge = te.comm_reducer(combine, lambda *_: (lowest, 0.0, 0.0), name="rescaled_sum")

        filled = self.filled_blocks()

        def element(*index: Expr) -> Expr:
            lead, i, c = index[: self.rank], index[-2], index[-1]
            where = None if filled is None else filled(*lead, rb) > 0
            parts = top(*lead, rb, i), total(*lead, rb, i), acc(*lead, rb, i, c)
            return merge(parts, axis=rb, where=where)

        names = [*self.outer[: self.rank], "i", "c"]
        shape = (*self.sizes.lead, self.sizes.m, self.sizes.e)
        parts = te.compute(shape, named_axes(names, element), name=f"{self.out}.merged")
        return parts[1], parts[2]

    def filled_blocks(self) -> te.Tensor | None:
        """Return for each block of keys whether the mask keeps any of them; None where none may be passed over."""
        mask = self.mask
        if mask is None or mask.dtype != "bool" or float_attr(self.attrs, "fill") != float("-inf"):
            return None
        ri = te.reduce_axis((0, mask.shape[-2] if len(mask.shape) > 1 else 1), name="ri")
        rj = te.reduce_axis((0, self.width), name="rj")

        def kept(*index: Expr) -> Expr:
            lead, key = self.split(index, rj)
            flag = read_broadcast(mask, (*lead, ri, te.minimum(key, self.sizes.n - 1)))
            return te.max(te.cast(flag, "int32"), axis=[ri, rj])

        return stage(self.lead, named_axes(self.outer, kept), f"{self.out}.filled")


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    return [_AttentionProgram(tensors, attrs, names[0]).result()]


def _flops(types: Types, _: Sequence[TensorType], __: Attrs) -> int:
    sizes = _sizes(types)
    return math.prod(sizes.scores) * (2 * sizes.d + 2 * sizes.e + 5)


define(
    "Attention",
    "attention",
    (3, 4),
    _infer,
    _reference,
    _compute,
    {
        "scale": Attribute("float"),
        "causal": Attribute("int", 0),
        "first": Attribute("int", 0),
        "zero_empty": Attribute("int", 0),
        "fill": Attribute("float", float("-inf")),
        "block": Attribute("int", 0),
    },
    _complete,
    _flops,
    in_onnx=False,  # its namesake there has other inputs: their definition is expanded
)
