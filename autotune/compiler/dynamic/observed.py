"""Which axes of a model's values grow with which symbol: found by importing the model at another size of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.errors import PaddingError
from autotune.graph.ir import Array, Graph, Node
from autotune.runtime.axes import Axes, Axis, Sizes, axis, extents, is_symbolic

_SIZED = ("Expand", "Pad", "Range", "Reshape", "Resize", "Slice", "Split", "Tile")
"""Operators whose attributes have sizes in them; what they do to axes is found by the shapes of their results."""


@dataclass(frozen=True)
class Observed:
    """A model at the sizes of a bucket, and at a smaller size of each symbol, the others as in the bucket."""

    graph: Graph
    sizes: Sizes
    smaller: Mapping[str, tuple[int, Graph]]

    def check(self) -> None:
        """The same nodes at every size. Raises PaddingError that says what differs."""
        for symbol, (size, other) in self.smaller.items():
            where = f"with {symbol} = {size} and {self.sizes[symbol]}"
            if len(other.nodes) != len(self.graph.nodes):
                raise PaddingError(f"the model has other nodes {where}")
            for node, twin in zip(self.graph.nodes, other.nodes, strict=True):
                _check_twins(node, twin, where)

    def axes_of(self, value: str) -> Axes:
        """The axes of a constant or a result, by its shapes alone; each grows with one symbol at most."""
        shape = self.graph.type_of(value).shape
        found: list[Axis] = [axis(size) for size in shape]
        for symbol, (size, other) in self.smaller.items():
            twin = other.type_of(value).shape
            if len(twin) != len(shape):
                raise PaddingError(f"{value!r} has another number of axes with another {symbol}")
            for place, (large, small) in enumerate(zip(shape, twin, strict=True)):
                if large == small:
                    continue
                if (large, small) != (self.sizes[symbol], size) or is_symbolic(found[place]):
                    raise PaddingError(f"axis {place} of {value!r} grows with {symbol}, but is not as long")
                found[place] = (symbol,)
        return tuple(found)

    def constant_axes(self, name: str) -> Axes:
        """The same, of a constant; at a smaller size it must be the beginning of the larger one."""
        found = self.axes_of(name)
        whole = self.graph.constants[name]
        for symbol, (size, other) in self.smaller.items():
            if name not in other.constants:
                raise PaddingError(f"{name!r} is a constant only for some sizes of {symbol}")
            slices = tuple(slice(size) if each == (symbol,) else slice(None) for each in found)
            if not _equal(whole[slices], other.constants[name]):
                raise PaddingError(f"numbers of the constant {name!r} depend on {symbol}")
        return found

    def check_axes(self, value: str, axes: Axes) -> None:
        """Axes must give the shape that the value has at each size: else a rule is wrong."""
        for sizes, graph in [
            (self.sizes, self.graph),
            *(({**self.sizes, symbol: size}, other) for symbol, (size, other) in self.smaller.items()),
        ]:
            if extents(axes, sizes) != graph.type_of(value).shape:
                raise PaddingError(
                    f"{value!r} is {list(graph.type_of(value).shape)} where {extents(axes, sizes)} was expected"
                )


def _check_twins(node: Node, twin: Node, where: str) -> None:
    same = (node.op, node.inputs, node.outputs) == (twin.op, twin.inputs, twin.outputs)
    if not same or (node.op not in _SIZED and node.attrs != twin.attrs):
        raise PaddingError(f"node {node.name!r} ({node.op}) is another one {where}")


def _equal(first: Array, second: Array) -> bool:
    if first is second:
        return True
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


__all__ = ["Observed"]
