"""Operators that only move bytes, at a size that no cache holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotune.bench.problem import BenchmarkCase, Problem
from autotune.bench.suites.dense import builders
from autotune.frontends.model_builder import ModelBuilder

MEBIBYTE = 1 << 20
_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_CHANNELS = 64


def _image(elements: int) -> tuple[int, int, int, int]:
    """A channels-last image of about so many elements, with even sides."""
    side = int((elements / _CHANNELS) ** 0.5) // 2 * 2
    return (1, max(side, 4), max(side, 4), _CHANNELS)


def _matrix(elements: int) -> tuple[int, int]:
    side = max(16, int(elements**0.5) // 16 * 16)
    return (side, side)


def _relu(elements: int) -> Problem:
    b, m, arrays = builders("relu", 0, x=(elements,))
    return Problem(b.graph(b.node("Relu", "x")), arrays, m.finish([m.node("Relu", ["x"], "y")]))


def _chain(elements: int) -> Problem:
    """relu(x · scale + y), scale a vector along the last dimension."""
    shape = _matrix(elements)
    b, m, arrays = builders("chain", 0, x=shape, y=shape)
    scale = np.linspace(0.5, 1.5, shape[1], dtype=np.float32)
    for builder in (b, m):
        builder.constant("scale", scale)
    ours = b.node("Relu", b.node("Add", b.node("Mul", "x", "scale"), "y"))
    total = m.node("Add", [m.node("Mul", ["x", "scale"], "scaled"), "y"], "total")
    return Problem(b.graph(ours), arrays, m.finish([m.node("Relu", [total], "out")]))


def _silu(elements: int) -> Problem:
    """x · sigmoid(x): arithmetic that has to hide behind the memory."""
    b, m, arrays = builders("silu", 0, x=(elements,))
    ours = b.node("Mul", "x", b.node("Sigmoid", "x"))
    theirs = m.node("Mul", ["x", m.node("Sigmoid", ["x"], "gate")], "y")
    return Problem(b.graph(ours), arrays, m.finish([theirs]))


def _transpose(shape: Sequence[int], perm: Sequence[int], dtype: str = "float32") -> Problem:
    b, m, arrays = builders("transpose", 0)
    for builder in (b, m):
        builder.input("x", tuple(shape), dtype)
    arrays["x"] = np.random.default_rng(0).integers(0, 256, tuple(shape)).astype(dtype)
    ours = b.node("Transpose", "x", perm=tuple(perm))
    return Problem(b.graph(ours), arrays, m.finish([m.node("Transpose", ["x"], "y", perm=list(perm))]))


def _reduction(op: str, shape: Sequence[int], axes: Sequence[int]) -> Problem:
    b, m, arrays = builders("reduction", 0, x=shape)
    m.constant("axes", np.asarray(axes, np.int64))
    ours = b.node(op, "x", axes=tuple(axes), keepdims=0)
    return Problem(b.graph(ours), arrays, m.finish([m.node(op, ["x", "axes"], "y", keepdims=0)]))


def _softmax(shape: Sequence[int], axis: int) -> Problem:
    b, m, arrays = builders("softmax", 0, x=shape)
    ours = b.node("Softmax", "x", axis=axis)
    return Problem(b.graph(ours), arrays, m.finish([m.node("Softmax", ["x"], "y", axis=axis)]))


def _concat(elements: int, axis: int) -> Problem:
    shape = _matrix(elements // 2)
    b, m, arrays = builders("concat", 0, x=shape, y=shape)
    ours = b.node("Concat", "x", "y", axis=axis)
    return Problem(b.graph(ours), arrays, m.finish([m.node("Concat", ["x", "y"], "z", axis=axis)]))


def _gather(elements: int, width: int = 256) -> Problem:
    """Every row of a table once, in random order."""
    rows = max(1, elements // width)
    b, m, arrays = builders("gather", 0, table=(rows, width))
    for builder in (b, m):
        builder.input("index", (rows,), "int64")
    arrays["index"] = np.random.default_rng(0).permutation(rows).astype(np.int64)
    ours = b.node("Gather", "table", "index", axis=0)
    return Problem(b.graph(ours), arrays, m.finish([m.node("Gather", ["table", "index"], "y", axis=0)]))


def _pool(elements: int, op: str, kernel: int, stride: int) -> Problem:
    n, h, w, c = _image(elements)
    b, _, arrays = builders("pool", 0, x=(n, h, w, c))
    m = ModelBuilder("pool")
    m.input("x", (n, c, h, w))
    window: dict[str, Any] = {"kernel_shape": (kernel, kernel), "strides": (stride, stride)}
    ours = b.node(op, "x", layout="NHWC", **window)
    model = m.finish([m.node(op, ["x"], "y", **window)])
    return Problem(b.graph(ours), arrays, model, {"x": _FIRST}, _LAST)


_BUILD: Mapping[tuple[str, str], Callable[[int], Problem]] = {
    ("elementwise", "relu(x)"): _relu,
    ("elementwise", "relu(x·scale + y)"): _chain,
    ("elementwise", "x·sigmoid(x)"): _silu,
    ("transpose", "matrix"): lambda n: _transpose(_matrix(n), (1, 0)),
    ("transpose", "NCHW to NHWC"): lambda n: _transpose([_image(n)[i] for i in _FIRST], _LAST),
    ("transpose", "heads (0,2,1,3)"): lambda n: _transpose((1, max(4, n // 1024), 16, 64), (0, 2, 1, 3)),
    ("transpose", "matrix of bytes"): lambda n: _transpose(_matrix(4 * n), (1, 0), "uint8"),
    ("transpose", "NCHW to NHWC, bytes"): lambda n: _transpose(
        [_image(4 * n)[i] for i in _FIRST], _LAST, "uint8"
    ),
    ("concat", "first axis"): lambda n: _concat(n, 0),
    ("concat", "last axis"): lambda n: _concat(n, 1),
    ("gather", "rows of 256"): _gather,
    ("pool", "max 2×2, stride 2"): lambda n: _pool(n, "MaxPool", 2, 2),
    ("pool", "average 3×3, stride 1"): lambda n: _pool(n, "AveragePool", 3, 1),
    ("reduction", "sum of all"): lambda n: _reduction("ReduceSum", (n,), (0,)),
    ("reduction", "sum of 8 rows"): lambda n: _reduction("ReduceSum", (8, n // 8), (1,)),
    ("reduction", "sum of columns"): lambda n: _reduction("ReduceSum", _matrix(n), (0,)),
    ("softmax", "columns"): lambda n: _softmax(_matrix(n), 0),
}


FAMILIES = tuple(dict.fromkeys(family for family, _ in _BUILD))


def cases(megabytes: float, families: Sequence[str] = FAMILIES) -> Iterator[BenchmarkCase]:
    """The families' operators with an input of about ``megabytes`` MiB of float32."""
    elements = max(4096, int(megabytes * MEBIBYTE) // 4)
    for (family, name), build in _BUILD.items():
        if family in families:
            yield BenchmarkCase(family, name, partial(build, elements))


__all__ = ["FAMILIES", "MEBIBYTE", "cases"]
