"""Small networks of random weights that the zoo lacks: a product of each kind that a precision may be chosen for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from autotune.frontends.model_builder import ModelBuilder

if TYPE_CHECKING:
    import onnx


def _dense(m: ModelBuilder, x: str, name: str, inner: int, columns: int, after: str = "") -> str:
    """Return a product by random weights that keep the variance, with a bias, and what follows it."""
    weights = m.normal(f"{name}.w", (inner, columns), (2 if after == "Relu" else 1) ** 0.5 / inner**0.5)
    value = m.node("MatMul", [x, weights], f"{name}.product")
    value = m.node("Add", [value, m.normal(f"{name}.b", (columns,), 0.1)], name)
    return m.node(after, [value], f"{name}.after") if after else value


def _conv(
    m: ModelBuilder,
    x: str,
    name: str,
    shape: Sequence[int],
    after: str = "Relu",
    **attributes: int | list[int],
) -> str:
    """Return a convolution by random weights that keep the variance, with a bias, and what follows it."""
    scale = (2 / int(np.prod(shape[1:]))) ** 0.5
    operands = [x, m.normal(f"{name}.w", shape, scale), m.normal(f"{name}.b", shape[:1], 0.1)]
    pads = [size // 2 for size in shape[2:]] * 2
    value = m.node("Conv", operands, name, **{"pads": pads, **attributes})
    return m.node(after, [value], f"{name}.after") if after else value


def _perceptron(widths: Sequence[int], rows: int, after: str) -> onnx.ModelProto:
    m = ModelBuilder("perceptron")
    value = m.input("x", (rows, widths[0]))
    for i, (inner, columns) in enumerate(pairwise(widths)):
        value = _dense(m, value, f"dense{i}", inner, columns, after if i + 2 < len(widths) else "")
    return m.finish([value])


def _lenet() -> onnx.ModelProto:
    m = ModelBuilder("lenet")
    value = _conv(m, m.input("x", (1, 1, 28, 28)), "conv0", (8, 1, 5, 5))
    value = m.node("MaxPool", [value], "pool0", kernel_shape=[2, 2], strides=[2, 2])
    value = _conv(m, value, "conv1", (24, 8, 5, 5))
    value = m.node("MaxPool", [value], "pool1", kernel_shape=[2, 2], strides=[2, 2])
    value = m.node("Flatten", [value], "flat")
    return m.finish([_dense(m, _dense(m, value, "dense0", 24 * 49, 120, "Relu"), "dense1", 120, 10)])


def _residual(blocks: int, channels: int) -> onnx.ModelProto:
    m = ModelBuilder("residual")
    value = _conv(m, m.input("x", (1, 3, 32, 32)), "stem", (channels, 3, 3, 3))
    for i in range(blocks):
        inner = _conv(m, value, f"block{i}.0", (channels, channels, 3, 3))
        inner = _conv(m, inner, f"block{i}.1", (channels, channels, 3, 3), after="")
        value = m.node("Relu", [m.node("Add", [value, inner], f"block{i}.sum")], f"block{i}")
    pooled = m.node("Flatten", [m.node("GlobalAveragePool", [value], "pool")], "flat")
    return m.finish([_dense(m, pooled, "dense", channels, 10)])


def _separable() -> onnx.ModelProto:
    m, channels = ModelBuilder("separable"), 48
    value = _conv(m, m.input("x", (1, 3, 32, 32)), "stem", (channels, 3, 3, 3), strides=[2, 2])
    for i in range(3):
        value = _conv(m, value, f"depthwise{i}", (channels, 1, 3, 3), group=channels)
        value = _conv(m, value, f"point{i}", (channels, channels, 1, 1))
    pooled = m.node("Flatten", [m.node("GlobalAveragePool", [value], "pool")], "flat")
    return m.finish([_dense(m, pooled, "dense", channels, 10)])


def _wave() -> onnx.ModelProto:
    m = ModelBuilder("wave")
    value = _conv(m, m.input("x", (1, 1, 1024)), "conv0", (16, 1, 9), strides=[4], pads=[4, 4])
    for i in range(1, 4):
        value = _conv(m, value, f"conv{i}", (16, 16, 5), after="Tanh")
    pooled = m.node("Flatten", [m.node("GlobalAveragePool", [value], "pool")], "flat")
    return m.finish([_dense(m, pooled, "dense", 16, 8)])


def _gated() -> onnx.ModelProto:
    m = ModelBuilder("gated")
    x = m.input("x", (16, 128))
    gate = m.node("Sigmoid", [_dense(m, x, "gate", 128, 512)], "open")
    value = m.node("Mul", [gate, _dense(m, x, "up", 128, 512)], "gated")
    return m.finish([_dense(m, value, "down", 512, 128)])


def _autoencoder() -> onnx.ModelProto:
    m = ModelBuilder("autoencoder")
    value = _conv(m, m.input("x", (1, 3, 32, 32)), "down0", (16, 3, 3, 3), strides=[2, 2])
    value = _conv(m, value, "down1", (32, 16, 3, 3), strides=[2, 2])
    for i, (inner, columns) in enumerate([(32, 16), (16, 8)]):
        scales = m.constant(f"scales{i}", np.array([1, 1, 2, 2], np.float32))
        value = m.node("Resize", [value, "", scales], f"up{i}", mode="nearest")
        value = _conv(m, value, f"smooth{i}", (columns, inner, 3, 3))
    return m.finish([_conv(m, value, "image", (3, 8, 1, 1), after="")])


def _projector() -> onnx.ModelProto:
    m = ModelBuilder("projector")
    value = _dense(m, m.input("x", (1, 1024)), "wide", 1024, 4096, "Relu")
    return m.finish([_dense(m, _dense(m, value, "back", 4096, 1024, "Relu"), "head", 1024, 32)])


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "perceptron": lambda: _perceptron((64, 128, 128, 16), 8, "Relu"),
    "deep_perceptron": lambda: _perceptron((96,) * 9, 16, "Tanh"),
    "lenet": _lenet,
    "residual": lambda: _residual(3, 32),
    "separable": _separable,
    "wave": _wave,
    "gated": _gated,
    "autoencoder": _autoencoder,
    "projector": _projector,
}
"""The function that builds each, the same on every call."""

__all__ = ["NETWORKS"]
