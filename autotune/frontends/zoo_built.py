"""Zoo models that are built in code: an MLP, transformer encoders, MobileNet-V2 and a test net."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from autotune.frontends.model_builder import ModelBuilder

if TYPE_CHECKING:
    import onnx

# MobileNet-V2's inverted residual blocks: expansion, channels, repeats, first stride (its table 2).
MOBILENET_V2_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mlp(batch: int = 32, sizes: Sequence[int] = (784, 1024, 1024, 10)) -> onnx.ModelProto:
    """Return a multi-layer perceptron: ``[batch, sizes[0]] -> [batch, sizes[-1]]``, ReLU between."""
    b = ModelBuilder("mlp", seed=2)
    x = b.input("x", (batch, sizes[0]))
    for i, (inner, outer) in enumerate(pairwise(sizes)):
        weight = b.normal(f"weight{i}", (inner, outer), inner**-0.5)
        x = b.node("Gemm", [x, weight, b.normal(f"bias{i}", (outer,), 0.1)], f"dense{i}")
        if i < len(sizes) - 2:
            x = b.node("Relu", [x], f"relu{i}")
    return b.finish([x])


def encoder(
    layers: int = 4, width: int = 256, heads: int = 4, sequence: int = 128, hidden: int = 1024
) -> onnx.ModelProto:
    """Return a pre-norm transformer encoder: ``[1, sequence, width] -> [1, sequence, width]``.

    Each layer is self-attention by separate Q, K, V matrices and a GELU (erf) feed-forward part.
    """
    b = ModelBuilder("encoder", seed=1)
    x = b.input("x", (1, sequence, width))
    head_width = width // heads
    b.constant("split_heads", np.array([1, sequence, heads, head_width], np.int64))
    b.constant("join_heads", np.array([1, sequence, width], np.int64))
    b.constant("scale", np.float32(head_width**-0.5))
    b.constant("half", np.float32(0.5))
    b.constant("one", np.float32(1.0))
    b.constant("inverse_sqrt2", np.float32(2**-0.5))
    for layer in range(layers):
        x = _attention(b, x, f"l{layer}.", width)
        x = _feed_forward(b, x, f"l{layer}.", width, hidden)
    return b.finish([x])


def _dense(b: ModelBuilder, x: str, name: str, inner: int, outer: int) -> str:
    weight = b.normal(f"{name}.weight", (inner, outer), inner**-0.5)
    bias = b.normal(f"{name}.bias", (outer,), 0.02)
    return b.node("Add", [b.node("MatMul", [x, weight], f"{name}.matmul"), bias], name)


def _layer_norm(b: ModelBuilder, x: str, name: str, width: int) -> str:
    gain = b.constant(f"{name}.gain", b.rng.uniform(0.8, 1.2, width).astype(np.float32))
    return b.node("LayerNormalization", [x, gain, b.normal(f"{name}.bias", (width,), 0.05)], name)


def _attention(b: ModelBuilder, x: str, p: str, width: int) -> str:
    normed = _layer_norm(b, x, p + "norm1", width)
    parts = {}
    for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        dense = _dense(b, normed, p + part, width, width)
        split = b.node("Reshape", [dense, "split_heads"], f"{p}{part}.split")
        parts[part] = b.node("Transpose", [split], f"{p}{part}.heads", perm=perm)
    scores = b.node("MatMul", [parts["q"], parts["k"]], p + "scores")
    scaled = b.node("Mul", [scores, "scale"], p + "scaled")
    weights = b.node("Softmax", [scaled], p + "softmax", axis=-1)
    mixed = b.node("MatMul", [weights, parts["v"]], p + "mixed")
    joined = b.node("Transpose", [mixed], p + "mixed.heads", perm=[0, 2, 1, 3])
    joined = b.node("Reshape", [joined, "join_heads"], p + "joined")
    return b.node("Add", [x, _dense(b, joined, p + "project", width, width)], p + "attention")


def _feed_forward(b: ModelBuilder, x: str, p: str, width: int, hidden: int) -> str:
    inner = _dense(b, _layer_norm(b, x, p + "norm2", width), p + "up", width, hidden)
    erf = b.node("Erf", [b.node("Mul", [inner, "inverse_sqrt2"], p + "gelu.scaled")], p + "gelu.erf")
    gate = b.node("Mul", [inner, b.node("Add", [erf, "one"], p + "gelu.plus1")], p + "gelu.gate")
    gelu = b.node("Mul", [gate, "half"], p + "gelu")
    return b.node("Add", [x, _dense(b, gelu, p + "down", hidden, width)], p + "feed_forward")


def encoder_base() -> onnx.ModelProto:
    """Return the encoder in BERT-base size: 12 layers, width 768, 12 heads, hidden 3072."""
    return encoder(layers=12, width=768, heads=12, hidden=3072)


def _conv(
    b: ModelBuilder, x: str, name: str, shape: tuple[int, int, int], stride: int = 1, group: int = 1
) -> str:
    inner, outer, kernel = shape
    fan_in = inner // group * kernel * kernel
    weight = b.normal(f"{name}.weight", (outer, inner // group, kernel, kernel), (2 / fan_in) ** 0.5)
    return b.node(
        "Conv",
        [x, weight, b.normal(f"{name}.bias", (outer,), 0.1)],
        name,
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[kernel // 2] * 4,
        group=group,
    )


def mobilenetv2(size: int = 224) -> onnx.ModelProto:
    """Return MobileNet-V2 (Sandler et al. 2018): ``[1, 3, size, size] -> [1, 1000]``, ReLU6 as Clip."""
    b = ModelBuilder("mobilenetv2", seed=3)
    x = b.input("x", (1, 3, size, size))
    b.constant("zero", np.float32(0))
    b.constant("six", np.float32(6))

    def relu6(value: str) -> str:
        return b.node("Clip", [value, "zero", "six"], f"{value}.relu6")

    channels = 32
    x = relu6(_conv(b, x, "stem", (3, channels, 3), stride=2))
    for stage, (expand, outer, repeats, first_stride) in enumerate(MOBILENET_V2_BLOCKS):
        for i in range(repeats):
            p, stride, wide = f"b{stage}.{i}.", first_stride if i == 0 else 1, channels * expand
            y = x if expand == 1 else relu6(_conv(b, x, p + "expand", (channels, wide, 1)))
            y = relu6(_conv(b, y, p + "depthwise", (wide, wide, 3), stride, group=wide))
            y = _conv(b, y, p + "project", (wide, outer, 1))
            x = b.node("Add", [x, y], p + "add") if stride == 1 and channels == outer else y
            channels = outer
    x = relu6(_conv(b, x, "head", (channels, 1280, 1)))
    x = b.node("Flatten", [b.node("GlobalAveragePool", [x], "pool")], "flat")
    weight, bias = (
        b.normal("classes.weight", (1280, 1000), 0.03),
        b.normal("classes.bias", (1000,), 0.1),
    )
    return b.finish([b.node("Gemm", [x, weight, bias], "classes")])


def tiny_cnn(size: int = 16) -> onnx.ModelProto:
    """Return a small net with what large ones have: ``[1, 3, size, size] -> [1, 10]``.

    Conv + batch norm + ReLU, a residual, max and average pools, a Concat, a grouped convolution
    with a channel shuffle, global pooling, a dense layer and a softmax.
    """
    b = ModelBuilder("tiny_cnn", seed=4)
    x = b.input("x", (1, 3, size, size))
    x = b.node("Relu", [_batch_norm(b, _conv(b, x, "stem", (3, 16, 3)), "stem.norm", 16)], "stem.relu")
    x = b.node("MaxPool", [x], "pool1", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = b.node("Relu", [_conv(b, x, "res1", (16, 16, 3))], "res1.relu")
    y = _batch_norm(b, _conv(b, y, "res2", (16, 16, 3)), "res2.norm", 16)
    x = b.node("Relu", [b.node("Add", [x, y], "residual")], "residual.relu")
    left = b.node("Relu", [_conv(b, x, "left", (16, 8, 1))], "left.relu")
    right = b.node("Relu", [_conv(b, x, "right", (16, 24, 3))], "right.relu")
    x = b.node("Concat", [left, right], "concat", axis=1)
    x = _channel_shuffle(b, _conv(b, x, "grouped", (32, 32, 1), group=4), 4, 32, size // 2)
    x = b.node("AveragePool", [x], "pool2", kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Flatten", [b.node("GlobalAveragePool", [x], "pool3")], "flat")
    weight, bias = b.normal("classes.weight", (10, 32), 0.2), b.normal("classes.bias", (10,), 0.1)
    x = b.node("Gemm", [x, weight, bias], "classes", transB=1)
    return b.finish([b.node("Softmax", [x], "probabilities", axis=1)])


def _batch_norm(b: ModelBuilder, x: str, name: str, channels: int) -> str:
    scale = b.constant(f"{name}.scale", b.rng.uniform(0.8, 1.2, channels).astype(np.float32))
    shift, mean = (
        b.normal(f"{name}.shift", (channels,), 0.1),
        b.normal(f"{name}.mean", (channels,), 0.1),
    )
    var = b.constant(f"{name}.variance", b.rng.uniform(0.8, 1.2, channels).astype(np.float32))
    return b.node("BatchNormalization", [x, scale, shift, mean, var], name)


def _channel_shuffle(b: ModelBuilder, x: str, groups: int, channels: int, size: int) -> str:
    apart = np.array([1, groups, channels // groups, size, size], np.int64)
    b.constant("shuffle.apart", apart)
    b.constant("shuffle.together", np.array([1, channels, size, size], np.int64))
    x = b.node("Reshape", [x, "shuffle.apart"], "shuffle.split")
    x = b.node("Transpose", [x], "shuffle.swap", perm=[0, 2, 1, 3, 4])
    return b.node("Reshape", [x, "shuffle.together"], "shuffle")


__all__ = ["encoder", "encoder_base", "mlp", "mobilenetv2", "tiny_cnn"]
