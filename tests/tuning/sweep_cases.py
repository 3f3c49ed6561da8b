"""Random operators, each as a program of tensor expressions and as an ONNX model of one node or few."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, helper

from autotune import te

_LEAST, _MOST = 1 << 17, 1 << 26
"""Steps of a case: less is the time of a call, and more takes too long for a sweep."""


@dataclass(frozen=True)
class Case:
    """One operator: arguments of the program, inputs first, and the same in ONNX."""

    name: str
    args: tuple[te.Tensor, ...]
    model: onnx.ModelProto


class OnnxBuilder:
    """Nodes one after the other, each of one output."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; returns the name of its output."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def number(self, value: float) -> str:
        """A float32 scalar."""
        name = f"c{len(self._constants)}"
        self._constants.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        return name

    def integers(self, values: Sequence[int]) -> str:
        """An int64 vector."""
        name = f"c{len(self._constants)}"
        self._constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], list(values)))
        return name

    def model(self, args: Sequence[te.Tensor], output: str) -> onnx.ModelProto:
        """The model of what was appended; the last of ``args`` says what ``output`` is like."""
        values = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, t.shape)
            for n, t in zip([*(t.name for t in args[:-1]), output], args, strict=True)
        ]
        graph = helper.make_graph(self._nodes, "case", values[:-1], values[-1:], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


# -- epilogues ---------------------------------------------------------------------------------------------

Unary = Callable[[Any], Any]

_EPILOGUES: Mapping[str, tuple[Unary, Callable[[OnnxBuilder, str], str]]] = {
    "relu": (lambda x: te.maximum(x, 0.0), lambda b, x: b.node("Relu", x)),
    "gelu": (lambda x: x * 0.5 * (1.0 + te.erf(x * math.sqrt(0.5))), lambda b, x: b.node("Gelu", x)),
    "tanh": (te.tanh, lambda b, x: b.node("Tanh", x)),
    "scaled": (lambda x: x * 0.125, lambda b, x: b.node("Mul", x, b.number(0.125))),
    "sigmoid": (te.sigmoid, lambda b, x: b.node("Sigmoid", x)),
}


def _elementwise(tensor: te.Tensor, function: Unary, name: str) -> te.Tensor:
    return te.compute(tensor.shape, lambda *i: function(tensor(*i)), name=name)


# -- kinds -------------------------------------------------------------------------------------------------


def contraction(rng: random.Random) -> Case:
    """An Einsum of two tensors: axes of each kind in any number and order."""
    batch, left, right, summed = (
        [f"{letter}{n}" for n in range(rng.choice(counts))]
        for letter, counts in (
            ("b", (0, 0, 1, 2)),
            ("m", (0, 1, 1, 2)),
            ("n", (1, 1, 1, 2)),
            ("k", (1, 1, 1, 2)),
        )
    )
    axes = [*batch, *left, *right, *summed]
    extents = _extents(rng, axes)
    lhs, rhs = [*batch, *left, *summed], [*batch, *summed, *right]
    out = [*batch, *left, *right]
    for order in (lhs, rhs):
        if rng.random() < 0.5:
            rng.shuffle(order)
    if rng.random() < 0.25:
        rng.shuffle(out)
    if rng.random() < 0.3:
        rng.shuffle(summed)
    a = te.placeholder(tuple(extents[x] for x in lhs), name="a")
    b = te.placeholder(tuple(extents[x] for x in rhs), name="b")
    reduced = {x: te.reduce_axis((0, extents[x]), name=x) for x in summed}

    def element(*index: Any) -> Any:
        at = dict(zip(out, index, strict=True)) | reduced
        return te.sum(a(*(at[x] for x in lhs)) * b(*(at[x] for x in rhs)), axis=list(reduced.values()))

    c = te.compute(tuple(extents[x] for x in out), element, name="c")
    builder, letters = OnnxBuilder(), dict(zip(axes, "abcdefghij", strict=False))
    equation = "{},{}->{}".format(*("".join(letters[x] for x in order) for order in (lhs, rhs, out)))
    last = builder.node("Einsum", "a", "b", equation=equation)
    sizes = ",".join(f"{letters[x]}={extents[x]}" for x in axes)
    return Case(f"einsum {equation} {sizes}", (a, b, c), builder.model((a, b, c), last))


def reduction(rng: random.Random) -> Case:
    """Some axes of a tensor reduced, what is reduced or the result changed by an elementwise function or not."""
    axes = [f"x{n}" for n in range(rng.choice((1, 2, 2, 3, 3, 4)))]
    extents = _extents(rng, axes)
    reduced = sorted(rng.sample(axes, rng.randint(1, len(axes))))
    kept = [x for x in axes if x not in reduced]
    kind = rng.choice(("sum", "max", "min", "squares", "mean"))
    before = rng.choice((None, None, *_EPILOGUES))
    after = rng.choice((None, *_EPILOGUES))
    x = te.placeholder(tuple(extents[n] for n in axes), name="x")
    builder, value, source = OnnxBuilder(), "x", x
    if before is not None:
        source = _elementwise(x, _EPILOGUES[before][0], "before")
        value = _EPILOGUES[before][1](builder, value)
    y = _reduced(kind, source, axes, kept, extents, rng)
    node = {
        "sum": "ReduceSum",
        "max": "ReduceMax",
        "min": "ReduceMin",
        "squares": "ReduceSumSquare",
        "mean": "ReduceMean",
    }
    positions = builder.integers([axes.index(n) for n in reduced])
    value = builder.node(node[kind], value, positions, keepdims=0)
    if after is not None:
        y = _elementwise(y, _EPILOGUES[after][0], "y")
        value = _EPILOGUES[after][1](builder, value)
    name = (
        f"{kind} of {before or 'x'}[{','.join(str(extents[n]) for n in axes)}] over {reduced}, then {after}"
    )
    return Case(name, (x, y), builder.model((x, y), value))


def _reduced(
    kind: str,
    x: te.Tensor,
    axes: Sequence[str],
    kept: Sequence[str],
    extents: Mapping[str, int],
    rng: random.Random,
) -> te.Tensor:
    names = [n for n in axes if n not in kept]
    rng.shuffle(names)
    loops = {n: te.reduce_axis((0, extents[n]), name=n) for n in names}
    count = math.prod(extents[n] for n in names)

    def element(*index: Any) -> Any:
        at = dict(zip(kept, index, strict=True)) | loops
        value = x(*(at[n] for n in axes))
        if kind in ("max", "min"):
            return getattr(te, kind)(value, axis=list(loops.values()))
        source = value * value if kind == "squares" else value * (1.0 / count) if kind == "mean" else value
        return te.sum(source, axis=list(loops.values()))

    return te.compute(tuple(extents[n] for n in kept), element, name="r")


def stencil(rng: random.Random) -> Case:
    """Weighted neighbours of an image, in one pass or two, in one line or several."""
    rank = rng.choice((1, 2, 2, 3))
    shape = tuple(_extents(rng, [f"x{n}" for n in range(rank)], _LEAST // 4, _MOST // 32).values())
    reach = tuple(min(rng.choice((0, 1, 2)), extent // 4) for extent in shape)
    offsets = [()]
    for r in reach:
        offsets = [(*o, d) for o in offsets for d in range(2 * r + 1)]
    offsets = offsets if len(offsets) <= 9 else rng.sample(offsets, 9)
    weights = [round(rng.uniform(0.1, 1.0), 3) for _ in offsets]
    x = te.placeholder(tuple(e + 2 * r for e, r in zip(shape, reach, strict=True)), name="x")

    def element(*index: Any) -> Any:
        terms = [
            x(*(i + d for i, d in zip(index, o, strict=True))) * w
            for o, w in zip(offsets, weights, strict=True)
        ]
        return sum(terms[1:], terms[0])

    y = te.compute(shape, element, name="y")
    builder, value = OnnxBuilder(), ""
    axes = builder.integers(range(rank))
    for offset, weight in zip(offsets, weights, strict=True):
        ends = builder.integers([d + e for d, e in zip(offset, shape, strict=True)])
        part = builder.node("Slice", "x", builder.integers(offset), ends, axes)
        part = builder.node("Mul", part, builder.number(weight))
        value = builder.node("Add", value, part) if value else part
    return Case(f"stencil {shape} of {len(offsets)} places", (x, y), builder.model((x, y), value))


def window(rng: random.Random) -> Case:
    """A convolution or a pool as frameworks state it: planes first, padded, with an epilogue or without."""
    channels, filters = rng.choice((8, 16, 24, 32, 64)), rng.choice((8, 16, 32, 48, 64))
    size, kernel, stride = (
        rng.choice((14, 20, 28, 32, 56)),
        rng.choice((1, 3, 3, 5)),
        rng.choice((1, 1, 1, 2)),
    )
    pad, after = kernel // 2, rng.choice((None, "relu", "sigmoid"))
    result = (size + 2 * pad - kernel) // stride + 1
    x = te.placeholder((channels, size, size), name="x")
    padded = te.compute(
        (channels, size + 2 * pad, size + 2 * pad),
        lambda c, i, j: te.if_then_else(
            te.all(i >= pad, i < size + pad, j >= pad, j < size + pad), x[c, i - pad, j - pad], te.const(0.0)
        ),
        name="padded",
    )
    c, dy, dx = (
        te.reduce_axis((0, n), name=name) for n, name in ((channels, "c"), (kernel, "dy"), (kernel, "dx"))
    )
    builder = OnnxBuilder()
    batched = builder.node("Unsqueeze", "x", builder.integers([0]))
    common = {"strides": [stride] * 2, "pads": [pad] * 4}
    if rng.random() < 0.7:
        w = te.placeholder((filters, channels, kernel, kernel), name="w")
        y = te.compute(
            (filters, result, result),
            lambda f, i, j: te.sum(
                padded[c, i * stride + dy, j * stride + dx] * w[f, c, dy, dx], axis=[c, dy, dx]
            ),
            name="y",
        )
        value, inputs, kind = builder.node("Conv", batched, "w", **common), (x, w), f"conv to {filters}"
    else:
        w = te.placeholder((channels, kernel, kernel), name="w")
        y = te.compute(
            (channels, result, result),
            lambda f, i, j: te.sum(padded[f, i * stride + dy, j * stride + dx] * w[f, dy, dx], axis=[dy, dx]),
            name="y",
        )
        wide = builder.node("Unsqueeze", "w", builder.integers([1]))
        value, inputs, kind = (
            builder.node("Conv", batched, wide, group=channels, **common),
            (x, w),
            "depthwise",
        )
    value = builder.node("Squeeze", value, builder.integers([0]))
    if after is not None:
        y = _elementwise(y, _EPILOGUES[after][0], "z")
        value = _EPILOGUES[after][1](builder, value)
    name = f"{kind} {kernel}x{kernel}/{stride} of {channels}x{size}x{size}, then {after}"
    return Case(name, (*inputs, y), builder.model((*inputs, y), value))


def product(rng: random.Random) -> Case:
    """A batched product, its right operand transposed or not, with a bias, a residual, an activation."""
    extents = _extents(rng, ["b", "m", "n", "k"])
    b, m, n, k = (extents[x] for x in "bmnk")
    batched, transposed = rng.random() < 0.6, rng.random() < 0.5
    bias, residual, after = rng.random() < 0.6, rng.random() < 0.3, rng.choice((None, *_EPILOGUES))
    x = te.placeholder((b, m, k), name="x")
    matrix = (n, k) if transposed else (k, n)
    w = te.placeholder((b, *matrix) if batched else matrix, name="w")
    r = te.reduce_axis((0, k), name="r")

    def element(bb: Any, i: Any, j: Any) -> Any:
        at = (j, r) if transposed else (r, j)
        return te.sum(x[bb, i, r] * w(*((bb, *at) if batched else at)), axis=r)

    y = te.compute((b, m, n), element, name="y")
    builder, inputs, right = OnnxBuilder(), [x, w], "w"
    if transposed:
        right = builder.node("Transpose", "w", perm=[0, 2, 1] if batched else [1, 0])
    value = builder.node("MatMul", "x", right)
    if bias:
        vector, before = te.placeholder((n,), name="bias"), y
        inputs.append(vector)
        y = te.compute((b, m, n), lambda bb, i, j: before[bb, i, j] + vector[j], name="biased")
        value = builder.node("Add", value, "bias")
    if after is not None:
        y = _elementwise(y, _EPILOGUES[after][0], "after")
        value = _EPILOGUES[after][1](builder, value)
    if residual:
        other, last = te.placeholder((b, m, n), name="other"), y
        inputs.append(other)
        y = te.compute((b, m, n), lambda bb, i, j: last[bb, i, j] + other[bb, i, j], name="z")
        value = builder.node("Add", value, "other")
    kind = f"{'batched' if batched else 'shared'} {'NT' if transposed else 'NN'}"
    name = f"product {kind} b={b} m={m} n={n} k={k}, bias {bias}, {after}, residual {residual}"
    return Case(name, (*inputs, y), builder.model((*inputs, y), value))


KINDS: Mapping[str, Callable[[random.Random], Case]] = {
    "contraction": contraction,
    "reduction": reduction,
    "stencil": stencil,
    "window": window,
    "product": product,
}


def case(seed: int) -> tuple[str, Case]:
    """The kind and the case of a seed; the kinds follow one another."""
    kind = [*KINDS][seed % len(KINDS)]
    return kind, KINDS[kind](random.Random(seed))


_SIZES = (
    1,
    2,
    3,
    5,
    7,
    8,
    12,
    16,
    20,
    31,
    32,
    48,
    64,
    96,
    100,
    128,
    192,
    197,
    256,
    384,
    512,
    768,
    1000,
    1024,
)


def _extents(
    rng: random.Random, axes: Sequence[str], least: int = _LEAST, most: int = _MOST
) -> dict[str, int]:
    """Extents whose product is within bounds, one of which is drawn to fit; long ones where there are few."""
    for _ in range(1000):
        found = {axis: rng.choice(_SIZES) for axis in axes}
        if len(axes) == 1:
            found = {axes[0]: rng.randint(least, most // 8)}
        if least <= math.prod(found.values()) <= most:
            return found
    raise AssertionError(f"no extents for {len(axes)} axes")


__all__ = ["KINDS", "Case", "case"]
