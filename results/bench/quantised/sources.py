"""Models to be quantised, with inputs to calibrate by and others to be judged by, labelled where there are labels."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autotune.frontends import zoo
from autotune.graph.ir import Array

if TYPE_CHECKING:
    import onnx

MODELS = ("squeezenet", "mobilenetv2", "resnet50", "encoder")
"""Of the zoo, which has random weights and so no labels."""
CALIBRATION, HELD_BACK = 16, 64
_SHAPING = ("Shape", "Reshape", "Flatten", "Squeeze", "Identity")


@dataclass(frozen=True, eq=False)
class Source:
    """A float32 model of one input and one output; arrays of inputs have a first axis more than the input has.

    ``labels`` are the right classes of ``held_back``, if there are any.
    """

    name: str
    model: onnx.ModelProto
    calibration: Array
    held_back: Array
    labels: Array | None = None

    @property
    def input(self) -> str:
        """The name of the input."""
        known = {tensor.name for tensor in self.model.graph.initializer}
        return next(str(v.name) for v in self.model.graph.input if v.name not in known)


def zoo_source(name: str) -> Source:
    """A model of the zoo as far as its logits; images that look like photographs to statistics, or normal numbers."""
    model = without_softmax(zoo.load(name))
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shape = zoo.info(name).input_shape
    make = images if len(shape) == 4 else _normal
    return Source(name, model, *(make(rng, count, shape) for count in (CALIBRATION, HELD_BACK)))


def images(rng: np.random.Generator, count: int, shape: Sequence[int]) -> Array:
    """Noise whose power falls with the square of the frequency, as that of photographs does, most of it grey.

    Field (1987), Relations between the statistics of natural images and the response properties of cortical cells.
    """
    *_, height, width = shape
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1 / max(height, width)
    noise = np.fft.rfft2(rng.standard_normal((count, *shape)))
    found = np.fft.irfft2(noise / frequency, (height, width))
    found -= found.mean((-2, -1), keepdims=True)
    found /= found.std((-2, -1), keepdims=True)
    light = 0.4 * rng.standard_normal((count, *shape[:2], 1, 1))
    return (0.85 * found[:, :, :1] + 0.5 * found + light).astype(np.float32)


def _normal(rng: np.random.Generator, count: int, shape: Sequence[int]) -> Array:
    return rng.standard_normal((count, *shape), dtype=np.float32)


def without_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model up to its last softmax, where nothing but shapes follows it."""
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    place = max((i for i, node in enumerate(graph.node) if node.op_type == "Softmax"), default=None)
    if place is None or any(node.op_type not in _SHAPING for node in graph.node[place + 1 :]):
        return made
    logits = graph.node[place].input[0]
    wanted, kept = {logits}, []
    for node in reversed(graph.node[:place]):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    kept.reverse()
    used = [tensor for tensor in graph.initializer if tensor.name in wanted]
    for field, values in (("node", kept), ("initializer", used)):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        graph.ClearField(field)
        getattr(graph, field).extend(copies)
    given = [type(v).FromString(v.SerializeToString()) for v in graph.input if v.name in wanted]
    graph.ClearField("input")
    graph.input.extend(given)
    graph.ClearField("output")
    graph.output.append(onnx.helper.make_tensor_value_info(logits, onnx.TensorProto.FLOAT, None))
    return made


__all__ = ["CALIBRATION", "HELD_BACK", "MODELS", "Source", "images", "without_softmax", "zoo_source"]
