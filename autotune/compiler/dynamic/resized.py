"""Images that are resized along axes that grow, by a scale or to a size.

By a scale, places are the same at all sizes, but beyond the last element an image goes on with it: where that is read,
the operand is looked up at places cut to the request's. To a size, places depend on both sizes: they are computed for
the request, and elements are looked up and blended there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial

from autotune.compiler.dynamic.case import Effect, NodeCase, symbols_text
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ir import Array, Node
from autotune.graph.ops.common import float_attr, ints_attr
from autotune.graph.ops.resize import LISTS, Map, blend_weights
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
    """An axis whose places depend on its extents before and after.

    An element is that at the place, rounded down after ``rounding``, or where that is empty a sum over ``taps``: of
    elements so far from the one before the place, each times a polynomial in the distance from that one.
    """

    place: int
    coordinates: _Coordinates
    rounding: str
    before: Factor
    after: Factor
    size: int
    taps: Sequence[tuple[int, Sequence[float]]]

    def look_up(self, writer: GraphWriter, value: str) -> str:
        """Return the axis resized."""
        unit = self._number(writer, self.coordinates.unit)
        step, start = (self._number(writer, each) for each in (self.coordinates.step, self.coordinates.start))
        at = writer.node("Mul", (writer.constant("places", np.arange(self.size)), step), "place")
        top = writer.node("Add", (at, start), "place")
        if self.rounding:
            n, m, k = _ROUNDINGS[self.rounding]
            part = writer.node("Mul", (unit, writer.number(m)), "part")
            scaled = writer.node("Mul", (top, writer.number(n)), "place")
            top = writer.node("Add", (writer.node("Add", (scaled, part), "place"), writer.number(k)), "place")
            unit = writer.node("Mul", (unit, writer.number(n)), "unit")
        unit = writer.node("Max", (unit, writer.number(1)), "unit")
        top = writer.node("Max", (writer.node("Add", (top, unit), "place"), writer.number(0)), "place")
        index = writer.node(
            "Div", (top, unit), "index"
        )  # one more than it is: no place is farther before the first
        if self.rounding:
            return self._taken(writer, value, index, 0)
        rest = writer.node("Sub", (top, writer.node("Mul", (index, unit), "whole")), "rest")
        return self._blended(writer, value, index, self._distance(writer, value, rest, unit))

    def _distance(self, writer: GraphWriter, value: str, rest: str, unit: str) -> str:
        """Return how far places are from the elements before them, from 0 to 1."""
        tensor = writer.types[value]
        shape = (self.size, *([1] * (tensor.rank - self.place - 1)))
        parts = [writer.node("Cast", (each,), "part", to=tensor.dtype) for each in (rest, unit)]
        return writer.node("Reshape", (writer.node("Div", parts, "distance"),), "distance", shape=shape)

    def _blended(self, writer: GraphWriter, value: str, index: str, distance: str) -> str:
        total = ""
        for offset, polynomial in self.taps:
            weight = _polynomial(writer, polynomial, distance)
            taken = self._taken(writer, value, index, offset)
            part = writer.node("Mul", (taken, weight), "part")
            total = writer.node("Add", (total, part), f"{value}.resized") if total else part
        return total

    def _taken(self, writer: GraphWriter, value: str, index: str, offset: int) -> str:
        """Return the elements so far from those before places, of which ``index`` is one more."""
        at = writer.node(
            "Max",
            (writer.node("Add", (index, writer.number(offset - 1)), "index"), writer.number(0)),
            "index",
        )
        last = writer.node("Sub", (writer.size(self.before), writer.number(1)), "last")
        inside = writer.node("Min", (at, last), "index")
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


def _polynomial(writer: GraphWriter, coefficients: Sequence[float], x: str) -> str:
    """Return the value of a polynomial, the coefficient of the highest power last."""
    dtype, found = writer.types[x].dtype, ""
    for each in reversed(coefficients):
        number = writer.constant("coefficient", np.array(each, dtype))
        found = (
            writer.node("Add", (writer.node("Mul", (found, x), "power"), number), "weight")
            if found
            else number
        )
    return found


def _taps(node: Node) -> list[tuple[int, Sequence[float]]]:
    """Return the elements that are blended, with their weights as polynomials; none where the nearest is taken."""
    if node.op != "Interpolate":
        return []
    weights = blend_weights(_mode(node), Polynomial([0.0, 1.0]), float_attr(node.attrs, "coefficient"))
    return [(offset, tuple(weight.coef.tolist())) for offset, weight in weights]


def _way(case: NodeCase, place: int, maps: Sequence[tuple[Sizes, _Seen]], result: Axis) -> _ByScale | _ToSize:
    after = case.observed.grown.whole(result)
    before, mode = case.whole(0, place), _mode(case.node)
    assert after is not None  # a product of extents was none of a window
    if _is_one_scale(maps):
        scaled = quotient_of(before, maps[0][1].unit, 0, maps[0][1].step)
        if case.observed.grown.one(scaled) == after:
            reaches = _reaches_beyond(case, maps[0][1], before, after)
            return _ByScale(place, quotient_of(before, 1, -1, 1) if reaches else None)
    for coordinates, rounding in _candidates(mode, case.observed.traced.rules.get(case.node.outputs[0], ())):
        if all(_agrees(each, coordinates, rounding, mode) for _, each in maps):
            size = case.results[0].shape[place]
            return _ToSize(place, coordinates, rounding, before, after, size, _taps(case.node))
    raise case.refuse(
        f"is resized along {symbols_text(case.axes(0), [place])} by mode {mode}, in a way that depends on both sizes"
    )


def _mode(node: Node) -> str:
    return str(node.attrs["mode"]) if node.op == "Interpolate" else "nearest"


def _candidates(mode: str, rules: Collection[str]) -> Iterator[tuple[_Coordinates, str]]:
    """Yield the ways to find places: those that the model names, as others are equal at some sizes; all if none is."""
    roundings: Collection[str] = _ROUNDINGS if mode == "nearest" else ("",)
    for coordinates in _COORDINATES:
        for rounding in roundings:
            if not rules or (coordinates.name in rules and (not rounding or rounding in rules)):
                yield coordinates, rounding


def _agrees(seen: _Seen, coordinates: _Coordinates, rounding: str, mode: str) -> bool:
    """Return whether places by the extents alone are those of a map; beyond the ends two elements blend to the last,
    and four do not."""
    f, s = seen.extent, seen.size
    top = np.arange(s) * coordinates.step(f, s) + coordinates.start(f, s)
    unit = max(coordinates.unit(f, s), 1)
    if not rounding:
        beyond = int(mode == "cubic")
        inside = [np.clip(places, -beyond, f - 1 + beyond) for places in (top / unit, seen.places())]
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
