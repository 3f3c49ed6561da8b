"""Convolutions as problems: ours channels last, the peers' models channels first, the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.bench.problem import Problem
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array

CAPSULE = 4


@dataclass(frozen=True)
class Convolution:
    """Sizes of a convolution over one to three spatial dimensions, equal along each of them."""

    size: tuple[int, ...]
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    batch: int = 1

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.size)

    def window(self) -> dict[str, Any]:
        """Attributes of Conv, the same in both forms."""
        return {
            "strides": (self.stride,) * self.rank,
            "pads": (self.pad,) * (2 * self.rank),
            "dilations": (self.dilation,) * self.rank,
            "group": self.groups,
        }

    def weight(self, rng: np.random.Generator) -> Array:
        """Weights as ONNX orders them: [outputs, inputs/groups, kernel...]."""
        shape = (self.outputs, self.inputs // self.groups, *(self.kernel,) * self.rank)
        return _scaled(rng, shape, int(np.prod(shape[1:])))


def _scaled(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> Array:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(fan_in**-0.5)


def _last(rank: int) -> tuple[int, ...]:
    """The permutation from channels first to channels last."""
    return (0, *range(2, rank + 2), 1)


def _first(rank: int) -> tuple[int, ...]:
    """The permutation from channels last to channels first."""
    return (0, rank + 1, *range(1, rank + 1))


def _weight_last(weight: Array) -> Array:
    """From [out, in, kernel...] to [kernel..., in, out]."""
    return np.ascontiguousarray(np.moveaxis(weight, (1, 0), (-2, -1)))


def convolution(sizes: Convolution, seed: int, *, normalised: bool = False) -> Problem:
    """A convolution; ``normalised`` adds a bias, a batch norm and a ReLU."""
    rng = np.random.default_rng(seed)
    weight = sizes.weight(rng)
    names = ("scale", "shift", "mean", "variance")
    vectors = [rng.uniform(0.8, 1.2, sizes.outputs).astype(np.float32) for _ in range(5)]
    x = rng.standard_normal((sizes.batch, *sizes.size, sizes.inputs), dtype=np.float32)
    b, m = GraphBuilder("conv"), ModelBuilder("conv")
    b.input("x", x.shape)
    m.input("x", x.transpose(_first(sizes.rank)).shape)
    b.constant("w", _weight_last(weight))
    m.constant("w", weight)
    operands = ["x", "w"]
    if normalised:
        for builder in (b, m):
            builder.constant("bias", vectors[4])
            for name, vector in zip(names, vectors, strict=False):
                builder.constant(name, vector)
        operands.append("bias")
    ours = b.node("Conv", *operands, layout="NHWC", **sizes.window())
    kernel = (sizes.kernel,) * sizes.rank
    theirs = m.node("Conv", operands, "conv", kernel_shape=kernel, **sizes.window())
    if normalised:
        ours = b.node("Relu", b.node("BatchNormalization", ours, *names, layout="NHWC"))
        theirs = m.node("Relu", [m.node("BatchNormalization", [theirs, *names], "norm")], "relu")
    return Problem(b.graph(ours), {"x": x}, m.finish([theirs]), {"x": _first(sizes.rank)}, _last(sizes.rank))


def transposed(sizes: Convolution, seed: int) -> Problem:
    """A transposed convolution."""
    rng = np.random.default_rng(seed)
    kernel = (sizes.kernel,) * sizes.rank
    weight = _scaled(rng, (sizes.inputs, sizes.outputs, *kernel), sizes.kernel**sizes.rank * sizes.inputs)
    x = rng.standard_normal((sizes.batch, *sizes.size, sizes.inputs), dtype=np.float32)
    first = _first(sizes.rank)
    b, m = GraphBuilder("conv_transpose"), ModelBuilder("conv_transpose")
    b.input("x", x.shape)
    m.input("x", x.transpose(first).shape)
    b.constant("w", np.ascontiguousarray(np.moveaxis(weight, (0, 1), (-2, -1))))
    m.constant("w", weight)
    ours = b.node("ConvTranspose", "x", "w", layout="NHWC", **sizes.window())
    theirs = m.node("ConvTranspose", ["x", "w"], "y", kernel_shape=kernel, **sizes.window())
    return Problem(b.graph(ours), {"x": x}, m.finish([theirs]), {"x": first}, _last(sizes.rank))


def capsule(sizes: Convolution, seed: int) -> Problem:
    """A capsule convolution: channels are 4×4 matrices, and the product of two is a matrix product.

    ``x[n, h, w, c, i, t]`` and ``w[kh, kw, c, o, t, j]`` give ``y[n, h, w, o, i, j]``: a convolution over
    channels (c, t) and (o, j) for each i, between two transpositions, in both forms.
    """
    rng = np.random.default_rng(seed)
    d, n = CAPSULE, sizes.batch
    inner, outer = sizes.inputs * d, sizes.outputs * d
    plain = Convolution(sizes.size, inner, outer, sizes.kernel, sizes.stride, sizes.pad, batch=n * d)
    weight = plain.weight(rng)
    x = rng.standard_normal((n, *sizes.size, sizes.inputs, d, d), dtype=np.float32)
    out = [(h + 2 * sizes.pad - sizes.kernel) // sizes.stride + 1 for h in sizes.size]
    b, m = GraphBuilder("capsule"), ModelBuilder("capsule")
    for builder in (b, m):
        builder.input("x", x.shape)
    b.constant("w", _weight_last(weight))
    m.constant("w", weight)
    ours = b.node("Transpose", "x", perm=(0, 4, 1, 2, 3, 5))
    ours = b.node("Reshape", ours, shape=(n * d, *sizes.size, inner))
    ours = b.node("Conv", ours, "w", layout="NHWC", **plain.window())
    ours = b.node("Reshape", ours, shape=(n, d, *out, sizes.outputs, d))
    ours = b.node("Transpose", ours, perm=(0, 2, 3, 4, 1, 5))
    m.constant("merged", np.array([n * d, inner, *sizes.size], np.int64))
    m.constant("apart", np.array([n, d, sizes.outputs, d, *out], np.int64))
    theirs = m.node("Transpose", ["x"], "matrices", perm=(0, 4, 3, 5, 1, 2))
    theirs = m.node("Reshape", [theirs, "merged"], "image")
    kernel = (sizes.kernel,) * plain.rank
    theirs = m.node("Conv", [theirs, "w"], "conv", kernel_shape=kernel, **plain.window())
    theirs = m.node("Reshape", [theirs, "apart"], "capsules")
    theirs = m.node("Transpose", [theirs], "y", perm=(0, 4, 5, 2, 1, 3))
    return Problem(b.graph(ours), {"x": x}, m.finish([theirs]))


__all__ = ["CAPSULE", "Convolution", "capsule", "convolution", "transposed"]
