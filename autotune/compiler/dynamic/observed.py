"""A model imported at several sizes: which axes of its values grow with symbols, and what is the same at all sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autotune.compiler.dynamic.grown import GrownExtents
from autotune.compiler.dynamic.rounded import Seen
from autotune.errors import PaddingError, UndecidedExtentError
from autotune.frontends.onnx.importer import Begun, Traced
from autotune.graph import ops
from autotune.graph.ir import Array, Attr, Attrs, Graph, Node, TensorType
from autotune.graph.ops.branch import is_branch
from autotune.graph.ops.loop import is_loop
from autotune.runtime.axes import Axes, Axis, Factor, Sizes, extent, extents, real_part, size_of, sum_of

_SIZED = (
    "ConstantOfShape",
    "Expand",
    "Interpolate",
    "Pad",
    "Range",
    "Reshape",
    "Resize",
    "Slice",
    "Split",
    "Tile",
    "TopK",
    "Trilu",
)
"""Operators whose attributes have sizes in them; what they do to axes is found by the shapes of their results."""


@dataclass(frozen=True)
class Twin:
    """The model at another size of one symbol, the others as in the bucket; or at others of all computed lengths."""

    sizes: Sizes
    """The sizes that are others."""
    traced: Traced

    @property
    def symbol(self) -> str | None:
        """The only symbol of another size; None where it is several."""
        return next(iter(self.sizes)) if len(self.sizes) == 1 else None

    @cached_property
    def producers(self) -> dict[str, Node]:
        """The node that makes each value, those that were evaluated too."""
        return {**self.traced.folded, **self.traced.graph.producers()}


@dataclass(frozen=True)
class Observed:
    """A model at the sizes of a bucket, and at others. ``sizes`` and ``least`` are of the symbols with padding."""

    traced: Traced
    sizes: Sizes
    least: Sizes
    twins: Sequence[Twin]
    steps: Sizes = field(default_factory=dict)
    lengths: Collection[str] = ()
    """The symbols that are lengths which the model computes."""
    begun: Sequence[tuple[Sizes, Begun]] = ()
    """The model at further lengths, those nodes that could be imported: with nothing found some may be none."""

    @cached_property
    def grown(self) -> GrownExtents:
        """The extents of requests."""
        return GrownExtents(self.sizes, self.least, self.steps, self.lengths)

    @property
    def graph(self) -> Graph:
        """The model at the bucket's sizes."""
        return self.traced.graph

    def type_of(self, value: str) -> TensorType:
        """Return the type of a value, also of one that the graph does not need."""
        return self.traced.types[value]

    def check(self) -> None:
        """Check that there are the same nodes at every size. Raises PaddingError that says what differs."""
        for twin in self.twins:
            other, where = twin.traced.graph, self._where(twin)
            if len(other.nodes) != len(self.graph.nodes):
                raise PaddingError(f"the model has other nodes {where}")
            for node, its in zip(self.graph.nodes, other.nodes, strict=True):
                _check_twins(node, its, where)

    def made_by(self, constant: str) -> Node | None:
        """Return the node that was evaluated to a constant, which is the same at all sizes."""
        node = self.traced.folded.get(constant)
        for twin in self.twins if node is not None else ():
            other = twin.traced.folded.get(constant)
            if node is None or other is None:
                return None
            _check_twins(node, other, self._where(twin))
        return node

    def _where(self, twin: Twin) -> str:
        """Return a twin's sizes and the bucket's, for messages."""
        if twin.symbol is None:
            return "with other lengths"
        return f"with {twin.symbol} = {twin.sizes[twin.symbol]} and {self.sizes[twin.symbol]}"

    def axes_of(self, value: str, like: Axes = ()) -> Axes:
        """Return the axes of a constant or a result, by its shapes alone: each is an expression in symbols.

        An axis of ``like`` at the same place is taken where it is as long at all sizes.
        """
        shapes = [
            (at, traced.types[value].shape if value in traced.types else ()) for at, traced in self.everywhere
        ]
        if any(len(shape) != len(shapes[0][1]) for _, shape in shapes):
            raise PaddingError(f"{value!r} has another number of axes at other sizes")
        shapes += self._begun_shapes(value, len(shapes[0][1]))
        return tuple(
            self.fitted_axis(
                [(at, shape[place]) for at, shape in shapes],
                f"axis {place} of {value!r}",
                like[place : place + 1],
            )
            for place in range(len(shapes[0][1]))
        )

    def _begun_shapes(self, value: str, rank: int) -> list[tuple[Sizes, tuple[int, ...]]]:
        """Return the shapes of a value at further lengths, where it has some: one of another branch may have another
        rank."""
        found = [(at, its.types[value].shape) for at, its in self.begun if value in its.types]
        return [(at, shape) for at, shape in found if len(shape) == rank]

    def fitted_axis(self, seen: Seen, what: str, like: Axes = ()) -> Axis:
        """Return an axis of an extent seen at several sizes, one of ``like`` where that is as long. Raises PaddingError
        where no expression gives it."""
        for each in like:
            if all(extent(each, at) == number for at, number in seen):
                return each
        found = self.grown.fitted(seen, what)
        if found is None:
            values = ", ".join(f"{number} at {_said(at)}" for at, number in seen)
            ranged = [symbol for symbol in self.sizes if symbol not in self.lengths]
            hint = (
                f"\n  a step of the range may make it one, such as {ranged[0]}=320..1280:+32"
                if ranged
                else ""
            )
            raise PaddingError(f"{what} is {values}: no one expression in these gives it{hint}")
        return found

    @cached_property
    def everywhere(self) -> Sequence[tuple[Sizes, Traced]]:
        """The model at the bucket's sizes, and at the others."""
        others = (({**self.sizes, **twin.sizes}, twin.traced) for twin in self.twins)
        return [(self.sizes, self.traced), *others]

    def constant_axes(self, name: str) -> Axes | None:
        """Return the same, of a constant; None where at another size it is not the beginning of the larger one,
        or of no known extent."""
        try:
            found = self.axes_of(name)
        except UndecidedExtentError:
            raise
        except PaddingError:
            return None  # it is computed, of what the request's sizes say
        whole = self.traced.constants[name]
        for twin in self.twins:
            if name not in twin.traced.constants:
                raise PaddingError(f"{name!r} is a constant only for some sizes of {', '.join(twin.sizes)}")
            other = twin.traced.constants[name]
            shape, slices, own = real_part(found, self.sizes, twin.sizes)
            if not _equal(whole.reshape(shape)[slices].reshape(own), other):
                return None
        return found if all(self._begins(found, whole, name, *each) for each in self.begun) else None

    def _begins(self, axes: Axes, whole: Array, name: str, sizes: Sizes, its: Begun) -> bool:
        """Return whether a constant is the beginning of the larger one at further lengths, or unknown there."""
        other = its.constants.get(name)
        if other is None or other.ndim != whole.ndim:
            return True
        if extents(axes, sizes) != other.shape:
            return False
        shape, slices, own = real_part(axes, self.sizes, sizes)
        return _equal(whole.reshape(shape)[slices].reshape(own), other)

    def same_coordinates(self, indices: str, along: Axis) -> bool:
        """Return whether a constant's indices into an axis are of the same coordinates in it at all sizes."""
        first = _coordinates(self.traced.constants[indices], along, self.sizes)
        for twin in self.twins:
            sizes = {**self.sizes, **twin.sizes}
            found = _coordinates(twin.traced.constants[indices], along, sizes)
            if first is None or found is None:
                return False
            both = tuple(slice(min(a, b)) for a, b in zip(first.shape, found.shape, strict=True))
            if not np.array_equal(first[both], found[both]):
                return False
        return True

    def fitted(self, node: Node, read: Callable[[Node | None], int]) -> Factor:
        """Return a number that a node's attributes have, as a sum of symbols and a number that gives it at all sizes.

        Raises PaddingError where none does.
        """
        here = read(node)
        its = [(twin, read(twin.producers.get(node.outputs[0]))) for twin in self.twins]
        symbols = self.symbols_of([here - number for _, number in its])
        found = sum_of(symbols, here - sum(self.sizes[symbol] for symbol in symbols))
        for twin, number in its:
            if size_of(found, {**self.sizes, **twin.sizes}) != number:
                raise PaddingError(
                    f"node {node.name!r} ({node.op}) has {here} and {number} {self._where(twin)}"
                )
        return found

    def symbols_of(self, changes: Sequence[int]) -> list[str]:
        """Return the symbols whose sum may be as much less at each twin; of the computed lengths it is one."""
        pairs = [*zip(self.twins, changes, strict=True)]
        found = dict.fromkeys(t.symbol for t, change in pairs if t.symbol is not None and change)
        joint = [(twin, change) for twin, change in pairs if twin.symbol is None]
        if any(change for _, change in joint):
            fits = (s for s in joint[0][0].sizes if all(self.sizes[s] - t.sizes[s] == c for t, c in joint))
            found.update(dict.fromkeys(fits))
        return [symbol for symbol in found if symbol is not None]

    def attrs_of_twins(self, node: Node) -> list[Attrs]:
        """Return a node's attributes at the other sizes."""
        return [twin.producers[node.outputs[0]].attrs for twin in self.twins]

    def check_axes(self, value: str, axes: Axes) -> None:
        """Check that axes give the shape that the value has at each size: else a rule is wrong."""
        shapes = [(sizes, traced.types[value].shape) for sizes, traced in self.everywhere]
        for sizes, shape in (*shapes, *self._begun_shapes(value, len(axes))):
            if extents(axes, sizes) != shape:
                raise PaddingError(
                    f"{value!r} is {list(shape)} where {list(extents(axes, sizes))} was expected"
                )


def _check_twins(node: Node, twin: Node, where: str) -> None:
    same = (node.op, node.inputs, node.outputs) == (twin.op, twin.inputs, twin.outputs)
    if not same or (node.op not in _SIZED and _fixed(node) != _fixed(twin)):
        raise PaddingError(f"node {node.name!r} ({node.op}) is another one {where}")


def _fixed(node: Node) -> dict[str, Attr]:
    """Return the attributes that are the same at all sizes: pads of windows may follow from them, and the body and the
    number of steps of a loop, of which the body is compared node by node where the loop is gone through, and branches,
    which pass values on."""
    if is_branch(node):
        return {}
    if is_loop(node):
        return {name: value for name, value in node.attrs.items() if name not in ("body", "trips")}
    if "pads" not in node.attrs or ops.get(node.op).kind not in ("convolution", "pool"):
        return dict(node.attrs)
    return {name: value for name, value in node.attrs.items() if name != "pads"}


def _said(sizes: Sizes) -> str:
    return ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())


def _coordinates(indices: Array, along: Axis, sizes: Sizes) -> Array | None:
    """Return the coordinates of each index along the factors of an axis; None where one is not in it."""
    if indices.size and not 0 <= indices.min() <= indices.max() < extent(along, sizes):
        return None
    return np.stack(np.unravel_index(indices, [size_of(factor, sizes) for factor in along]))


def _equal(first: Array, second: Array) -> bool:
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


__all__ = ["Observed", "Twin"]
