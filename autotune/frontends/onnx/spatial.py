"""ONNX operators on images that become several here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from autotune.frontends.onnx.budget import check_evaluated
from autotune.frontends.onnx.emit import Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.ir import ABSENT
from autotune.graph.ops.common import accumulated_in


def _affine_grid(node: OnnxNode, emit: Emitter) -> None:
    """Multiply the places of an image's elements, from -1 to 1, by a matrix."""
    size = node.scope.constant_of(node.input(1))
    if size is None:
        raise node.unknown(f"input 'size' ({node.input(1)!r})", node.input(1))
    theta, spatial = node.input_type(0), [int(extent) for extent in size.reshape(-1)[2:]]
    rank = len(spatial)
    if theta.shape != (int(size.reshape(-1)[0]), rank, rank + 1):
        raise node.fail(f"theta {theta} does not fit size {size.tolist()}")
    check_evaluated(node, (*spatial, rank + 1), 8, "the grid of places")
    lines = []
    for extent in spatial:
        if node.attrs.get("align_corners", 0):
            lines.append(np.linspace(-1, 1, extent) if extent > 1 else -np.ones(1))
        else:
            lines.append((2 * np.arange(extent) + 1) / extent - 1)
    planes = np.meshgrid(*lines, indexing="ij")
    places = np.stack([*planes[::-1], np.ones_like(planes[0])], -1).reshape(-1, rank + 1)
    turned = emit("Transpose", node.inputs[:1], {"perm": (0, 2, 1)}, "turned")
    found = emit("MatMul", [emit.constant(places, theta.dtype), turned], {}, "places")
    emit("Reshape", [found], {"shape": (theta.shape[0], *spatial, rank)}, "", node.outputs[0])


def _deform_conv(node: OnnxNode, emit: Emitter) -> None:
    """Multiply the columns that moved taps see by the weights."""
    x, w, attrs = node.input_type(0), node.input_type(1), dict(node.attrs)
    groups = int(attrs.pop("group", 1))
    attrs["kernel_shape"] = w.shape[2:]
    if x.rank != 4 or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        raise node.fail(
            f"x {x} and weights {w} in {groups} groups: images of 4 dimensions whose channels fit"
        )
    mask = [node.inputs[4]] if node.input(4) != ABSENT else []
    columns = emit("DeformedColumns", [node.inputs[0], node.inputs[2], *mask], attrs, "columns")
    taps, positions = w.shape[1] * math.prod(w.shape[2:]), emit.type_of(columns).shape[2]
    apart = emit("Reshape", [columns], {"shape": (x.shape[0], groups, taps, positions)}, "groups")
    matrix = emit("Reshape", [node.inputs[1]], {"shape": (groups, w.shape[0] // groups, taps)}, "weights")
    found = emit("MatMul", [matrix, apart], {}, "product")
    shape = (x.shape[0], w.shape[0], *node.input_type(2).shape[2:])
    biased = node.input(3) != ABSENT
    image = emit("Reshape", [found], {"shape": shape}, "image", "" if biased else node.outputs[0])
    if biased:
        bias = emit("Reshape", [node.inputs[3]], {"shape": (w.shape[0], 1, 1)}, "bias")
        emit("Add", [image, bias], {}, "", node.outputs[0])


def _lp_pool(node: OnnxNode, emit: Emitter) -> None:
    """Compute the p-th root of the sum of p-th powers of a window, or of all of an image."""
    x, attrs = node.input_type(0), dict(node.attrs)
    power = float(attrs.pop("p", 2))
    wide = accumulated_in(x.dtype)
    value = emit("Cast", node.inputs[:1], {"to": wide}, "wide")
    if power == 2:
        value = emit("Mul", [value, value], {}, "powers")
    else:
        value = emit("Abs", [value])
        value = value if power == 1 else emit("Pow", [value, emit.constant(power, wide)], {}, "powers")
    if node.op == "GlobalLpPool":
        value = emit("ReduceSum", [value], {"axes": tuple(range(2, x.rank)), "keepdims": 1}, "sum")
    else:
        value = emit("SumPool", [value], attrs, "sum")
    if power == 2:
        value = emit("Sqrt", [value])
    elif power != 1:
        value = emit("Pow", [value, emit.constant(1 / power, wide)], {}, "root")
    emit("Cast", [value], {"to": x.dtype}, "", node.outputs[0])


def _max_pool(node: OnnxNode, emit: Emitter) -> None:
    """Compute the largest elements, and their places if those are asked for."""
    attrs = dict(node.attrs)
    order = attrs.pop("storage_order", 0)
    emit("MaxPool", node.inputs, attrs, "", node.outputs[0])
    if emit.wants(1):
        emit("MaxPoolIndices", node.inputs, {**attrs, "storage_order": order}, "", node.outputs[1])


def _max_unpool(node: OnnxNode, emit: Emitter) -> None:
    """Put elements back where they were the largest, zeros elsewhere."""
    x, kernel = node.input_type(0), node.attrs["kernel_shape"]
    rank = x.rank - 2
    strides, pads = node.attrs.get("strides", (1,) * rank), node.attrs.get("pads", (0,) * 2 * rank)
    size = [(x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)]
    shape = (*x.shape[:2], *size)
    wanted = shape
    if node.input(2) != ABSENT:
        given = node.scope.constant_of(node.inputs[2])
        if given is None:
            raise node.unknown(f"input 'output_shape' ({node.inputs[2]!r})", node.inputs[2])
        wanted = tuple(given.reshape(-1).tolist())
    if len(wanted) != x.rank or any(w < s for w, s in zip(wanted, shape, strict=True)):
        raise node.fail(f"output_shape {wanted} does not hold an image of shape {shape}")
    check_evaluated(node, shape, 8, "the image of zeros")
    zeros = emit.constant(np.zeros(math.prod(shape)), x.dtype)
    flat = [
        emit("Reshape", [value], {"shape": (x.size,)}, "flat") for value in (node.inputs[1], node.inputs[0])
    ]
    put = emit("ScatterElements", [zeros, *flat], {"axis": 0}, "put")
    image = emit("Reshape", [put], {"shape": shape}, "image")
    pads_after = tuple(w - s for w, s in zip(wanted, shape, strict=True))
    emit("Pad", [image], {"pads": (*[0] * x.rank, *pads_after)}, "", node.outputs[0])


COMPOSED_SPATIAL: Mapping[str, Callable[[OnnxNode, Emitter], None]] = {
    "AffineGrid": _affine_grid,
    "DeformConv": _deform_conv,
    "GlobalLpPool": _lp_pool,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}

__all__ = ["COMPOSED_SPATIAL"]
