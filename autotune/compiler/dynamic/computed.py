"""Numbers that a model makes of its sizes: extents, and places from one on, computed from the request's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase
from autotune.compiler.dynamic.observed import Observed
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ir import Node
from autotune.graph.ops.common import int_attr
from autotune.runtime.axes import Factor, axis, size_of, sum_of


def extents(case: NodeCase) -> Effect:
    """Return the shape and Size of a value, of which nothing but its axes is needed."""
    node, value = case.node, case.node.inputs[0]
    axes = case.writer.axes.get(value) or case.observed.axes_of(value)
    if node.op == "Size":
        factors = [factor for each in axes for factor in each]

        def write_size(writer: GraphWriter, _: Sequence[str]) -> None:
            writer.emit(node.replace(op="Identity", inputs=(writer.product(factors),), attrs={}))

        return Effect(((),), write=write_size)
    end = int_attr(node.attrs, "end") if "end" in node.attrs else None
    wanted = axes[int_attr(node.attrs, "start") if "start" in node.attrs else 0 : end]

    def write(writer: GraphWriter, _: Sequence[str]) -> None:
        each = [writer.node("Reshape", (writer.product(a),), "extent", shape=(1,)) for a in wanted]
        writer.emit(node.replace(op="Concat", inputs=tuple(each), attrs={"axis": 0}))

    return Effect(((axis(len(wanted)),),), write=write)


def numbers(case: NodeCase) -> Effect:
    """Return the range from a start that depends on sizes; where it ends does not matter."""
    node, known = case.node, case.observed
    start, _, delta = node.inputs
    if known.constant_axes(delta) is None:
        raise case.refuse("has steps that depend on sizes")
    array = known.traced.constants[node.outputs[0]]
    steps = (np.arange(array.size) * known.traced.constants[delta].reshape(())).astype(array.dtype)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        steps_ = writer.constant(f"{node.outputs[0]}.steps", steps)
        flat = writer.node("Reshape", (inputs[0],), f"{start}.start", shape=(1,))
        writer.emit(node.replace(op="Add", inputs=(flat, steps_), attrs={}))

    (along,) = case.shaped()
    return Effect(((axis(known.grown.dense(along)),),), write=write)


_LINEAR = (
    "Add",
    "Cast",
    "Concat",
    "Expand",
    "Gather",
    "Identity",
    "Range",
    "Reshape",
    "Shape",
    "Slice",
    "Squeeze",
    "Sub",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
"""Operators that make linear functions of linear ones, where places do not depend on sizes."""


def as_sum(observed: Observed, value: str) -> Factor | None:
    """Return the sum of symbols that a constant's numbers differ by from size to size, as ``symbols+0``;
    None if none is it.

    A number is then what it is in the bucket, less the bucket's sizes of the symbols, plus the request's.
    """
    array = observed.traced.constants[value]
    if array.dtype != np.int64 or not _is_linear(observed, value):
        return None
    changes = list[int]()
    for twin in observed.twins:
        other = twin.traced.constants[value]
        both = tuple(slice(min(a, b)) for a, b in zip(array.shape, other.shape, strict=True))
        different = np.unique(array[both] - other[both]).tolist()
        if len(different) > 1:
            return None
        changes += different or [0]
    symbols = observed.symbols_of(changes)
    found = sum_of(symbols, 0)
    most = size_of(found, observed.sizes)
    for twin, change in zip(observed.twins, changes, strict=True):
        if most - size_of(found, {**observed.sizes, **twin.sizes}) != change:
            return None
    return found if symbols else None


def _is_linear(observed: Observed, value: str) -> bool:
    node = observed.made_by(value)
    if node is None:
        return observed.constant_axes(value) is not None
    if node.op in ("Shape", "Range"):
        return all(_is_linear(observed, v) for v in node.inputs if node.op == "Range")
    return (
        node.op in _LINEAR
        and _places_are_fixed(observed, node)
        and all(_is_linear(observed, v) for v in node.present_inputs if v in observed.traced.constants)
    )


def _places_are_fixed(observed: Observed, node: Node) -> bool:
    if node.op == "Gather":
        return observed.constant_axes(node.inputs[1]) is not None
    return node.op != "Slice" or all(attrs == node.attrs for attrs in observed.attrs_of_twins(node))


__all__ = ["as_sum", "extents", "numbers"]
