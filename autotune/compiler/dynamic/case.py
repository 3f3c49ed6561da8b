"""A node whose operands have padding, and what is made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autotune.compiler.dynamic.observed import Observed
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.errors import PaddingError
from autotune.graph.ir import ABSENT, Graph, Node, TensorType
from autotune.graph.ops.common import int_attr
from autotune.passes.algorithms.strassen import is_large
from autotune.runtime.axes import Axes, Axis, Factor, Sizes, is_symbolic, symbols_of

Write: TypeAlias = Callable[[GraphWriter, Sequence[str]], None]
"""Adds nodes in place of one, from its operands."""


@dataclass(frozen=True)
class PaddedGraph:
    """A graph that answers requests of up to a bucket's sizes.

    ``size_inputs`` are the names of its inputs that take the request's size of a factor, int64 []: they follow the
    model's own. ``inputs`` and ``outputs`` are the axes of the model's inputs and outputs.
    """

    graph: Graph
    size_inputs: Mapping[str, str]
    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]


@dataclass(frozen=True)
class PaddingMask:
    """Operand ``index`` is to read as ``fill``, a number or the name of a value of one, at padding of its axis
    ``place``."""

    index: int
    place: int
    fill: float | str


@dataclass(frozen=True)
class Effect:
    """Axes of each result, and what is masked before.

    ``mean_over`` are axes that are summed, and divided by how many places of them a request has. ``zeros`` are factors
    along which the result is zero at padding. ``write`` adds nodes in place of the node, from its operands.
    """

    results: tuple[Axes, ...]
    masks: tuple[PaddingMask, ...] = ()
    mean_over: tuple[int, ...] = ()
    zeros: frozenset[Factor] = frozenset()
    write: Write | None = None


@dataclass(frozen=True)
class NodeCase:
    """A node of a model that was observed at several sizes, and what is written of the bucket's graph so far."""

    node: Node
    observed: Observed
    writer: GraphWriter

    @property
    def sizes(self) -> Sizes:
        """The bucket's sizes."""
        return self.observed.sizes

    @property
    def operands(self) -> list[Axes | None]:
        """Axes of the operands, None for absent ones."""
        return [None if v == ABSENT else self.writer.axes[v] for v in self.node.inputs]

    @property
    def types(self) -> list[TensorType | None]:
        """Types of the operands, None for absent ones."""
        return [None if v == ABSENT else self.observed.type_of(v) for v in self.node.inputs]

    @property
    def results(self) -> list[TensorType]:
        """Types of the results."""
        return [self.observed.type_of(v) for v in self.node.present_outputs]

    def axes(self, index: int) -> Axes:
        """Return axes of a present operand."""
        return self.writer.axes[self.node.inputs[index]]

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of a present operand."""
        return self.observed.type_of(self.node.inputs[index]).shape

    def shaped(self) -> Axes:
        """Return axes of the first result by its shapes, those of the first operand where they are as long."""
        rank = len(self.results[0].shape)
        like = self.operands[0] if self.operands and rank == len(self.operands[0] or ()) else ()
        return self.observed.axes_of(self.node.outputs[0], like or ())

    def takes_coordinates(self, index: int) -> bool:
        """Return whether an operand is constant indices of the same places at all sizes, into axes that were joined."""
        if (
            self.node.op != "Gather"
            or index != 1
            or self.node.inputs[1] not in self.observed.traced.constants
        ):
            return False
        along = self.axes(0)[int_attr(self.node.attrs, "axis")]
        return (
            is_symbolic(along)
            and len(along) > 1
            and self.observed.same_coordinates(self.node.inputs[1], along)
        )

    def whole(self, index: int, place: int) -> Factor:
        """Return an axis of an operand as one factor, where a request's part is its beginning."""
        axes = self.axes(index)
        found = self.observed.grown.whole(axes[place])
        if found is None:
            raise self.refuse(f"looks along {symbols_text(axes, [place])}, joined in axis {place}")
        return found

    def same(self, first: Axis, second: Axis) -> bool:
        """Return whether a request's part is at the same places of two axes."""
        return self.observed.grown.same(first, second)

    def mixed(self, places: Sequence[int], depth: int, columns: int) -> list[PaddingMask]:
        """Mask axes of a left operand that are rows of a large product by constants: sums of rows may take its place
        (:mod:`autotune.passes.algorithms.strassen`), and what is not finite at padding would reach a request's rows."""
        right = self.node.inputs[1]
        constant = right in self.writer.constants or right in self.observed.traced.constants
        rows = math.prod(self.results[0].shape) // columns
        if not constant or not is_large(rows, depth, columns):
            return []
        return [PaddingMask(0, place, 0.0) for place in places if is_symbolic(self.axes(0)[place])]

    def refuse(self, why: str) -> PaddingError:
        """Return an error that names the node."""
        return PaddingError(f"node {self.node.name!r} ({self.node.op}) {why}")

    def require_plain(self, index: int, places: Sequence[int], what: str) -> None:
        """Refuse padding at some axes of an operand."""
        axes = self.axes(index)
        if any(is_symbolic(axes[place]) for place in places):
            raise self.refuse(f"{what} along {symbols_text(axes, places)}")


def symbols_text(axes: Axes, places: Sequence[int]) -> str:
    """Return the symbols of some axes, for messages."""
    return ", ".join(sorted(symbols_of(axes[place] for place in places)))


__all__ = ["Effect", "NodeCase", "PaddingMask", "Write", "symbols_text"]
