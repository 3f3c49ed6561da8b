"""ONNX operators about places and orders, of which the import makes others."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autotune.frontends.onnx.emit import Composer, Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.ir import ABSENT


def _top_k(node: OnnxNode, emit: Emitter) -> None:
    """Compute both outputs, whichever are read; they are always sorted."""
    node.attrs.pop("sorted", None)
    outputs = [*node.outputs, ABSENT][:2]
    emit.append("TopK", node.inputs, [name or emit.fresh("topk.unread") for name in outputs], node.attrs)


def _arg(node: OnnxNode, emit: Emitter) -> None:
    """Find the extreme; the last of equal elements is the first one from the end."""
    if not node.attrs.pop("select_last_index", 0):
        emit(node.op, node.inputs, node.attrs, "", node.outputs[0])
        return
    x = node.input_type(0)
    axis = int(node.attrs.get("axis", 0)) % max(x.rank, 1)
    backwards = {"axes": (axis,), "starts": (-1,), "ends": (-x.shape[axis] - 1,), "steps": (-1,)}
    found = emit(node.op, [emit("Slice", node.inputs, backwards, "backwards")], node.attrs, "from_end")
    last = emit.constant(x.shape[axis] - 1, "int64")
    emit("Sub", [last, found], {}, "", node.outputs[0])


def _hardmax(node: OnnxNode, emit: Emitter) -> None:
    """Set one at the first of the largest elements; before opset 13 of all dimensions from the axis on,
    taken as one."""
    x = node.input_type(0)
    old = node.scope.opset < 13
    axis = int(node.attrs.get("axis", 1 if old else -1)) % max(x.rank, 1)
    value, shape = node.inputs[0], x.shape
    if old:
        shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        value, axis = emit("Reshape", [value], {"shape": shape}, "flat"), 1
    place = emit("ArgMax", [value], {"axis": axis, "keepdims": 0}, "place")
    marks = emit.constant(np.array([0, 1]), x.dtype)
    attrs = {"axis": axis, "depth": shape[axis]}
    if not old:
        emit("OneHot", [place, marks], attrs, "", node.outputs[0])
        return
    emit("Reshape", [emit("OneHot", [place, marks], attrs)], {"shape": x.shape}, "", node.outputs[0])


def _scatter(node: OnnxNode, emit: Emitter) -> None:
    """Import ScatterElements by the name that it had before opset 11."""
    emit("ScatterElements", node.inputs, node.attrs, "", node.outputs[0])


def _non_zero(node: OnnxNode, emit: Emitter) -> None:
    """Add as many columns as there are elements, and the number of those that are there."""
    constant = node.scope.constant_of(node.inputs[0])
    if constant is not None:
        emit.define(node.outputs[0], np.array(np.nonzero(np.atleast_1d(constant)), np.int64))
        return
    x = node.input_type(0)
    if not x.size:
        emit.define(node.outputs[0], np.zeros((x.rank, 0), np.int64))
        return
    count, places = emit.fresh(f"{node.outputs[0]}.count"), emit.fresh(f"{node.outputs[0]}.room")
    emit.append("NonZero", node.inputs, [places, count], {})
    emit.part(places, 1, count, node.outputs[0])


def _unique(node: OnnxNode, emit: Emitter) -> None:
    """Find the unique elements in row-major order, or slices along an axis: rows."""
    x, value = node.input_type(0), node.inputs[0]
    if not x.size:
        raise node.fail(f"there is nothing in {x}")
    names = [*node.outputs, ABSENT, ABSENT, ABSENT][:4]
    names = [name or emit.fresh(f"{node.outputs[0]}.unread.{n}") for n, name in enumerate(names)]
    rooms = [name if n == 2 else emit.fresh(f"{name}.room") for n, name in enumerate(names)]
    count, rows = emit.fresh(f"{node.outputs[0]}.count"), emit.fresh("unique.rows")
    axis = int(node.attrs["axis"]) % x.rank if "axis" in node.attrs else None
    shape: tuple[int, ...] = (x.size,)
    front = tuple(range(x.rank))
    if axis is not None:
        front = (axis, *(d for d in range(x.rank) if d != axis))
        shape = tuple(x.shape[d] for d in front)
        value = emit("Transpose", [value], {"perm": front})
    flat = emit("Reshape", [value], {"shape": (shape[0], math.prod(shape[1:]))}, "flat")
    emit.append("Unique", [flat], [rows, *rooms[1:], count], {"sorted": node.attrs.get("sorted", 1)})
    if axis is None:
        emit("Reshape", [rows], {"shape": shape}, "", rooms[0])
    else:
        apart = emit("Reshape", [rows], {"shape": shape}, "apart")
        emit("Transpose", [apart], {"perm": tuple(front.index(d) for d in range(x.rank))}, "", rooms[0])
    for number, along in ((0, axis or 0), (1, 0), (3, 0)):
        emit.part(rooms[number], along, count, names[number])


def _non_max_suppression(node: OnnxNode, emit: Emitter) -> None:
    """Suppress boxes; without a greatest number of boxes there are none."""
    boxes, classes = node.input_type(0), node.input_type(1).shape[1]
    if not boxes.size * classes * max(0, int(node.attrs.get("max_output_boxes_per_class", 0))):
        emit.define(node.outputs[0], np.zeros((0, 3), np.int64))
        return
    count, rows = emit.fresh(f"{node.outputs[0]}.count"), emit.fresh(f"{node.outputs[0]}.room")
    emit.append("NonMaxSuppression", node.inputs[:2], [rows, count], node.attrs)
    emit.part(rows, 0, count, node.outputs[0])


def _compress(node: OnnxNode, emit: Emitter) -> None:
    """Take the elements at the places where the condition holds; behind its end it does not."""
    condition = node.scope.constant_of(node.inputs[1])
    value = node.inputs[0]
    if node.input_type(1).rank != 1:
        raise node.fail(f"its condition is one row, got {node.input_type(1)}")
    if "axis" not in node.attrs:
        value = emit("Reshape", [value], {"shape": (node.input_type(0).size,)}, "flat")
    axis = int(node.attrs.get("axis", 0))
    if condition is not None:
        places = emit.constant(np.flatnonzero(condition), "int64")
        emit("Gather", [value, places], {"axis": axis}, "", node.outputs[0])
        return
    count, room = emit.fresh(f"{node.outputs[0]}.count"), emit.fresh(f"{node.outputs[0]}.room")
    emit.append("NonZero", [node.inputs[1]], [room, count], {})
    found = emit.fresh(f"{node.outputs[0]}.found")
    emit.part(room, 1, count, found)
    places = emit("Squeeze", [found], {"axes": (0,)}, "places")
    emit("Gather", [value, places], {"axis": axis}, "", node.outputs[0])


def _one_hot(node: OnnxNode, emit: Emitter) -> None:
    """Accept a depth of any numeric type."""
    emit("OneHot", node.inputs, {**node.attrs, "depth": int(node.attrs["depth"])}, "", node.outputs[0])


COMPOSED_INDEXING: Mapping[str, Composer] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Compress": _compress,
    "Hardmax": _hardmax,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Scatter": _scatter,
    "TopK": _top_k,
    "Unique": _unique,
}
"""A function that adds the nodes for a node whose parameters are attributes already."""

__all__ = ["COMPOSED_INDEXING"]
