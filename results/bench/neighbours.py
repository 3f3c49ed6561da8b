"""Pairs of shapes as people meet them: one that was tuned, and the same operator of another size that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array, Graph

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Pair:
    """A workload that was tuned, and one of other sizes."""

    family: str
    known: Sizes
    asked: Sizes

    @property
    def name(self) -> str:
        """Of what is asked for."""
        return f"{self.family} {'×'.join(map(str, self.asked))}"


def _weights(*shape: int) -> Array:
    rng = np.random.default_rng(shape)
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(np.prod(shape[:-1]) ** -0.5)


def _product(b: GraphBuilder, name: str, sizes: Sizes) -> str:
    """Rows, inner and columns: a layer with bias and ReLU."""
    m, k, n = sizes
    x, w, bias = b.input(f"{name}.x", (m, k)), b.constant(f"{name}.w", _weights(k, n)), _bias(b, name, n)
    return b.node("Relu", b.node("Add", b.node("MatMul", x, w), bias))


def _bias(b: GraphBuilder, name: str, count: int) -> str:
    return b.constant(f"{name}.bias", _weights(1, count)[0])


def _convolution(b: GraphBuilder, name: str, sizes: Sizes, group: int = 1) -> str:
    """Batch, height = width, inputs, outputs, window, stride: with bias and ReLU."""
    batch, size, inputs, outputs, window, stride = sizes
    x = b.input(f"{name}.x", (batch, size, size, inputs))
    w = b.constant(f"{name}.w", _weights(window, window, inputs // group, outputs))
    where: dict[str, Any] = {"strides": (stride,) * 2, "pads": (window // 2,) * 4, "group": group}
    return b.node("Relu", b.node("Conv", x, w, _bias(b, name, outputs), layout="NHWC", **where))


def _depthwise(b: GraphBuilder, name: str, sizes: Sizes) -> str:
    """Batch, height = width, channels, window, stride."""
    batch, size, channels, window, stride = sizes
    return _convolution(b, name, (batch, size, channels, channels, window, stride), group=channels)


def _pool(b: GraphBuilder, name: str, sizes: Sizes) -> str:
    """Batch, height = width, channels, window, stride: the largest of each window."""
    batch, size, channels, window, stride = sizes
    x = b.input(f"{name}.x", (batch, size, size, channels))
    where: dict[str, Any] = {
        "kernel_shape": (window,) * 2,
        "strides": (stride,) * 2,
        "pads": (window // 2,) * 4,
    }
    return b.node("MaxPool", x, layout="NHWC", **where)


def _softmax(b: GraphBuilder, name: str, sizes: Sizes) -> str:
    """Rows, columns."""
    return b.node("Softmax", b.input(f"{name}.x", sizes), axis=1)


def _normalization(b: GraphBuilder, name: str, sizes: Sizes) -> str:
    """Rows, columns."""
    scale = b.constant(f"{name}.scale", _weights(sizes[-1]))
    return b.node("LayerNormalization", b.input(f"{name}.x", sizes), scale, _bias(b, name, sizes[-1]))


def _attention(b: GraphBuilder, name: str, sizes: Sizes) -> str:
    """Heads, positions, width of a head."""
    return b.node("Attention", *(b.input(f"{name}.{operand}", (1, *sizes)) for operand in "qkv"))


def _elementwise(b: GraphBuilder, name: str, sizes: Sizes) -> str:
    """Batch, channels, height = width: SiLU, then channels last."""
    batch, channels, size = sizes
    x = b.input(f"{name}.x", (batch, channels, size, size))
    return b.node("Transpose", b.node("Mul", x, b.node("Sigmoid", x)), perm=(0, 2, 3, 1))


_BUILD: Mapping[str, Callable[[GraphBuilder, str, Sizes], str]] = {
    "product": _product,
    "convolution 3×3": _convolution,
    "convolution 1×1": _convolution,
    "strided convolution": _convolution,
    "depthwise": _depthwise,
    "pool": _pool,
    "softmax": _softmax,
    "normalization": _normalization,
    "attention": _attention,
    "elementwise": _elementwise,
}
PAIRS: Mapping[str, Sequence[tuple[Sizes, Sizes]]] = {
    "product": (
        ((128, 768, 768), (96, 768, 768)), ((64, 512, 1024), (16, 512, 1024)), ((256, 512, 512), (256, 640, 384)),
    ),
    "convolution 3×3": (
        ((1, 56, 64, 64, 3, 1), (1, 48, 64, 64, 3, 1)), ((1, 28, 128, 128, 3, 1), (1, 28, 96, 160, 3, 1)),
        ((1, 14, 256, 256, 3, 1), (2, 14, 256, 256, 3, 1)),
    ),
    "convolution 1×1": (
        ((1, 56, 64, 256, 1, 1), (1, 48, 64, 256, 1, 1)), ((1, 28, 256, 128, 1, 1), (1, 28, 192, 96, 1, 1)),
        ((1, 14, 512, 256, 1, 1), (4, 14, 512, 256, 1, 1)),
    ),
    "strided convolution": (
        ((1, 224, 3, 64, 7, 2), (1, 192, 3, 64, 7, 2)), ((1, 56, 64, 128, 3, 2), (1, 64, 64, 96, 3, 2)),
        ((1, 28, 64, 64, 5, 2), (1, 24, 48, 64, 5, 2)),
    ),
    "depthwise": (
        ((1, 112, 32, 3, 1), (1, 96, 32, 3, 1)), ((1, 56, 144, 3, 2), (1, 56, 96, 3, 2)),
        ((1, 28, 192, 5, 1), (2, 28, 192, 5, 1)),
    ),
    "pool": (
        ((1, 112, 64, 3, 2), (1, 96, 64, 3, 2)), ((1, 56, 128, 2, 2), (1, 56, 192, 2, 2)),
        ((1, 28, 256, 5, 1), (1, 20, 256, 5, 1)),
    ),
    "softmax": (
        ((512, 512), (512, 384)), ((1536, 128), (1152, 128)), ((64, 8192), (96, 5000)),
    ),
    "normalization": (
        ((128, 768), (384, 768)), ((2048, 1024), (1200, 1024)), ((512, 512), (512, 640)),
    ),
    "attention": (
        ((12, 128, 64), (12, 96, 64)), ((8, 512, 64), (8, 384, 64)), ((16, 256, 32), (12, 256, 32)),
    ),
    "elementwise": (
        ((1, 64, 112), (1, 64, 96)), ((1, 256, 28), (4, 256, 28)), ((1, 128, 56), (1, 192, 56)),
    ),
}  # fmt: skip
"""Sizes that were tuned and sizes to transfer to, by family: another batch or length, other channels, other images."""


def pairs(families: Iterable[str] = (), most: int | None = None) -> dict[str, list[Pair]]:
    """The pairs of some families or of all; of ``most`` the first of each family, then the second, and so on.

    >>> {family: [pair.asked for pair in found] for family, found in pairs(["softmax", "pool"], 3).items()}
    {'softmax': [(512, 384), (1152, 128)], 'pool': [(1, 96, 64, 3, 2)]}
    """
    wanted = list(families) or list(PAIRS)
    columns = zip_longest(*([Pair(family, *sizes) for sizes in PAIRS[family]] for family in wanted))
    ordered = (pair for column in columns for pair in column if pair is not None)
    found: dict[str, list[Pair]] = {}
    for pair in islice(ordered, most):
        found.setdefault(pair.family, []).append(pair)
    return found


def model(family: str, shapes: Sequence[Sizes]) -> Graph:
    """One model of several independent operators of a family; its outputs are in the order of the shapes."""
    b = GraphBuilder(family.replace(" ", "_").replace("×", "x"))
    return b.graph(*(_BUILD[family](b, f"n{number}", sizes) for number, sizes in enumerate(shapes)))


__all__ = ["PAIRS", "Pair", "model", "pairs"]
