"""Images that are resized along axes that grow, by a scale or to a size.

By a scale, places are the same at all sizes, but beyond the last element an image goes on with it: where that is read,
the operand is looked up at places cut to the request's. To a size, places depend on both sizes: they are computed for
the request, and elements are looked up and blended there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase, symbols_text
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ir import Array, Node
from autotune.graph.ops.common import ints_attr
from autotune.graph.ops.resize import LISTS, Map
from autotune.runtime.axes import Axis, Factor, Sizes, axis, is_symbolic, quotient_of, size_of

_NEAR = 2.0**-24
"""Parts of an extent between places that count as one, as for scales when a model is imported."""
_REACH = {"linear": (0, 1), "cubic": (-1, 2)}
"""Elements beside the one at a place, rounded down, that are blended."""
_ROUNDINGS: Mapping[str, tuple[int, int, int]] = {
    "floor": (1, 0, 0),
    "round_prefer_floor": (2, 1, -1),
    "round_prefer_ceil": (2, 1, 0),
    "ceil": (1, 1, -1),
}
"""A place ``a / b`` is rounded to ``(n * a + m * b + k) / (n * b)``, rounded down: n, m and k."""


@dataclass(frozen=True)
class _Coordinates:
    """The place of element i, ``(i * step + start) / unit``, by the extents before and after: expressions or arrays."""

    name: str
    step: Callable[[Any, Any], Any]
    start: Callable[[Any, Any], Any]
    unit: Callable[[Any, Any], Any]


_COORDINATES = (
    _Coordinates("half_pixel", lambda f, s: f + f, lambda f, s: f - s, lambda f, s: s + s),
    _Coordinates("asymmetric", lambda f, s: f, lambda f, s: f - f, lambda f, s: s),
    _Coordinates("align_corners", lambda f, s: f - 1, lambda f, s: f - f, lambda f, s: s - 1),
)


def resized(case: NodeCase) -> Effect:
    """Return an image resized along some axes; each that grows is looked up for itself where a request says."""
    found = list(case.axes(0))
    ways: list[_ByScale | _ToSize] = []
    for place, own in enumerate(case.axes(0)):
        maps = _maps(case, place)
        if all(each.is_copy for _, each in maps):
            continue
        found[place] = _result(case, place, maps)
        if is_symbolic(own) or is_symbolic(found[place]):
            ways.append(_way(case, place, maps, found[place]))

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        value = inputs[0]
        for way in ways:
            value = way.look_up(writer, value)
        moved = {way.place for way in ways if isinstance(way, _ToSize)}
        writer.emit(_without(case.node, moved).replace(inputs=(value,)))

    return Effect((tuple(found),), write=write)


@dataclass(frozen=True)
class _Seen(Map):
    """A map at one size of the model."""

    @property
    def is_copy(self) -> bool:
        """Return whether each element stays where it is."""
        return (self.size, self.start, self.step, self.unit) == (self.extent, 0, 1, 1)

    def places(self) -> Array:
        """Return the places of all elements."""
        found: Array = (np.arange(self.size) * self.step + self.start) / self.unit
        return found


def _maps(case: NodeCase, place: int) -> list[tuple[Sizes, _Seen]]:
    """Return the map of an axis at each size; one that is not resized there stays as it is."""
    found = []
    for (at, traced), attrs in zip(
        case.observed.everywhere, [case.node.attrs, *case.observed.attrs_of_twins(case.node)], strict=True
    ):
        extent = traced.types[case.node.inputs[0]].shape[place]
        axes, numbers = ints_attr(attrs, "axes"), [extent, 0, 1, 1]
        if place in axes:
            number = axes.index(place)
            numbers = [ints_attr(attrs, key)[number] for key in LISTS]
        found.append((at, _Seen(place, extent, *numbers)))
    return found


def _result(case: NodeCase, place: int, maps: Sequence[tuple[Sizes, _Seen]]) -> Axis:
    """Return the axis of the result: as long by the scale as at all sizes seen, or else what gives its sizes."""
    own, (_, first) = case.axes(0)[place], maps[0]
    seen = [(at, each.size) for at, each in maps]
    if is_symbolic(own) and _is_one_scale(maps):
        scaled = case.observed.grown.one(quotient_of(case.whole(0, place), first.unit, 0, first.step))
        if all(size_of(scaled, at) == number for at, number in seen):
            return axis(scaled)
    return case.observed.fitted_axis(seen, f"axis {place} of {case.node.outputs[0]!r}")


def _is_one_scale(maps: Sequence[tuple[Sizes, _Seen]]) -> bool:
    return len({(each.start, each.step, each.unit) for _, each in maps}) == 1


@dataclass(frozen=True)
class _ByScale:
    """An axis with the same places at all sizes; None of ``last`` where none lies beyond the last element."""

    place: int
    last: Factor | None

    def look_up(self, writer: GraphWriter, value: str) -> str:
        """Return the operand, which goes on with a request's last element."""
        if self.last is None:
            return value
        places = writer.places(writer.types[value].shape[self.place])
        index = writer.node("Min", (places, writer.size(self.last)), "index")
        return writer.node("Gather", (value, index), f"{value}.continued", axis=self.place)


@dataclass(frozen=True)
class _ToSize:
    """An axis whose places depend on its extents before and after."""

    place: int
    coordinates: _Coordinates
    rounding: str
    before: Factor
    after: Factor
    size: int

    def look_up(self, writer: GraphWriter, value: str) -> str:
        """Return the axis resized."""
        before, unit = writer.size(self.before), self._number(writer, self.coordinates.unit)
        step, start = (self._number(writer, each) for each in (self.coordinates.step, self.coordinates.start))
        at = writer.node("Mul", (writer.constant("places", np.arange(self.size)), step), "place")
        top = writer.node("Add", (at, start), "place")
        if self.rounding:
            n, m, k = _ROUNDINGS[self.rounding]
            part = writer.node("Mul", (unit, writer.number(m)), "part")
            scaled = writer.node("Mul", (top, writer.number(n)), "place")
            top = writer.node("Add", (writer.node("Add", (scaled, part), "place"), writer.number(k)), "place")
            unit = writer.node("Mul", (unit, writer.number(n)), "unit")
        top = writer.node("Max", (top, writer.number(0)), "place")
        unit = writer.node("Max", (unit, writer.number(1)), "unit")
        index = writer.node("Div", (top, unit), "index")
        last = writer.node("Sub", (before, writer.number(1)), "last")
        first = self._taken(writer, value, index, last)
        if self.rounding:
            return first
        return self._blended(writer, value, (top, unit, index, last), first)

    def _blended(self, writer: GraphWriter, value: str, numbers: tuple[str, ...], first: str) -> str:
        top, unit, index, last = numbers
        rest = writer.node("Sub", (top, writer.node("Mul", (index, unit), "whole")), "rest")
        dtype, behind = writer.types[value].dtype, writer.types[value].rank - self.place - 1
        shape = (self.size, *([1] * behind))
        parts = [writer.node("Cast", (each,), "part", to=dtype) for each in (rest, unit)]
        weight = writer.node("Reshape", (writer.node("Div", parts, "weight"),), "weight", shape=shape)
        beside = writer.node("Add", (index, writer.number(1)), "beside")
        second = self._taken(writer, value, beside, last)
        apart = writer.node("Sub", (second, first), "difference")
        return writer.node("Add", (first, writer.node("Mul", (apart, weight), "part")), f"{value}.resized")

    def _taken(self, writer: GraphWriter, value: str, index: str, last: str) -> str:
        inside = writer.node("Min", (index, last), "index")
        return writer.node("Gather", (value, inside), f"{value}.taken", axis=self.place)

    def _number(self, writer: GraphWriter, of: Callable[[Any, Any], Any]) -> str:
        """Return a number that is linear in both extents."""
        zero = of(0, 0)
        terms = [(of(1, 0) - zero, self.before), (of(0, 1) - zero, self.after)]
        total = writer.number(zero)
        for times, factor in terms:
            if times:
                part = writer.node("Mul", (writer.size(factor), writer.number(times)), "part")
                total = writer.node("Add", (total, part), "number")
        return total


def _way(case: NodeCase, place: int, maps: Sequence[tuple[Sizes, _Seen]], result: Axis) -> _ByScale | _ToSize:
    after = case.observed.grown.whole(result)
    before, mode = case.whole(0, place), _mode(case.node)
    assert after is not None  # a product of extents was none of a window
    if _is_one_scale(maps):
        scaled = quotient_of(before, maps[0][1].unit, 0, maps[0][1].step)
        if case.observed.grown.one(scaled) == after:
            reaches = _reaches_beyond(case, maps[0][1], before, after)
            return _ByScale(place, quotient_of(before, 1, -1, 1) if reaches else None)
    for coordinates, rounding in _candidates(mode):
        if all(_agrees(each, coordinates, rounding) for _, each in maps):
            return _ToSize(place, coordinates, rounding, before, after, case.results[0].shape[place])
    raise case.refuse(
        f"is resized along {symbols_text(case.axes(0), [place])} by mode {mode}, in a way that depends on both sizes"
    )


def _mode(node: Node) -> str:
    return str(node.attrs["mode"]) if node.op == "Interpolate" else "nearest"


def _candidates(mode: str) -> Iterator[tuple[_Coordinates, str]]:
    for coordinates in _COORDINATES if mode != "cubic" else ():
        for rounding in _ROUNDINGS if mode == "nearest" else ("",):
            yield coordinates, rounding


def _agrees(seen: _Seen, coordinates: _Coordinates, rounding: str) -> bool:
    """Return whether places by the extents alone are those of a map."""
    f, s = seen.extent, seen.size
    top = np.arange(s) * coordinates.step(f, s) + coordinates.start(f, s)
    unit = max(coordinates.unit(f, s), 1)
    if not rounding:
        inside = [np.clip(places, 0, f - 1) for places in (top / unit, seen.places())]
        return bool((np.abs(inside[0] - inside[1]) <= f * _NEAR).all())
    n, m, k = _ROUNDINGS[rounding]
    index = np.clip((n * top + m * unit + k) // (n * unit), 0, f - 1)
    given = np.clip((np.arange(s) * seen.step + seen.start) // seen.unit, 0, f - 1)
    return bool((index == given).all())


def _reaches_beyond(case: NodeCase, seen: _Seen, before: Factor, after: Factor) -> bool:
    """Return whether a request of some size reads elements beyond its last."""
    extents, sizes = case.observed.grown.values(before), case.observed.grown.values(after)
    if extents is None or sizes is None:
        return True
    beyond = _REACH[_mode(case.node)][1] if case.node.op == "Interpolate" else 0
    last = ((sizes - 1) * seen.step + seen.start) // seen.unit + beyond
    return bool((last > extents - 1).any())


def _without(node: Node, places: set[int]) -> Node:
    """Return the node without maps of some axes."""
    axes = ints_attr(node.attrs, "axes")
    kept = [i for i, place in enumerate(axes) if place not in places]
    lists = {key: tuple(ints_attr(node.attrs, key)[i] for i in kept) for key in ("axes", *LISTS)}
    return node.replace(attrs={**node.attrs, **lists})


__all__ = ["resized"]
