"""ONNX nodes in the form of the graph IR: parameters as attributes, old opsets brought up to date.

Each rule gets a node as it is in the model and edits it into what ``autotune.graph.ops`` expects:
inputs that are really parameters (shapes, axes, bounds) become attributes, automatic padding is
worked out, and attributes without meaning for inference go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from autotune.errors import ModelImportError, UnknownParameterError
from autotune.frontends.onnx.schema import Scope, schema_of
from autotune.graph import ops
from autotune.graph.ir import ABSENT, TensorType


@dataclass
class OnnxNode:
    """A node being converted. ``attrs`` still has what ONNX wrote, strings decoded."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any]
    scope: Scope
    flatten_to: tuple[int, ...] | None = None
    """If set: input 0 is to be reshaped to this first, and the result back."""

    def input(self, index: int) -> str:
        """Return the name of an input, or "" if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ABSENT

    def input_type(self, index: int) -> TensorType:
        """Return the type of a present input."""
        return self.scope.type_of(self.inputs[index])

    def fail(self, reason: str) -> ModelImportError:
        """Return an error that names this node."""
        return ModelImportError(f"node {self.name!r} ({self.op}): {reason}")

    def unknown(self, what: str, value: str) -> UnknownParameterError:
        """Return an error for a value that is not constant but decides what is compiled."""
        return unknown_parameter(self, what, value)


class _Failing(Protocol):
    @property
    def scope(self) -> Scope: ...
    def fail(self, reason: str) -> ModelImportError: ...


def unknown_parameter(node: _Failing, what: str, value: str) -> UnknownParameterError:
    """Return an error for a value that is not constant but decides what is compiled."""
    inputs = node.scope.inputs_behind(value)
    example = ", ".join(f"{name!r}: ..." for name in inputs)
    flags = " ".join(f"--value {name}=..." for name in inputs)
    found = node.fail(
        f"{what} is not a constant\n  it must be known when the model is compiled"
        + (f": give values={{{example}}} ({flags}), what it depends on" if inputs else "")
    )
    return UnknownParameterError(str(found), inputs)


@dataclass(frozen=True)
class Parameter:
    """Input ``index`` is really the attribute ``name``; scalars are unwrapped."""

    index: int
    name: str
    scalar: bool = False


_RENAMED = {"constant_value": "value", "K": "k"}
"""Parameters by their names in ONNX."""


@cache
def _parameters(op: str, opset: int) -> tuple[Parameter, ...]:
    """Return the inputs that ONNX's definition calls what an attribute is called here; axes are always one."""
    attributes = ops.get(op).attributes if ops.supported(op) else {}
    names = [_RENAMED.get(declared.name, declared.name) for declared in schema_of(op, opset).inputs]
    return tuple(
        Parameter(index, name, scalar=name in attributes and attributes[name].type in ("int", "float"))
        for index, name in enumerate(names)
        if name in (*attributes, "axes")
    )


MEANINGLESS: Mapping[str, tuple[str, ...]] = {
    "Dropout": ("ratio", "seed"),
    "LayerNormalization": ("stash_type",),
    "RMSNormalization": ("stash_type",),
}
"""Attributes that do not matter for inference with one output."""


def convert(node: OnnxNode) -> None:
    """Edit a node into the form of the graph IR.

    Raises:
        ModelImportError: a parameter is not constant, or a variant of the operator is unsupported.
    """
    _parameters_to_attributes(node)
    for attribute in MEANINGLESS.get(node.op, ()):
        node.attrs.pop(attribute, None)
    if "keepdims" in node.attrs:
        node.attrs["keepdims"] = int(node.attrs["keepdims"] == 1)  # "1 means keep"
    rule = _RULES.get(node.op)
    if rule is not None:
        rule(node)
    if "auto_pad" in node.attrs:
        _resolve_auto_pad(node)


def size_rules(node: OnnxNode) -> tuple[str, ...]:
    """Return the names of rules by which padding and places follow from sizes, as ONNX writes them."""
    if node.op == "Upsample" or (node.op == "Resize" and node.scope.opset < 11):
        return "asymmetric", "floor"
    if node.op == "Resize":
        mode = str(node.attrs.get("coordinate_transformation_mode", "half_pixel"))
        places = "half_pixel" if mode in ("pytorch_half_pixel", "half_pixel_symmetric") else mode
        return places, str(node.attrs.get("nearest_mode", "round_prefer_floor"))
    rule = str(node.attrs.get("auto_pad", ""))
    return (rule,) if rule.startswith("SAME") else ()


def _parameters_to_attributes(node: OnnxNode) -> None:
    parameters = _parameters(node.op, node.scope.opset)
    for parameter in parameters:
        value = node.input(parameter.index)
        if value == ABSENT:
            continue
        array = node.scope.known(value)
        if array is None:
            raise node.unknown(f"input {parameter.name!r} ({value!r})", value)
        node.attrs[parameter.name] = (
            array.reshape(-1)[0].item() if parameter.scalar else tuple(array.reshape(-1).tolist())
        )
    taken = {parameter.index for parameter in parameters}
    node.inputs = [value for index, value in enumerate(node.inputs) if index not in taken]


def _resolve_auto_pad(node: OnnxNode) -> None:
    """Make the pads of SAME_UPPER, SAME_LOWER and VALID explicit."""
    mode = node.attrs.pop("auto_pad")
    if mode == "NOTSET":
        return
    x = node.input_type(0)
    spatial = x.rank - 2
    kernel = node.attrs.get("kernel_shape")
    if kernel is None:
        kernel = node.input_type(1).shape[2:]
    if mode == "VALID":
        node.attrs["pads"] = (0,) * (2 * spatial)
        return
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.fail(f"unknown auto_pad {mode!r}")
    strides = node.attrs.get("strides", (1,) * spatial)
    dilations = node.attrs.get("dilations", (1,) * spatial)
    begins, ends = [], []
    for size, k, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        covered = (math.ceil(size / stride) - 1) * stride + (k - 1) * dilation + 1
        total = max(covered - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(large if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else large)
    node.attrs["pads"] = (*begins, *ends)


def _conv_transpose(node: OnnxNode) -> None:
    """Make the pads of auto_pad and output_shape explicit; output_shape wins over pads, as ONNX says."""
    x, attrs = node.input_type(0), node.attrs
    mode, wanted = attrs.pop("auto_pad", "NOTSET"), attrs.pop("output_shape", None)
    spatial = x.rank - 2
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.fail(f"unknown auto_pad {mode!r}")
    strides = attrs.get("strides", (1,) * spatial)
    kernel = attrs.get("kernel_shape", node.input_type(1).shape[2:])
    dilations = attrs.get("dilations", (1,) * spatial)
    extra = attrs.get("output_padding", (0,) * spatial)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise node.fail(
            f"output_padding = {tuple(extra)} must be smaller than strides {tuple(strides)} "
            f"or dilations {tuple(dilations)}"
        )
    if wanted is None and mode.startswith("SAME"):
        wanted = tuple(size * stride for size, stride in zip(x.shape[2:], strides, strict=True))
    if wanted is None:
        if mode == "VALID":
            attrs["pads"] = (0,) * (2 * spatial)
        return
    begins, ends, extended = [], [], []
    for i, size in enumerate(x.shape[2:]):
        total = strides[i] * (size - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - wanted[i]
        extended.append(extra[i] + max(-total, 0))
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    attrs["pads"], attrs["output_padding"] = (*begins, *ends), tuple(extended)


def _linear_conv(node: OnnxNode) -> None:
    """Take the kernel's shape from the weights, which are input 3."""
    node.attrs.setdefault("kernel_shape", node.input_type(3).shape[2:])


def _quantize(node: OnnxNode) -> None:
    from autotune.frontends.onnx.read import element_dtype

    precision = node.attrs.pop("precision", 0)
    if precision and element_dtype(precision, f"node {node.name!r} ({node.op})") != "float32":
        raise node.fail("precision is float32")
    to = node.attrs.pop("output_dtype", 0)
    if to:
        node.attrs["to"] = element_dtype(to, f"node {node.name!r} ({node.op})")


def _batch_norm(node: OnnxNode) -> None:
    if not node.attrs.pop("spatial", 1):
        raise node.fail("spatial=0 (statistics a position) is not supported")


def _cast(node: OnnxNode) -> None:
    from autotune.frontends.onnx.read import element_dtype

    node.attrs["to"] = element_dtype(node.attrs["to"], f"node {node.name!r} ({node.op})")
    node.attrs.pop("round_mode", None)  # of float8_e8m0 only


def _cast_like(node: OnnxNode) -> None:
    saturate = node.attrs.get("saturate", 1)
    node.op, node.attrs = "Cast", {"to": node.input_type(1).dtype, "saturate": saturate}
    del node.inputs[1:]


def _dropout(node: OnnxNode) -> None:
    training = _scalar(node, 2, "training_mode", 0.0)
    if training and _scalar(node, 1, "ratio", 0.5):
        raise node.fail("training_mode is for training\n  export the model for inference")
    del node.inputs[1:]


def _scalar(node: OnnxNode, index: int, name: str, default: float) -> float:
    """Return a number that must be known when the model is compiled."""
    value = node.input(index)
    if value == ABSENT:
        return default
    found = node.scope.constant_of(value)
    if found is None:
        raise node.unknown(f"input {name!r} ({value!r})", value)
    return float(found.reshape(-1)[0])


def _reshape(node: OnnxNode) -> None:
    """Resolve 0 (copy the dimension, unless allowzero says that it means none)."""
    x = node.input_type(0)
    if not node.attrs.pop("allowzero", 0):
        node.attrs["shape"] = tuple(
            x.shape[i] if extent == 0 and i < x.rank else extent
            for i, extent in enumerate(node.attrs["shape"])
        )


def _reduce(node: OnnxNode) -> None:
    """Reduce over all axes where they are empty, as ONNX does unless noop_with_empty_axes says none."""
    noop = node.attrs.pop("noop_with_empty_axes", 0) == 1
    if not node.attrs.get("axes"):
        node.attrs.pop("axes", None)
        if noop:
            node.op, node.attrs = "Identity", {}


def _softmax(node: OnnxNode) -> None:
    """Normalise over all dimensions from the axis (default 1) on, taken as one, before opset 13."""
    if node.scope.opset >= 13:
        return
    x = node.input_type(0)
    axis = node.attrs.get("axis", 1) % max(x.rank, 1)
    node.attrs["axis"] = axis
    if axis != x.rank - 1:
        node.flatten_to = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        node.attrs["axis"] = 1


def _split(node: OnnxNode) -> None:
    parts = node.attrs.pop("num_outputs", len(node.outputs))
    if "split" in node.attrs:
        return
    x = node.input_type(0)
    extent = x.shape[node.attrs.get("axis", 0) % x.rank]
    step = -(-extent // parts)
    node.attrs["split"] = tuple(min(step, extent - i * step) for i in range(parts))


def _slice(node: OnnxNode) -> None:
    """Clamp bounds beyond 32 bits (ONNX writes INT64_MAX for "to the end") to the extent."""
    x = node.input_type(0)
    starts = node.attrs["starts"]
    axes = node.attrs.get("axes") or tuple(range(len(starts)))
    for key in ("starts", "ends"):
        node.attrs[key] = tuple(
            max(-x.shape[axis] - 1, min(bound, x.shape[axis]))
            for bound, axis in zip(node.attrs[key], axes, strict=True)
        )
    node.attrs["axes"] = axes


def _pad(node: OnnxNode) -> None:
    """Make pads of some axes (opset 18) pads of all."""
    axes = node.attrs.pop("axes", None)
    if axes is None:
        return
    rank, pads = node.input_type(0).rank, node.attrs["pads"]
    full = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        full[axis % rank], full[axis % rank + rank] = pads[i], pads[i + len(axes)]
    node.attrs["pads"] = tuple(full)


def _roi_align(node: OnnxNode) -> None:
    """Resolve the coordinates: half pixels are the default since opset 16."""
    default = "half_pixel" if node.scope.opset >= 16 else "output_half_pixel"
    mode = node.attrs.pop("coordinate_transformation_mode", default)
    if mode not in ("half_pixel", "output_half_pixel"):
        raise node.fail(f"coordinates {mode!r} are not known\n  one of half_pixel, output_half_pixel")
    node.attrs["half_pixel"] = int(mode == "half_pixel")


def _grid_sample(node: OnnxNode) -> None:
    """Convert the names of modes before opset 20, which depend on the number of axes."""
    mode = node.attrs.get("mode", "linear")
    node.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


_RULES: Mapping[str, Callable[[OnnxNode], None]] = {
    "BatchNormalization": _batch_norm,
    "BitCast": _cast,
    "Cast": _cast,
    "CastLike": _cast_like,
    "ConvTranspose": _conv_transpose,
    "Dropout": _dropout,
    "LogSoftmax": _softmax,
    "GridSample": _grid_sample,
    "Pad": _pad,
    "QLinearConv": _linear_conv,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _quantize,
    "Reshape": _reshape,
    "RoiAlign": _roi_align,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    **dict.fromkeys(
        ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduce
    ),
}


REWRITTEN = ("CastLike",)
"""Operators that the importer turns into others; the registry need not know them."""

__all__ = ["REWRITTEN", "OnnxNode", "convert", "size_rules", "unknown_parameter"]
