"""Operators that move elements to other places, or look them up, where places depend on a request's sizes.

A result's own part is always at its beginning: new keys lie directly behind those of the request, not behind those of
the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase, PaddingMask, Write, symbols_text
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ir import ABSENT, Array, Node
from autotune.graph.ops.common import int_attr, ints_attr
from autotune.runtime.axes import (
    Axes,
    Axis,
    Factor,
    axis,
    extent,
    extents,
    is_symbolic,
    size_of,
    sum_of,
    terms_of,
)


def concat(case: NodeCase) -> Effect:
    """Concatenate: the part behind one that grows begins where the request's part ends."""
    place = int_attr(case.node.attrs, "axis") % len(case.axes(0))
    found = list(case.axes(0))
    for axes in case.operands[1:]:
        for i, each in enumerate(axes or ()):
            if i != place and not case.same(each, found[i]):
                raise case.refuse(f"joins axes that grow differently, {found[i]} and {each}")
    along = [(axes or ())[place] for axes in case.operands]
    grown = case.observed.grown
    wholes = [grown.whole(each) for each in along]
    parts = [grown.dense(each) for each in along]
    starts = [_sum(case, parts[:index]) for index in range(len(parts) + 1)]
    found[place] = axis(starts[-1]) if len(parts) > 1 else along[0]
    if None not in wholes and all(isinstance(start, int) for start in starts[:-1]):
        return Effect((tuple(found),))
    node, behind = case.node, len(found) - place - 1
    own = [each for i, each in enumerate(found) if i != place]
    zeros = frozenset(f for f in _zeros_of_all(case) if any(f in each for each in own))
    end = starts[-1]
    count = extent(found[place], case.sizes)

    def write_one_behind(writer: GraphWriter, inputs: Sequence[str]) -> None:
        """Append one element to all places of the cache: nothing is moved."""
        past, new = inputs
        zero = writer.constant("fill", np.zeros((), writer.types[past].dtype))
        within = writer.node("Less", (writer.number(count - 1), writer.size(end)), "is_within")
        last = writer.node("Where", (within, new, zero), f"{node.outputs[0]}.last")
        places = writer.places(count - 1, behind)
        is_new = writer.node("Less", (places, writer.size(end)), "is_before")
        behind_it = writer.node("Where", (is_new, new, zero), f"{node.outputs[0]}.new")
        is_past = writer.node("Less", (places, writer.size(starts[1])), "is_before")
        first = writer.node("Where", (is_past, past, behind_it), f"{node.outputs[0]}.past")
        writer.emit(node.replace(inputs=(first, last)))

    if parts[1:] == [1] and None not in wholes:
        return Effect((tuple(found),), zeros=zeros | {end}, write=write_one_behind)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        dense = [
            value if whole is not None else together(writer, value, each, place)
            for value, each, whole in zip(inputs, along, wholes, strict=True)
        ]
        whole = [(value, part, start) for value, part, start in zip(dense, parts, starts, strict=False)]
        places = writer.places(count, behind)
        value = writer.constant("fill", np.zeros((), writer.types[inputs[0]].dtype))
        for index, (piece, part, start) in reversed([*enumerate(whole)]):
            placed = _placed(writer, piece, part, start, place, count)
            before = writer.node("Less", (places, writer.size(starts[index + 1])), "is_before")
            if index:
                value = writer.node("Where", (before, placed, value), f"{node.outputs[0]}.from.{index}")
            else:
                writer.emit(node.replace(op="Where", inputs=(before, placed, value), attrs={}))

    return Effect((tuple(found),), zeros=zeros | {end}, write=write)


def _placed(writer: GraphWriter, value: str, part: Factor, start: Factor, place: int, count: int) -> str:
    """Return a part of a concatenation, moved to where it begins: right from there to its end."""
    shape = writer.types[value].shape
    if isinstance(start, int):
        pads = [0] * (2 * len(shape))
        pads[place], pads[place + len(shape)] = start, count - start - shape[place]
        return writer.node("Pad", (value,), f"{value}.moved", pads=tuple(pads))
    if part == 1:
        return value
    distance = writer.node("Sub", (writer.places(count), writer.size(start)), "distance")
    return writer.node(
        "Gather", (value, _within(writer, distance, shape[place])), f"{value}.moved", axis=place
    )


def _within(writer: GraphWriter, index: str, size: int) -> str:
    """Return indices, those beyond a part cut to its ends."""
    low = writer.node("Max", (index, writer.number(0)), "index")
    return writer.node("Min", (low, writer.number(size - 1)), "index")


def _zeros_of_all(case: NodeCase) -> frozenset[Factor]:
    first, *others = (case.writer.zeros.get(value, frozenset()) for value in case.node.inputs)
    return first.intersection(*others)


def together(writer: GraphWriter, value: str, along: Axis, place: int) -> str:
    """Return a value in which a request's elements follow one another along an axis of several factors."""
    sizes = [size_of(factor, writer.sizes) for factor in along]
    rest, index, step = writer.places(writer.types[value].shape[place]), writer.number(0), 1
    for factor, size in reversed([*zip(along, sizes, strict=True)][1:]):
        count = writer.node("Max", (writer.size(factor), writer.number(1)), "count")
        before = writer.node("Div", (rest, count), "place")
        own = writer.node("Sub", (rest, writer.node("Mul", (before, count), "whole")), "place")
        index = writer.node("Add", (index, writer.node("Mul", (own, writer.number(step)), "part")), "index")
        rest, step = before, step * size
    index = writer.node("Add", (index, writer.node("Mul", (rest, writer.number(step)), "part")), "index")
    index = _within(writer, index, writer.types[value].shape[place])
    return writer.node("Gather", (value, index), f"{value}.together", axis=place)


def _sum(case: NodeCase, factors: Sequence[Factor]) -> Factor:
    terms = [terms_of(factor) for factor in factors]
    total = sum_of([symbol for symbols, _ in terms for symbol in symbols], sum(number for _, number in terms))
    return case.observed.grown.one(total)


def cut(case: NodeCase) -> Effect:
    """Return slices that begin at a place of all sizes stay; what begins where sizes say is looked up."""
    node, axes, shaped = case.node, case.axes(0), case.shaped()
    names = {
        place
        for attrs in (node.attrs, *case.observed.attrs_of_twins(node))
        for place in ints_attr(attrs, "axes")
    }
    moving: dict[int, tuple[Factor, int]] = {}
    found = list(axes)
    for place in sorted(names):
        start = case.observed.fitted(node, lambda n, place=place: _slice_of(n, place)[0])  # type: ignore[misc]
        step = _slice_of(node, place)[1]
        if any(factor for factor in axes[place] if isinstance(factor, str)) and len(axes[place]) > 1:
            raise case.refuse(f"changes an axis that grows with {symbols_text((axes[place],), [0])}")
        if isinstance(start, str):
            moving[place] = (start, step)
        found[place] = axis(case.observed.grown.dense(shaped[place]))
        _check_least(case, place, start, step, shaped[place])
    if not moving:
        return Effect((tuple(found),))
    return Effect((tuple(found),), write=_write_cut(node, moving, case.results[0].shape))


def split(case: NodeCase) -> Effect:
    """Return parts of an axis, each from where the request's parts before it end."""
    node, own = case.node, case.axes(0)
    place = int_attr(node.attrs, "axis") % len(own)
    values = node.present_outputs
    if not is_symbolic(own[place]) or len(values) < len(node.outputs):
        case.require_plain(0, [place], "divides")
        along = [axis(case.observed.type_of(value).shape[place]) for value in values]
        return Effect(tuple((*own[:place], each, *own[place + 1 :]) for each in along))
    case.whole(0, place)
    along = [case.observed.axes_of(value)[place] for value in values]
    parts = [case.observed.grown.dense(each) for each in along]
    starts = [_sum(case, parts[:index]) for index in range(len(parts))]

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        most = writer.types[inputs[0]].shape[place]
        for value, each, start in zip(values, along, starts, strict=True):
            steps = writer.places(extent(each, case.sizes))
            index = _within(writer, writer.node("Add", (steps, writer.size(start)), "index"), most)
            writer.emit(Node("Gather", (inputs[0], index), (value,), {"axis": place}, value))

    results = tuple((*own[:place], axis(part), *own[place + 1 :]) for part in parts)
    return Effect(results, write=write)


def tiled(case: NodeCase) -> Effect:
    """Repeat axes, all of a bucket's as often: a request's part is at the same places of each."""
    every = [case.node.attrs, *case.observed.attrs_of_twins(case.node)]
    sizes = [at for at, _ in case.observed.everywhere]
    counts = [ints_attr(attrs, "repeats") for attrs in every]
    found = []
    for place, own in enumerate(case.axes(0)):
        seen = [(at, each[place]) for at, each in zip(sizes, counts, strict=True)]
        times = case.observed.fitted_axis(seen, f"the number of repeats along axis {place}")
        found.append(axis(*times, *own))
    return Effect((tuple(found),))


def _check_least(case: NodeCase, place: int, start: Factor, step: int, result: Axis) -> None:
    """Check that at the least sizes too there is as much as is taken."""
    sizes = case.observed.least
    taken = extent(result, sizes)
    if isinstance(start, int) and extent(case.axes(0)[place], sizes) <= start + (taken - 1) * max(step, 0):
        along = symbols_text(case.axes(0), [place]) or f"axis {place}"
        raise case.refuse(f"takes {taken} from {start} on along {along}")


def _write_cut(node: Node, moving: dict[int, tuple[Factor, int]], shape: Sequence[int]) -> Write:
    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        value = inputs[0]
        for place, (start, step) in moving.items():
            steps = writer.constant("places", np.arange(shape[place]) * step)
            index = writer.node("Add", (steps, writer.size(start)), "index")
            size = writer.types[value].shape[place]
            value = writer.node("Gather", (value, _within(writer, index, size)), "cut", axis=place)
        attrs = node.attrs
        kept = [i for i, place in enumerate(ints_attr(attrs, "axes")) if place not in moving]
        rest = {
            key: tuple(ints_attr(attrs, key)[i] for i in kept) for key in ("axes", "starts", "ends", "steps")
        }
        writer.emit(node.replace(op="Slice", inputs=(value,), attrs=rest))

    return write


def _slice_of(node: Node | None, place: int) -> tuple[int, int]:
    """Start and step of a slice along an axis, which it may leave as it is."""
    assert node is not None
    axes = ints_attr(node.attrs, "axes")
    if place not in axes:
        return 0, 1
    at = axes.index(place)
    return ints_attr(node.attrs, "starts")[at], ints_attr(node.attrs, "steps")[at]


def triangle(case: NodeCase) -> Effect:
    """Mask a triangle: rows and columns are counted from the front, from a diagonal that may depend on sizes."""
    node = case.node
    diagonal = case.observed.fitted(node, lambda n: int_attr(n.attrs, "k") if n is not None else 0)
    if isinstance(diagonal, int):
        return Effect((case.axes(0),))
    rows, columns = case.results[0].shape[-2:]

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        above = np.arange(columns) - np.arange(rows)[:, None]
        upper = bool(int_attr(node.attrs, "upper"))
        apart = writer.constant("diagonals", above if upper else above - 1)
        first = writer.node("Less", (apart, writer.size(diagonal)), "is_below")
        zero = writer.constant("fill", np.zeros((), writer.types[inputs[0]].dtype))
        taken = (zero, inputs[0]) if upper else (inputs[0], zero)
        writer.emit(node.replace(op="Where", inputs=(first, *taken), attrs={}))

    return Effect((case.axes(0),), write=write)


def tensor_scatter(case: NodeCase) -> Effect:
    """Write into a buffer of one size: of an update that grows the request's part."""
    node = case.node
    axis = int_attr(node.attrs, "axis")
    case.require_plain(0, [axis], "writes at a place")
    along = case.axes(1)[axis]
    if not is_symbolic(along) or len(node.inputs) > 3:
        return Effect((case.axes(0),))
    count = case.whole(1, axis)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        past, update, *starts = inputs
        writer.emit(node.replace(inputs=(past, update, *(starts or [ABSENT]), writer.size(count))))

    return Effect((case.axes(0),), write=write)


def gather(case: NodeCase) -> Effect:
    """Return rows by indices; those of an axis that grows are counted from the front, or from the request's end."""
    node = case.node
    own = case.axes(0)
    place = int_attr(node.attrs, "axis") % len(own)
    if case.takes_coordinates(1):
        indices = case.observed.axes_of(node.inputs[1])
        constant = case.observed.traced.constants[node.inputs[1]]

        def write_places(writer: GraphWriter, inputs: Sequence[str]) -> None:
            writer.emit(node.replace(inputs=(inputs[0], writer.constant(inputs[1], constant))))

        return Effect(((*own[:place], *indices, *own[place + 1 :]),), write=write_places)
    indices = case.axes(1)
    masks = tuple(
        PaddingMask(1, i, 0.0) for i, each in enumerate(indices) if is_symbolic(each)
    )  # all in range
    result = (*own[:place], *indices, *own[place + 1 :])
    if not is_symbolic(own[place]):
        return Effect((result,), masks)
    size = case.whole(0, place)
    array = case.writer.constants.get(node.inputs[1])
    if array is not None and (not array.size or array.min() >= 0):
        _check_found(case, array, own[place], indices)
        return Effect((result,), masks)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        writer.emit(node.replace(inputs=(inputs[0], from_front(writer, inputs[1], writer.size(size)))))

    return Effect((result,), masks, write=write)


def from_front(writer: GraphWriter, index: str, size: str) -> str:
    """Return indices counted from the front, of which negative ones are from the end."""
    index = writer.node("Cast", (index,), "index", to="int64")
    last = writer.node("Add", (index, size), "index")
    behind = writer.node("Less", (index, writer.number(0)), "is_from_end")
    return writer.node("Where", (behind, last, index), "index")


def sizes_of(writer: GraphWriter, along: Sequence[Factor]) -> str:
    """Return the request's sizes of several factors, int64 [n]."""
    sizes = [writer.node("Reshape", (writer.size(each),), "size", shape=(1,)) for each in along]
    return writer.node("Concat", sizes, "size", axis=0) if len(sizes) > 1 else sizes[0]


def gather_nd(case: NodeCase) -> Effect:
    """Return coordinates along each of several axes; those along one that grows are constants, counted
    from the front."""
    node, own, indices = case.node, case.axes(0), case.axes(1)
    batch = int_attr(node.attrs, "batch_dims")
    if own[:batch] != indices[:batch] or is_symbolic(indices[-1]):
        raise case.refuse("is not known to keep padding apart")
    count = extent(indices[-1], case.sizes)
    array = case.writer.constants.get(node.inputs[1])
    along = [case.whole(0, place) for place in range(batch, batch + count)]
    masks = tuple(
        PaddingMask(1, i, 0.0) for i, each in enumerate(indices) if is_symbolic(each)
    )  # all in range
    result = ((*indices[:-1], *own[batch + count :]),)
    if array is not None and (not array.size or array.min() >= 0):
        for number, place in enumerate(range(batch, batch + count)):
            _check_found(case, array[..., number], own[place], indices[:-1])
        return Effect(result, masks)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        writer.emit(node.replace(inputs=(inputs[0], from_front(writer, inputs[1], sizes_of(writer, along)))))

    grows = any(isinstance(each, str) for each in along)
    return Effect(result, masks, write=write if grows else None)


def _check_found(case: NodeCase, indices: Array, along: Axis, axes: Axes) -> None:
    """Check that indices are within an axis at the least sizes too, as far as these have them."""
    least = case.observed.least
    own = indices[tuple(map(slice, extents(axes, least)))]
    if own.size and own.max() >= extent(along, least):
        symbols = symbols_text((along,), [0])
        raise case.refuse(f"looks up {own.max()} along {symbols}, of which {extent(along, least)} may be all")


__all__ = [
    "concat",
    "cut",
    "from_front",
    "gather",
    "gather_nd",
    "sizes_of",
    "split",
    "tensor_scatter",
    "tiled",
    "together",
    "triangle",
]
