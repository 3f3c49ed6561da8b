"""Effects of operators on axes with padding: where results have it, and which operands must be masked first.

A result is right at every place that a request has. Beyond, it may be anything, NaN too: so what sums or compares
along such an axis reads its operand through a mask, and what looks elsewhere than at its own place is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from autotune.compiler.dynamic import borders, computed, looked_up, moved, normalized, resized, windows
from autotune.compiler.dynamic.axes import regrouped
from autotune.compiler.dynamic.case import Effect, NodeCase, PaddingMask, symbols_text
from autotune.graph import ops
from autotune.graph.ops.common import int_attr, ints_attr
from autotune.runtime.axes import Axes, Axis, Factor, axis, extent, is_symbolic

Rule: TypeAlias = Callable[[NodeCase], Effect]


def effect_of(case: NodeCase) -> Effect:
    """Return the effect of a node on padding. Raises PaddingError where its result would depend on it."""
    node = case.node
    rule = _RULES.get(node.op) or windows.RULES.get(node.op) or looked_up.RULES.get(node.op)
    if rule is not None:
        return rule(case)
    definition = ops.get(node.op)
    if definition.view == "reshape":
        return _reshape(case)
    if definition.pointwise:
        return _pointwise(case)
    if all(not is_symbolic(each) for axes in case.operands if axes is not None for each in axes):
        return Effect(tuple(tuple((size,) if size > 1 else () for size in t.shape) for t in case.results))
    if definition.kind in ("convolution", "pool", "normalization", "attention"):
        return _leading_axis(case)
    raise case.refuse("is not known to keep padding apart")


def _pointwise(case: NodeCase) -> Effect:
    """Return operands broadcast: a result has the axes of those that are not of extent 1."""
    rank = len(case.results[0].shape)
    found: list[Axis] = [()] * rank
    for axes, tensor in zip(case.operands, case.types, strict=True):
        if axes is None or tensor is None:
            continue
        for place, (each, size) in enumerate(zip(axes, tensor.shape, strict=True), rank - len(axes)):
            if size == 1 and not is_symbolic(each):
                continue
            if found[place] != () and not case.same(found[place], each):
                raise case.refuse(f"joins axes that grow differently, {found[place]} and {each}")
            found[place] = each
    return Effect((tuple(found),))


def _batch_norm(case: NodeCase) -> Effect:
    channels = len(case.axes(0)) - 1 if case.node.attrs["layout"] == "NHWC" else 1
    case.require_plain(0, [channels], "scales")
    return Effect((case.axes(0),))


def _per_axis(case: NodeCase) -> Effect:
    """Return quantisation, of which scales and zero points may have an axis of the first operand."""
    for index, tensor in enumerate(case.types[1:], 1):
        if tensor is not None and tensor.size > 1:
            case.require_plain(index, range(tensor.rank), "has scales")
    return Effect((case.axes(0),))


def _of_words(case: NodeCase) -> Effect:
    """Return weights that are stored as words, whose sizes no request changes."""
    for index, tensor in enumerate(case.types):
        if tensor is not None:
            case.require_plain(index, range(tensor.rank), "has words or scales")
    return Effect((tuple(map(axis, case.results[0].shape)),))


def _reshape(case: NodeCase) -> Effect:
    return Effect((regrouped(case.axes(0), case.results[0].shape, case.observed.grown),), zeros=_zeros(case))


def _transpose(case: NodeCase) -> Effect:
    moved = tuple(case.axes(0)[place] for place in ints_attr(case.node.attrs, "perm"))
    return Effect((moved,), zeros=_zeros(case))


def _zeros(case: NodeCase) -> frozenset[Factor]:
    """Return the factors whose padding is zeros: operators that only move elements leave zeros there."""
    return case.writer.zeros.get(case.node.inputs[0], frozenset())


def _matmul(case: NodeCase) -> Effect:
    left, right = case.axes(0), case.axes(1)
    inner, places = (len(left) - 1, max(len(right) - 2, 0)), (0, 1)
    masks = (
        [PaddingMask(i, place, 0.0) for i, place in zip(places, inner, strict=True)]
        if is_symbolic(left[-1])
        else []
    )
    if len(left) > 1 and len(right) == 2:
        masks += case.mixed([len(left) - 2], *case.shape(1))
    return Effect((_product(case, left, right),), tuple(masks))


def _integer_matmul(case: NodeCase, second: int) -> Effect:
    """Multiply integers; operand ``second`` is the right one, the others are scales and zero points."""
    left, right = case.axes(0), case.axes(second)
    if is_symbolic(left[-1]):
        raise case.refuse(f"sums along {symbols_text(left, [len(left) - 1])} numbers with zero points")
    for index, tensor in enumerate(case.types):
        if tensor is not None and index not in (0, second) and tensor.size > 1:
            case.require_plain(index, range(tensor.rank), "has scales")
    return Effect((_product(case, left, right),))


def _product(case: NodeCase, left: Axes, right: Axes) -> Axes:
    """Return the axes of a matrix product."""
    if not case.same(left[-1], right[max(len(right) - 2, 0)]):
        raise case.refuse("sums along axes that grow differently")
    rank = len(case.results[0].shape) - (len(left) > 1) - (len(right) > 1)
    batch: list[Axis] = [()] * rank
    for axes in (left[:-2], right[:-2]):
        for place, each in enumerate(axes, rank - len(axes)):
            if each and batch[place] and not case.same(batch[place], each):
                raise case.refuse(f"joins axes that grow differently, {batch[place]} and {each}")
            batch[place] = each or batch[place]
    rows = [left[-2]] if len(left) > 1 else []
    columns = [right[-1]] if len(right) > 1 else []
    return (*batch, *rows, *columns)


def _gemm(case: NodeCase) -> Effect:
    left, right = case.axes(0), case.axes(1)
    rows, (depth, columns) = 0, case.shape(1)
    if int_attr(case.node.attrs, "transA"):
        left, rows = left[::-1], 1
    if int_attr(case.node.attrs, "transB"):
        right, depth, columns = right[::-1], columns, depth
    if is_symbolic(left[1]) or is_symbolic(right[0]):
        raise case.refuse("sums along an axis that grows")
    result = (left[0], right[1])
    for axes in case.operands[2:]:
        for each, own in zip(reversed(axes or ()), reversed(result), strict=False):
            if each not in ((), own):
                raise case.refuse(f"joins axes that grow differently, {each} and {own}")
    return Effect((result,), tuple(case.mixed([rows], depth, columns)))


def _softmax(case: NodeCase) -> Effect:
    place = int_attr(case.node.attrs, "axis") % len(case.axes(0))
    along = case.axes(0)[place]
    masks = (PaddingMask(0, place, -math.inf),) if is_symbolic(along) else ()
    some = case.node.op == "Softmax" and extent(along, case.observed.least) > 0  # of nothing it is NaN
    return Effect((case.axes(0),), masks, zeros=frozenset(along if some else ()))


_NEUTRAL: Mapping[str, float] = {
    "ArgMax": -math.inf,
    "ArgMin": math.inf,
    "ReduceMax": -math.inf,
    "ReduceMean": 0.0,
    "ReduceMin": math.inf,
    "ReduceProd": 1.0,
    "ReduceSum": 0.0,
}


def _reduction(case: NodeCase) -> Effect:
    axes, attrs = case.axes(0), case.node.attrs
    named = (int_attr(attrs, "axis"),) if "axis" in attrs else ints_attr(attrs, "axes")
    places = sorted(place % len(axes) for place in named)
    masked = [place for place in places if is_symbolic(axes[place])]
    keeps = bool(attrs["keepdims"])
    result = tuple(() if i in places else each for i, each in enumerate(axes) if keeps or i not in places)
    masks = tuple(PaddingMask(0, place, _NEUTRAL[case.node.op]) for place in masked)
    return Effect((result,), masks, tuple(places) if masked and case.node.op == "ReduceMean" else ())


def _running(case: NodeCase) -> Effect:
    """Sum or multiply so far: from the end on, padding comes first."""
    attrs, axes = case.node.attrs, case.axes(0)
    place = int_attr(attrs, "axis") % len(axes)
    neutral = 1.0 if case.node.op == "CumProd" else 0.0
    return Effect((axes,), (PaddingMask(0, place, neutral),) if int_attr(attrs, "reverse") else ())


def _top(case: NodeCase) -> Effect:
    """Return the first by value, behind which padding comes; a request has at least as many."""
    attrs, axes = case.node.attrs, case.axes(0)
    place = int_attr(attrs, "axis") % len(axes)
    count = case.shaped()[place]
    if extent(axes[place], case.observed.least) < extent(count, case.observed.least):
        raise case.refuse(f"takes {count} along {symbols_text(axes, [place])}, of which there may be less")
    result = (*axes[:place], count, *axes[place + 1 :])
    last = -math.inf if int_attr(attrs, "largest") else math.inf
    return Effect((result,) * len(case.node.outputs), (PaddingMask(0, place, last),))


def _leading_axis(case: NodeCase) -> Effect:
    """Check that the first operand and the results have the batch as their first axis, treated alike for each."""
    axes = case.axes(0)
    case.require_plain(0, range(1, len(axes)), "looks beyond single places")
    for index, other in enumerate(case.operands[1:], 1):
        if other is not None and any(is_symbolic(each) for each in other):
            if case.node.op != "Attention" or other[0] != axes[0]:
                raise case.refuse(f"has an operand that grows, {other}")
            case.require_plain(index, range(1, len(other)), "looks beyond single places")
    return Effect(
        tuple((axes[0], *((size,) if size > 1 else () for size in t.shape[1:])) for t in case.results)
    )


def _expand(case: NodeCase) -> Effect:
    own, shape = case.axes(0), case.results[0].shape
    grown = case.shaped()
    lead = len(shape) - len(own)
    return Effect(
        (tuple(own[i - lead] if i >= lead and own[i - lead] else grown[i] for i in range(len(shape))),)
    )


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_NEUTRAL, _reduction),
    "BatchNormalization": _batch_norm,
    "Concat": moved.concat,
    "ConstantOfShape": lambda case: Effect((case.shaped(),)),
    "CumProd": _running,
    "CumSum": _running,
    "DequantizeLinear": _per_axis,
    "Expand": _expand,
    "Gather": moved.gather,
    "GatherND": moved.gather_nd,
    "Gemm": _gemm,
    "DepthToSpace": borders.shuffled,
    "GroupNormalization": normalized.of_images,
    "InstanceNormalization": normalized.of_images,
    "Interpolate": resized.resized,
    "LayerNormalization": normalized.of_rows,
    "RMSNormalization": normalized.of_rows,
    "Resize": resized.resized,
    "SpaceToDepth": borders.shuffled,
    "LogSoftmax": _softmax,
    "MatMul": _matmul,
    "MatMulInteger": partial(_integer_matmul, second=1),
    "Pad": borders.padded,
    "QLinearMatMul": partial(_integer_matmul, second=3),
    "QuantizeLinear": _per_axis,
    "Range": computed.numbers,
    "Shape": computed.extents,
    "Size": computed.extents,
    "Slice": moved.cut,
    "Softmax": _softmax,
    "Split": moved.split,
    "Tile": moved.tiled,
    "TopK": _top,
    "Transpose": _transpose,
    "TreeEnsemble": _leading_axis,
    "UnpackBlocks": _of_words,
    "TensorScatter": moved.tensor_scatter,
    "Trilu": moved.triangle,
}


__all__ = ["effect_of"]
