"""Operators that find places or take them, along axes with padding: beyond a request there is nothing to find, and
nothing is written."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase, PaddingMask
from autotune.compiler.dynamic.moved import from_front, sizes_of
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ir import Array, Attr
from autotune.graph.ops.common import int_attr
from autotune.runtime.axes import Axes, Factor, axis, is_symbolic

_LEAST = float(np.finfo(np.float32).min)


def masks_of(case: NodeCase, index: int, fill: float) -> tuple[PaddingMask, ...]:
    """Return masks of all axes of an operand that have padding."""
    return tuple(
        PaddingMask(index, place, fill) for place, each in enumerate(case.axes(index)) if is_symbolic(each)
    )


def _shaped(case: NodeCase) -> tuple[Axes, ...]:
    """Return axes of the results by their shapes: there is room for all that could be found."""
    return tuple(case.observed.axes_of(value) for value in case.node.present_outputs)


def found(case: NodeCase) -> Effect:
    """Find the elements that are not zero: padding is. Places are counted from the front of each axis."""
    for place in range(len(case.axes(0))):
        case.whole(0, place)
    return Effect(_shaped(case), masks_of(case, 0, 0.0))


def suppressed(case: NodeCase) -> Effect:
    """Suppress boxes: those beyond a request have a score below all that count."""
    case.require_plain(1, (0, 1), "orders boxes")
    case.whole(1, 2)
    attrs = {"score_threshold": _LEAST, **case.node.attrs}

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        writer.emit(case.node.replace(inputs=tuple(inputs), attrs=attrs))

    return Effect(_shaped(case), masks_of(case, 1, -math.inf), write=write)


def unique(case: NodeCase) -> Effect:
    """Find unique rows: rows beyond a request are its first one again, and are not counted."""
    node, size = case.node, case.whole(0, 0)
    case.require_plain(0, [1], "compares")
    rows = case.shape(0)[0]

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        real = writer.node("Less", (writer.places(rows), writer.size(size)), "is_real")
        index = writer.node("Where", (real, writer.places(rows), writer.number(0)), "index")
        values = writer.node("Gather", (inputs[0], index), "rows", axis=0)
        often, count = writer.fresh(f"{node.outputs[3]}.all"), writer.fresh(f"{node.outputs[4]}.all")
        writer.emit(node.replace(inputs=(values,), outputs=(*node.outputs[:3], often, count)))
        first = writer.node(
            "Slice", (node.outputs[2],), "first", axes=(0,), starts=(0,), ends=(1,), steps=(1,)
        )
        beyond = writer.node("Sub", (writer.number(rows), writer.size(size)), "beyond")
        less = writer.node("Sub", (often, beyond), "less")
        own = writer.node("Equal", (writer.places(rows), first), "is_first")
        writer.emit(node.replace(op="Where", inputs=(own, less, often), outputs=node.outputs[3:4], attrs={}))
        writer.emit(
            node.replace(op="Min", inputs=(count, writer.size(size)), outputs=node.outputs[4:], attrs={})
        )

    rows_, (along, columns) = (case.axes(0)[0],), case.axes(0)
    return Effect(((along, columns), rows_, rows_, rows_, (axis(1),)), write=write)


def gather_elements(case: NodeCase) -> Effect:
    """Take elements by indices of the same rank, which are counted from the request's end where they are negative."""
    node, place = case.node, int_attr(case.node.attrs, "axis")
    own, indices = case.axes(0), case.axes(1)
    for i, (each, other) in enumerate(zip(own, indices, strict=True)):
        if i != place and (is_symbolic(each) or is_symbolic(other)) and not case.same(each, other):
            raise case.refuse(f"joins axes that grow differently, {each} and {other}")
    masks = masks_of(case, 1, 0.0)
    if not is_symbolic(own[place]):
        return Effect((indices,), masks)
    size = case.whole(0, place)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        index = from_front(writer, inputs[1], writer.size(size))
        writer.emit(node.replace(inputs=(inputs[0], index)))

    return Effect((indices,), masks, write=write)


def scatter_elements(case: NodeCase) -> Effect:
    """Write elements: those beyond a request go to a place behind the data, which is cut off."""
    place = int_attr(case.node.attrs, "axis")
    for i, (each, other) in enumerate(zip(case.axes(1), case.axes(2), strict=True)):
        if not case.same(each, other):
            raise case.refuse(f"has updates that grow differently, axis {i} {each} and {other}")
    return _scattered(case, place, [case.whole(0, place)], np.array(case.shape(0)[place]))


def scatter_nd(case: NodeCase) -> Effect:
    """Write slices: those beyond a request go to a row behind the data, which is cut off."""
    *rows, _ = case.axes(1)
    if not all(case.same(each, other) for each, other in zip(rows, case.axes(2), strict=False)):
        raise case.refuse(f"has updates that grow differently, {rows} and {case.axes(2)}")
    case.require_plain(1, [len(rows)], "takes coordinates")
    behind = np.zeros(case.shape(1)[-1], np.int64)
    behind[0] = case.shape(0)[0]
    return _scattered(case, 0, [case.whole(0, place) for place in range(behind.size)], behind)


def _scattered(case: NodeCase, place: int, along: Sequence[Factor], behind: Array) -> Effect:
    """Write along axis ``place`` of the data, where ``behind`` is behind it; indices are into ``along``."""
    node, indices, own = case.node, case.axes(1), case.axes(0)
    growing = [i for i, each in enumerate(indices) if is_symbolic(each)]
    rank, rows = len(own), case.shape(0)[place]

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        data, index, updates = inputs
        index = writer.node("Cast", (index,), "index", to="int64")
        if any(isinstance(each, str) for each in along):
            index = from_front(writer, index, sizes_of(writer, along))
        if not growing:
            writer.emit(node.replace(inputs=(data, index, updates)))
            return
        for i in growing:
            index = writer.masked(index, indices, i, writer.constant("behind", behind))
        pads = tuple(int(i == rank + place) for i in range(2 * rank))
        wide = writer.node("Pad", (data,), f"{data}.wide", pads=pads)
        name = writer.fresh(f"{node.outputs[0]}.wide")
        writer.emit(node.replace(inputs=(wide, index, updates), outputs=(name,)))
        cut: dict[str, Attr] = {"axes": (place,), "starts": (0,), "ends": (rows,), "steps": (1,)}
        writer.emit(node.replace(op="Slice", inputs=(name,), attrs=cut))

    return Effect((own,), write=write)


def roi_align(case: NodeCase) -> Effect:
    """Pool regions: those beyond a request are empty ones of the first image."""
    case.require_plain(0, range(len(case.axes(0))), "looks up regions")
    case.require_plain(1, [1], "takes corners")
    regions = case.axes(1)[0]
    if not case.same(regions, case.axes(2)[0]):
        raise case.refuse(f"joins axes that grow differently, {regions} and {case.axes(2)[0]}")
    result = (regions, *map(axis, case.results[0].shape[1:]))
    return Effect((result,), (*masks_of(case, 1, 0.0), *masks_of(case, 2, 0.0)))


def one_hot(case: NodeCase) -> Effect:
    """Set marks along a new axis."""
    own, place = case.axes(0), int_attr(case.node.attrs, "axis")
    place %= len(own) + 1
    return Effect(((*own[:place], axis(int_attr(case.node.attrs, "depth")), *own[place:]),))


RULES = {
    "GatherElements": gather_elements,
    "NonMaxSuppression": suppressed,
    "NonZero": found,
    "OneHot": one_hot,
    "RoiAlign": roi_align,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Unique": unique,
}

__all__ = ["RULES"]
