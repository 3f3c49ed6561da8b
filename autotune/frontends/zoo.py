"""Models that need no download: networks of the onnx package with random weights, and our own.

Weights are deterministic, so a zoo model is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.suggest import listing

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class ZooEntry:
    """The facts of a zoo model that need no building."""

    name: str
    summary: str
    input_shape: tuple[int, ...]
    parameters: int
    """Number of weights."""
    origin: str
    """``onnx`` (topology from the onnx package) or ``built`` (made in code here)."""

    @property
    def megabytes(self) -> float:
        """Size of the float32 weights in MB (10^6 bytes)."""
        return self.parameters * 4 / 1e6


_IMAGE = (1, 3, 224, 224)
_ENTRIES = (
    ZooEntry("resnet50", "residual network, 50 layers", _IMAGE, 25_610_152, "onnx"),
    ZooEntry(
        "squeezenet",
        "fire modules: 1x1 and 3x3 convolutions, concatenated",
        _IMAGE,
        1_235_496,
        "onnx",
    ),
    ZooEntry("densenet121", "dense blocks: every layer reads all before it", _IMAGE, 8_146_152, "onnx"),
    ZooEntry("inception_v1", "GoogLeNet: parallel 1x1, 3x3, 5x5 branches", _IMAGE, 6_998_552, "onnx"),
    ZooEntry("inception_v2", "Inception with batch norm, 3x3 pairs for 5x5", _IMAGE, 11_234_792, "onnx"),
    ZooEntry("shufflenet", "grouped 1x1 convolutions with channel shuffles", _IMAGE, 1_420_152, "onnx"),
    ZooEntry("vgg19", "16 convolutions of 3x3, three large dense layers", _IMAGE, 143_667_240, "onnx"),
    ZooEntry("bvlc_alexnet", "AlexNet of Caffe, grouped convolutions, LRN", _IMAGE, 60_965_224, "onnx"),
    ZooEntry("zfnet512", "AlexNet with smaller strides and 512 channels", _IMAGE, 87_250_536, "onnx"),
    ZooEntry("mobilenetv2", "inverted residuals, depthwise 3x3, ReLU6", _IMAGE, 3_487_818, "built"),
    ZooEntry("mlp", "three dense layers, batch 32", (32, 784), 1_863_690, "built"),
    ZooEntry("encoder", "transformer encoder, 4 layers of width 256", (1, 128, 256), 3_159_044, "built"),
    ZooEntry("encoder_base", "transformer encoder of BERT-base size", (1, 128, 768), 85_054_468, "built"),
    ZooEntry("tiny_cnn", "a test net: residual, concat, shuffle, pools", (1, 3, 16, 16), 9_450, "built"),
)


def names() -> tuple[str, ...]:
    """Return names of all zoo models, in listing order."""
    return tuple(entry.name for entry in _ENTRIES)


def info(name: str) -> ZooEntry:
    """Return the entry of a zoo model, without building it.

    Raises:
        UsageError: there is no such model; the message lists those there are.
    """
    for entry in _ENTRIES:
        if entry.name == name:
            return entry
    raise UsageError(f"no zoo model is called {name!r}\n  there are: {listing(name, names())}")


def load(name: str) -> onnx.ModelProto:
    """Build a zoo model as an ONNX model of opset 17.

    Raises:
        UsageError: there is no such model.
    """
    entry = info(name)
    if entry.origin == "onnx":
        from autotune.frontends.zoo_light import load_light

        return load_light(name)
    from autotune.frontends import zoo_built

    build: Callable[[], onnx.ModelProto] = getattr(zoo_built, name)
    return build()


__all__ = ["ZooEntry", "info", "load", "names"]
