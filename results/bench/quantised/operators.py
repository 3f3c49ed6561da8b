"""Quantised products and convolutions as ONNX has them, each beside its float32 form; everybody gets the same model."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from autotune.bench.problem import BenchmarkCase, Problem
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.ir import Array

INTEGER, FLOAT = "int8", "float32"
"""The families: every problem is in both, under the same name."""


@dataclass(frozen=True)
class Image:
    """A convolution of a square image of ``size`` pixels a side, padded by half of its kernel."""

    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        kind = "depthwise" if self.groups == self.inputs else f"{self.groups} groups"
        window = f"{self.kernel}x{self.kernel}" + (f"/{self.stride}" if self.stride > 1 else "")
        text = f"conv {window} {self.size}² {self.inputs}→{self.outputs}"
        return text if self.groups == 1 else f"{text}, {kind}"


SIZES = (256, 512, 768, 1024)
IMAGES = (
    Image(56, 64, 64, 3), Image(28, 128, 128, 3), Image(14, 256, 256, 3), Image(7, 512, 512, 3),
    Image(56, 64, 256, 1), Image(28, 512, 128, 1), Image(14, 1024, 256, 1),
    Image(28, 128, 128, 3, groups=4),
    Image(56, 144, 144, 3, groups=144), Image(14, 512, 512, 3, 2, groups=512),
)  # fmt: skip


def cases() -> Iterator[BenchmarkCase]:
    """Yield every problem, in float32 and then quantised."""
    for size in SIZES:
        for family in (FLOAT, INTEGER):
            yield BenchmarkCase(family, f"matmul {size}", partial(matmul, size, family))
    for image in IMAGES:
        for family in (FLOAT, INTEGER):
            yield BenchmarkCase(family, str(image), partial(convolution, image, family))


def matmul(size: int, family: str) -> Problem:
    """MatMulInteger of uint8 by constant int8 weights, with a zero point; or MatMul."""
    m, rng = ModelBuilder("matmul"), _generator(f"matmul {size}")
    if family == FLOAT:
        m.input("a", (size, size))
        operands = ["a", m.constant("b", rng.standard_normal((size, size), dtype=np.float32))]
        return _problem(m, m.node("MatMul", operands, "c"), _reals(rng, (size, size)))
    m.input("a", (size, size), "uint8")
    operands = ["a", m.constant("b", _weights(rng, (size, size))), m.constant("zero", np.uint8(128))]
    return _problem(m, m.node("MatMulInteger", operands, "c"), _activations(rng, (size, size)))


def convolution(image: Image, family: str) -> Problem:
    """QLinearConv of uint8 by int8 weights with a scale a channel and a bias; or Conv with a bias."""
    m, rng = ModelBuilder("convolution"), _generator(str(image))
    shape = (1, image.inputs, image.size, image.size)
    weights = (image.outputs, image.inputs // image.groups, image.kernel, image.kernel)
    window = {
        "kernel_shape": weights[2:],
        "pads": (image.kernel // 2,) * 4,
        "strides": (image.stride,) * 2,
        "group": image.groups,
    }
    if family == FLOAT:
        m.input("a", shape)
        w = m.constant("w", rng.standard_normal(weights, dtype=np.float32))
        bias = m.constant("bias", rng.standard_normal(image.outputs, dtype=np.float32))
        return _problem(m, m.node("Conv", ["a", w, bias], "c", **window), _reals(rng, shape))
    m.input("a", shape, "uint8")
    spread = 74.0 * 73.0 * np.sqrt(np.prod(weights[1:]))  # the standard deviation of the sums
    constants: Mapping[str, Array] = {
        "a_scale": np.asarray(0.02, np.float32),
        "a_zero": np.asarray(128, np.uint8),
        "w": _weights(rng, weights),
        "w_scale": rng.uniform(0.008, 0.012, image.outputs).astype(np.float32),
        "w_zero": np.zeros(image.outputs, np.int8),
        "c_scale": np.asarray(0.02 * 0.01 * spread / 40.0, np.float32),
        "c_zero": np.asarray(120, np.uint8),
        "bias": rng.integers(-1000, 1000, image.outputs).astype(np.int32),
    }
    for name, array in constants.items():
        m.constant(name, array)
    return _problem(m, m.node("QLinearConv", ["a", *constants], "c", **window), _activations(rng, shape))


def _problem(m: ModelBuilder, output: str, given: Array) -> Problem:
    from autotune.frontends.onnx.importer import load

    model = m.finish([output])
    return Problem(load(model), {"a": given}, model)


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def _reals(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    return rng.standard_normal(tuple(shape), dtype=np.float32)


def _activations(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    return rng.integers(0, 256, tuple(shape)).astype(np.uint8)


def _weights(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    return rng.integers(-127, 128, tuple(shape)).astype(np.int8)


__all__ = ["FLOAT", "IMAGES", "INTEGER", "SIZES", "Image", "cases", "convolution", "matmul"]
