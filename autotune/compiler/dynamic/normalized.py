"""Normalisations whose statistics are of elements along axes that grow: computed of a request's own elements.

Their definition, in operators that are known: the mean is a masked sum divided by how many elements a request has, and
so is the variance, of differences that are masked again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ir import ABSENT
from autotune.graph.ops.common import float_attr, int_attr
from autotune.runtime.axes import Axes, Axis, axis, is_symbolic


def of_rows(case: NodeCase) -> Effect:
    """Normalise over the last axes, by LayerNormalization or RMSNormalization."""
    axes, node = case.axes(0), case.node
    first = int_attr(node.attrs, "axis") % len(axes)
    if not any(is_symbolic(each) for each in axes[first:]):
        return Effect((axes,))
    for index, other in enumerate(case.operands[1:], 1):
        if other is not None:
            case.require_plain(index, range(len(other)), "has a scale")

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        value = _normal(case, writer, inputs[0], axes, range(first, len(axes)), node.op == "RMSNormalization")
        _scaled(case, writer, value, [*inputs[1:]])

    return Effect((axes,), write=write)


def of_images(case: NodeCase) -> Effect:
    """Normalise over the places of an image, and the channels of a group."""
    axes, node = case.axes(0), case.node
    last = node.attrs["layout"] == "NHWC"
    channel = len(axes) - 1 if last else 1
    case.require_plain(0, [channel], "normalises")
    groups = int_attr(node.attrs, "num_groups") if node.op == "GroupNormalization" else 0
    spatial = axes[1:channel] if last else axes[2:]
    if not any(is_symbolic(each) for each in spatial):
        return Effect((axes,))
    shape, size = case.results[0].shape, case.results[0].shape[channel]

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        value, own, places = inputs[0], axes, [i for i in range(1, len(axes)) if i != channel]
        if groups:
            parts: tuple[Axis, Axis] = (axis(groups), axis(size // groups))
            own = (*axes[:channel], *parts, *axes[channel + 1 :])
            grouped = (*shape[:channel], groups, size // groups, *shape[channel + 1 :])
            value = writer.node("Reshape", (value,), "groups", shape=grouped)
            places = [i for i in range(1, len(own)) if i != channel]
        value = _normal(case, writer, value, own, places, False)
        if groups:
            value = writer.node("Reshape", (value,), "channels", shape=shape)
        along = (size,) if last else (size, *([1] * len(spatial)))
        scales = [writer.node("Reshape", (each,), "scale", shape=along) for each in inputs[1:]]
        _scaled(case, writer, value, scales)

    return Effect((axes,), write=write)


def _normal(
    case: NodeCase, writer: GraphWriter, value: str, axes: Axes, places: Sequence[int], about_zero: bool
) -> str:
    """Return a value over its deviation from the mean, or from zero, along some axes."""
    name, dtype = case.node.outputs[0], writer.types[value].dtype
    epsilon = writer.constant("epsilon", np.array(float_attr(case.node.attrs, "epsilon"), dtype))
    count = writer.product([factor for place in places for factor in axes[place]])
    divisor = writer.node("Cast", (count,), "divisor", to=dtype)

    def mean(of: str) -> str:
        masked = of
        for place in places:
            masked = writer.masked(masked, axes, place, 0.0)
        total = writer.node("ReduceSum", (masked,), f"{name}.sum", axes=tuple(places), keepdims=1)
        return writer.node("Div", (total, divisor), f"{name}.mean")

    centred = value if about_zero else writer.node("Sub", (value, mean(value)), f"{name}.centred")
    squares = mean(writer.node("Mul", (centred, centred), f"{name}.squares"))
    deviation = writer.node(
        "Sqrt", (writer.node("Add", (squares, epsilon), "variance"),), f"{name}.deviation"
    )
    return writer.node("Div", (centred, deviation), f"{name}.normal")


def _scaled(case: NodeCase, writer: GraphWriter, value: str, scales: Sequence[str]) -> None:
    scale, *bias = [each for each in scales if each != ABSENT]
    if bias:
        value = writer.node("Mul", (value, scale), f"{case.node.outputs[0]}.scaled")
        writer.emit(case.node.replace(op="Add", inputs=(value, *bias), attrs={}))
    else:
        writer.emit(case.node.replace(op="Mul", inputs=(value, scale), attrs={}))


__all__ = ["of_images", "of_rows"]
