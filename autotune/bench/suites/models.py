"""Whole models as problems: zoo models and ONNX files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from autotune.bench.problem import Case, Problem
from autotune.graph.ir import Array, TensorType

DEFAULT = (
    "mlp",
    "encoder",
    "squeezenet",
    "shufflenet",
    "mobilenetv2",
    "inception_v1",
    "inception_v2",
    "densenet121",
    "resnet50",
    "bvlc_alexnet",
    "zfnet512",
    "vgg19",
    "encoder_base",
)
"""The zoo without its test net, small models first."""


def model(name: str) -> Case:
    """A zoo model by name, or an ONNX file by its path (``zoo:NAME`` works too).

    Building raises what importing raises.
    """
    zoo = name.removeprefix("zoo:")
    label = zoo if not name.endswith(".onnx") else name.rsplit("/", 1)[-1].removesuffix(".onnx")
    return Case("model", label, partial(_build, name))


def _build(name: str) -> Problem:
    from autotune.frontends import onnx as frontend
    from autotune.frontends import zoo

    if name.endswith(".onnx"):
        import onnx

        graph = frontend.load(name)
        proto = onnx.load(name)
    else:
        proto = zoo.load(name.removeprefix("zoo:"))
        graph = frontend.load(proto)
    return Problem(graph, {name: _random(graph.type_of(name)) for name in graph.inputs}, proto)


def _random(value: TensorType) -> Array:
    """Standard normal floats, and zeros for integers, which may be indexes."""
    if not value.dtype.startswith("float"):
        return np.zeros(value.shape, value.dtype)
    return np.random.default_rng(0).standard_normal(value.shape).astype(value.dtype)


def models(names: Sequence[str] = DEFAULT) -> Iterator[Case]:
    """Cases of the named models."""
    return map(model, names)


__all__ = ["DEFAULT", "model", "models"]
