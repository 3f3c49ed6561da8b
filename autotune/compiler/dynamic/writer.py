"""Writes the graph of a bucket: nodes with their types, the request's sizes as inputs, and masks of what is real."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np

from autotune.compiler.dynamic.axes import coordinates
from autotune.frontends.onnx.lengths import Length
from autotune.graph.build import complete_node
from autotune.graph.ir import Array, Attr, Node, TensorType, fresh_name
from autotune.graph.ops.common import FLOATS
from autotune.runtime.axes import (
    Axes,
    Axis,
    Factor,
    Sizes,
    axis,
    capped_parts,
    extent,
    parse_axis,
    parts_of,
    size_of,
    symbols_in,
    terms_of,
)


class GraphWriter:
    """Nodes and constants of a graph that grows, and the inputs that take the request's sizes.

    ``axes`` are those of values; ``zeros`` says along which symbolic factors a value is zero at padding. Symbols in
    ``lengths`` are computed by the graph itself.
    """

    def __init__(
        self,
        sizes: Sizes,
        types: Mapping[str, TensorType],
        constants: Mapping[str, Array],
        taken: Sequence[str],
        lengths: Mapping[str, Length] = MappingProxyType({}),
    ) -> None:
        self.sizes = sizes
        self.types = dict(types)
        self.constants = dict(constants)
        self.nodes: list[Node] = []
        self.axes: dict[str, Axes] = {}
        self.zeros: dict[str, frozenset[Factor]] = {}
        self.size_inputs: dict[str, str] = {}
        self._lengths = lengths
        self._taken = dict.fromkeys(taken)
        self._made: dict[tuple[object, ...], str] = {}
        """Values that are made once, by their definition."""

    def emit(self, node: Node) -> None:
        """Add a node."""
        complete, types = complete_node(node, self.types)
        self.types.update(types)
        self._taken.update(dict.fromkeys(types))
        self.nodes.append(complete)

    def node(self, op: str, inputs: Sequence[str], name: str, **attrs: Attr) -> str:
        """Add a node of one result, whose name is like ``name``; returns the result."""
        output = fresh_name(name, self._taken)
        self.emit(Node(op, tuple(inputs), (output,), attrs))
        return output

    def constant(self, name: str, array: Array) -> str:
        """Return a constant, once for all that are equal; returns its name, which is like ``name``."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = name = fresh_name(name, self._taken)
            self.constants[name] = array
            self._taken[name] = None
            self.types[name] = TensorType.of(array)
            self.axes[name] = tuple(axis(size) for size in array.shape)
        return self._made[key]

    def once(self, key: tuple[object, ...], make: Callable[[], str]) -> str:
        """Return a value that is made once, by its definition."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def fresh(self, name: str) -> str:
        """Return a name like this one that nothing has."""
        return fresh_name(name, self._taken)

    def number(self, value: int) -> str:
        """Return an int64 constant of rank 0."""
        return self.constant(f"number.{value}", np.array(value, np.int64))

    def size(self, factor: Factor) -> str:
        """Return the request's size of a factor, int64 []: an input of the graph, where it is no number and of nothing
        that is computed."""
        symbols = symbols_in(factor)
        if not symbols:
            return self.number(size_of(factor, {}))
        if not symbols.isdisjoint(self._lengths):
            return self.once(("size", factor), lambda: self._computed(str(factor)))
        if factor not in self.size_inputs:
            name = fresh_name(f"{'.'.join(sorted(symbols_in(factor)))}.size", self._taken)
            self._taken[name] = None
            self.types[name] = TensorType((), "int64")
            self.size_inputs[str(factor)] = name
            self.axes[name] = ()
        return self.size_inputs[str(factor)]

    def _computed(self, factor: str) -> str:
        """Return a size that depends on lengths which the graph computes."""
        if factor in self._lengths:
            return self._length(factor)
        terms, number = terms_of(factor)
        found = [self._term(term) for term in terms] + ([self.number(number)] if number else [])
        return reduce(lambda a, b: self.node("Add", (a, b), "size"), found)

    def _term(self, term: str) -> str:
        parts, capped = parts_of(term), capped_parts(term)
        if capped is not None:
            return self.node("Min", (self.size(capped[0]), self.number(capped[1])), "size")
        if parts is None:
            factors = parse_axis(term)
            return self.size(term) if len(factors) == 1 else self.product(factors)
        times, factor, plus, by = parts
        found = self.product((times, factor))
        found = self.node("Add", (found, self.number(plus)), "size") if plus else found
        return self.node("Div", (found, self.number(by)), "size") if by > 1 else found

    def _length(self, symbol: str) -> str:
        """Return a length as int64 []; one whose bound was given is looked up among those that are allowed."""
        length = self._lengths[symbol]
        found = self.node("Cast", (length.value,), symbol, to="int64")
        found = self.node("Reshape", (found,), symbol, shape=())
        if not length.given:
            return found
        allowed = self.constant(f"lengths.{length.bound}", np.arange(length.bound + 1))
        return self.node("Gather", (allowed, found), symbol, axis=0)

    def product(self, factors: Sequence[Factor]) -> str:
        """Return the request's size of several factors, multiplied: int64 []."""
        fixed = math.prod(factor for factor in factors if isinstance(factor, int))
        found = self.number(fixed)
        for factor in factors:
            if isinstance(factor, str):
                size = self.size(factor)
                found = size if found == self.number(1) else self.node("Mul", (found, size), "count")
        return found

    def masked(self, value: str, axes: Axes, place: int, fill: float | str) -> str:
        """Return a value that is ``fill``, a number or the name of a value, at padding of an axis."""
        dtype = self.types[value].dtype
        for factor in (factor for factor in axes[place] if isinstance(factor, str)):
            if fill == 0 and factor in self.zeros.get(value, ()):
                continue
            key = ("masked", value, place, factor, fill)
            if key not in self._made:
                real = self.is_real(axes[place], len(axes) - place - 1, factor)
                self._made[key] = self._where(real, value, fill, dtype)
            value = self._made[key]
        return value

    def where(self, chosen: str, value: str, fill: float | str, place: int) -> str:
        """Return a value that is ``fill`` but where a vector along an axis is true."""
        tensor = self.types[value]
        shape = (tensor.shape[place], *([1] * (tensor.rank - place - 1)))
        return self._where(self.node("Reshape", (chosen,), chosen, shape=shape), value, fill, tensor.dtype)

    def _where(self, chosen: str, value: str, fill: float | str, dtype: str) -> str:
        other = fill
        if not isinstance(other, str):
            other = self.constant("fill", np.array(_fill(other, dtype), dtype))
        return self.node("Where", (chosen, value, other), f"{value}.real")

    def places(self, count: int, behind: int = 0) -> str:
        """Return 0, 1, ... along an axis with ``behind`` axes of extent 1 behind it, int64."""
        return self.constant("places", np.arange(count).reshape(-1, *([1] * behind)))

    def is_real(self, along: Axis, behind: int, factor: str) -> str:
        """Return bool, of extent 1 but at one axis: whether a request has the place there, as far as a factor goes."""
        key = ("real", along, behind, factor)
        if key not in self._made:
            found = coordinates(along, factor, self.sizes).reshape(-1, *([1] * behind))
            index = self.constant(f"{factor}.index", found)
            self._made[key] = self.node("Less", (index, self.size(factor)), f"{factor}.is_real")
        return self._made[key]

    def extent(self, of: Axis) -> int:
        """Return the extent of an axis in the bucket."""
        return extent(of, self.sizes)


def _fill(value: float, dtype: str) -> float | int:
    if dtype in FLOATS or math.isfinite(value):
        return value
    limits = np.iinfo(dtype)
    return int(limits.max if value > 0 else limits.min)


__all__ = ["GraphWriter"]
