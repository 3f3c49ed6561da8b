"""ONNX's random numbers: drawn when a model is compiled, the same ones at every run.

A compiled model gives the same results for the same inputs, and its artifact is the same wherever it is made; so what
ONNX leaves to chance is a constant here. A node's numbers follow from its ``seed`` and the name of its output: two
nodes draw different ones. A number follows from its place too, never from the extents of its array: an array of open
size is the beginning of the largest one. The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", 2014), split along each axis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.frontends.onnx.budget import check_evaluated
from autotune.frontends.onnx.emit import Composer, Emitter
from autotune.frontends.onnx.nodes import OnnxNode

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mixed(bits: Any) -> Any:
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        bits = (bits ^ bits >> np.uint64(shift)) * factor
    return bits ^ bits >> np.uint64(31)


def _uniform(node: OnnxNode, shape: tuple[int, ...]) -> Any:
    """Return numbers of [0, 1), float64, each by its coordinates alone."""
    seed = f"{node.op} {node.outputs[0]} {node.attrs.get('seed', '')}"
    bits = np.frombuffer(hashlib.sha256(seed.encode()).digest()[:8], "<u8").reshape(())
    for extent in shape:
        bits = _mixed(bits[..., None] + np.arange(1, extent + 1, dtype=np.uint64) * _STEP)
    return (bits >> np.uint64(11)) * 2.0**-53


def _normal(node: OnnxNode, shape: tuple[int, ...]) -> Any:
    """Return numbers of mean 0 and deviation 1, float64 (Box and Muller, 1958)."""
    radius, angle = _uniform(node, (2, *shape))
    return np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)


def _shape(node: OnnxNode) -> tuple[int, ...]:
    shape = node.input_type(0).shape if node.op.endswith("Like") else tuple(map(int, node.attrs["shape"]))
    if any(extent < 0 for extent in shape):
        raise node.fail(f"random numbers of shape {shape}, which has a negative dimension")
    check_evaluated(node, shape, 8, "what is drawn in advance")
    return shape


def _dtype(node: OnnxNode, otherwise: str) -> str:
    from autotune.frontends.onnx.read import element_dtype

    given = node.attrs.get("dtype", 0)
    return element_dtype(given, f"node {node.name!r} ({node.op})") if given else otherwise


def _drawn(node: OnnxNode, emit: Emitter) -> None:
    """Draw from a uniform distribution in [low, high), or a normal one with a mean and a scale."""
    shape, attrs = _shape(node), node.attrs
    if "Uniform" in node.op:
        low, high = float(attrs.get("low", 0.0)), float(attrs.get("high", 1.0))
        drawn = low + (high - low) * _uniform(node, shape)
    else:
        drawn = float(attrs.get("mean", 0.0)) + float(attrs.get("scale", 1.0)) * _normal(node, shape)
    like = node.input_type(0).dtype if node.op.endswith("Like") else "float32"
    emit.define(node.outputs[0], np.asarray(drawn).astype(_dtype(node, like)))


def _multinomial(node: OnnxNode, emit: Emitter) -> None:
    """Draw by the largest of logits with noise of Gumbel's distribution, which is what the logits' softmax draws."""
    x, count = node.input_type(0), int(node.attrs.get("sample_size", 1))
    if x.rank != 2:
        raise node.fail(f"it takes a row of logits for each sample, got {x}")
    shape = (x.shape[0], count, x.shape[1])
    check_evaluated(node, shape, 8, "what is drawn in advance")
    noise = emit.constant(-np.log(-np.log1p(-_uniform(node, shape))), x.dtype)
    logits = emit("Unsqueeze", node.inputs, {"axes": (1,)})
    drawn = emit("ArgMax", [emit("Add", [logits, noise])], {"axis": 2, "keepdims": 0})
    emit("Cast", [drawn], {"to": _dtype(node, "int32")}, "", node.outputs[0])


COMPOSED_RANDOM: Mapping[str, Composer] = {
    "Multinomial": _multinomial,
    "RandomNormal": _drawn,
    "RandomNormalLike": _drawn,
    "RandomUniform": _drawn,
    "RandomUniformLike": _drawn,
}
"""A function that adds the nodes, or defines the constants, of a node that draws random numbers."""

__all__ = ["COMPOSED_RANDOM"]
