"""Whole models as problems: zoo models and ONNX files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from autotune.bench.problem import BenchmarkCase, Problem
from autotune.errors import UsageError
from autotune.frontends import zoo
from autotune.runtime.image import TensorSpec
from autotune.runtime.random_inputs import random_inputs

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


def model(name: str) -> BenchmarkCase:
    """A zoo model by name, or an ONNX file by its path (``zoo:NAME`` works too).

    Raises UsageError where there is no such model or file; building raises what importing raises.
    """
    if not name.endswith(".onnx"):
        return BenchmarkCase("model", zoo.info(name.removeprefix("zoo:")).name, partial(_build, name))
    if not Path(name).exists():
        raise UsageError(f"no such file: {name}")
    return BenchmarkCase("model", Path(name).stem, partial(_build, name))


def _build(name: str) -> Problem:
    from autotune.frontends.onnx import importer as frontend

    if name.endswith(".onnx"):
        import onnx

        graph = frontend.load(name)
        proto = onnx.load(name)
    else:
        proto = zoo.load(name.removeprefix("zoo:"))
        graph = frontend.load(proto)
    types = {name: graph.type_of(name) for name in graph.inputs}
    specs = [TensorSpec(name, known.shape, known.dtype) for name, known in types.items()]
    return Problem(graph, random_inputs(specs, seed=0), proto)


def models(names: Sequence[str] = DEFAULT) -> list[BenchmarkCase]:
    """Cases of the named models; raises UsageError for an unknown one before any is built."""
    return [model(name) for name in names]


__all__ = ["DEFAULT", "model", "models"]
