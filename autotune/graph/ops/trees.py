"""Decision trees: rows go down each of them, and the weights of the leaves that they reach are joined.

TreeEnsemble (x [n, features], roots [trees], features [nodes], thresholds [nodes], children [nodes, 2], weights
[leaves, targets], missing [nodes] or absent): parts (default 1, a divisor of the trees), levels (required: nodes on the
longest way above a leaf), reduce (sum, min or max) -> [n, parts, targets], joined over the trees of each part.

Nodes are numbered with the leaves first, in the order of their weights; both children of a leaf are itself. A row goes
on to the first child of a node where x[feature] <= threshold, or where that is NaN and ``missing`` is true; else to the
second. Numbers of nodes and features must be in range: who makes the tables has checked them, once for all rows.

A row is no faster down one tree than the loads that wait for one another. So eight walks are done in lockstep: of rows
down one tree, or of a single row down several trees. They end when all are at leaves. The next rows go down the same
tree, whose nodes are in the cache then; a part of the trees fits it as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, int_attr, optional, str_attr
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.facts import Domain
from autotune.graph.ops.registry import define
from autotune.te.sequential import sequential
from autotune.te.statements import Cell, Steps

_WALKS = 8
"""In lockstep: the number of the current node of each is in a register."""
_STEPS = 2
"""Levels between two looks at whether all walks are at leaves."""
_BLOCKS = 16
"""Of rows that go down the same tree, one after another."""
_SUMS = 1 << 12
"""Numbers of the rows of all blocks, which stay in the first-level cache."""
_NEUTRAL = {"sum": 0.0, "min": math.inf, "max": -math.inf}
_JOIN: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "sum": lambda a, b: a + b,
    "min": te.minimum,
    "max": te.maximum,
}


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    trees, parts = at(types, 1).size, int_attr(attrs, "parts")
    if parts < 1 or trees % parts or int_attr(attrs, "levels") < 0:
        raise GraphError(f"TreeEnsemble of {trees} trees: parts = {parts}; it is a divisor of the trees")


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, roots, features, thresholds, children, weights = (at(types, n) for n in range(6))
    missing, nodes = optional(types, 6), (features.size,)
    if x.rank != 2 or weights.rank != 2 or roots.rank != 1 or not roots.size or not weights.size:
        raise GraphError(
            f"TreeEnsemble: x is {x}, roots are {roots}, weights {weights}; rows, trees and leaves are lists"
        )
    if {features.shape, thresholds.shape, *([missing.shape] if missing else [])} != {
        nodes
    } or children.shape != (*nodes, 2):
        raise GraphError(
            f"TreeEnsemble: features {features}, thresholds {thresholds}, children {children} differ in nodes"
        )
    if x.dtype not in ("float32", "float64") or {thresholds.dtype, weights.dtype} != {x.dtype}:
        raise GraphError(
            f"TreeEnsemble: x is {x}, thresholds {thresholds}, weights {weights}; all float32, or float64"
        )
    if {roots.dtype, features.dtype, children.dtype} != {"int32"} or (missing and missing.dtype != "bool"):
        raise GraphError("TreeEnsemble: roots, features and children are int32, missing is bool")
    return [TensorType((x.shape[0], int_attr(attrs, "parts"), weights.shape[1]), x.dtype)]


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, roots, features, thresholds, children, weights = (at(arrays, n) for n in range(6))
    missing, rows = optional(arrays, 6), np.arange(len(at(arrays, 0)))[:, None]
    node = np.broadcast_to(roots, (len(x), roots.size))
    for _ in range(int_attr(attrs, "levels")):
        value = x[rows, features[node]]
        first = value <= thresholds[node]
        if missing is not None:
            first = first | (np.isnan(value) & missing[node])
        node = children[node, np.where(first, 0, 1)]
    found = weights[node].reshape(len(x), int_attr(attrs, "parts"), -1, weights.shape[1])
    join = {"sum": np.add, "min": np.minimum, "max": np.maximum}[str_attr(attrs, "reduce")]
    return [np.ascontiguousarray(join.reduce(found, axis=2).astype(x.dtype))]


@dataclass(frozen=True)
class _Walks:
    """Of a point: ``rows`` go down ``trees`` at once, block after block of these rows down the same trees."""

    rows: int
    trees: int
    blocks: int

    @classmethod
    def of(cls, rows: int, trees: int, targets: int) -> _Walks:
        """Return the walks of so many rows, trees of a part, and targets.

        >>> _Walks.of(1000, 64, 10), _Walks.of(1, 63, 10)
        (_Walks(rows=8, trees=1, blocks=5), _Walks(rows=1, trees=7, blocks=1))
        """
        together = _divisor(rows, _WALKS)
        blocks = min(_BLOCKS, _SUMS // (together * targets))
        return cls(together, _divisor(trees, _WALKS // together), _divisor(rows // together, blocks))


def _divisor(number: int, most: int) -> int:
    return next(n for n in range(max(1, min(number, most)), 0, -1) if number % n == 0)


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, roots, features, thresholds, children, weights = (at(tensors, n) for n in range(6))
    missing, reduce = optional(tensors, 6), str_attr(attrs, "reduce")
    rows, parts, levels = x.shape[0], int_attr(attrs, "parts"), int_attr(attrs, "levels")
    trees, leaves, targets = roots.shape[0] // parts, weights.shape[0], weights.shape[1]
    walks = _Walks.of(rows, trees, targets)
    own, turns = walks.rows * walks.blocks, trees // walks.trees

    def step(node: Expr, row: Expr) -> Expr:
        """Return the child of a node that a row goes on to."""
        value, limit = x(row, te.cast(features(node), "int64")), thresholds(node)
        first = value <= limit
        if missing is not None:
            first = te.any(first, te.all(te.isnan(value), missing(node)))
        return children(node, te.if_then_else(first, te.const(0, "int64"), te.const(1, "int64")))

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        joined = steps.scratch((own, targets), x.dtype, "joined")
        with steps.loop(own, "r") as r, steps.loop(targets, "c") as c:
            steps.store(joined, (r, c), te.const(_NEUTRAL[reduce], x.dtype))
        with steps.loop(turns, "t") as t, steps.loop(walks.blocks, "b") as b:
            pairs = [
                (b * walks.rows + n, t * walks.trees + m)
                for n in range(walks.rows)
                for m in range(walks.trees)
            ]
            cells = [steps.cell(roots(point[1] * trees + tree), "int32", "node") for _, tree in pairs]
            down(steps, [point[0] * own + row for row, _ in pairs], cells)
            for (row, _), cell in zip(pairs, cells, strict=True):
                leaf = steps.let(te.cast(cell.get(), "int64"), "leaf")
                with steps.loop(targets, "c") as c:
                    steps.store(joined, (row, c), _JOIN[reduce](joined(row, c), weights(leaf, c)))
        with steps.loop(own, "r") as r, steps.loop(targets, "c") as c:
            steps.store(steps.results[0], (point[0] * own + r, point[1], c), joined(r, c))

    def down(steps: Steps, row: Sequence[Expr], cells: Sequence[Cell]) -> None:
        """Go down until all walks are at leaves."""
        level = steps.cell(0, "int32", "level")
        busy = steps.cell(leaves, "int32", "busy")
        with steps.repeat_while(te.all(level.get() < levels, busy.get() >= leaves)):
            for _ in range(_STEPS):
                for each, cell in zip(row, cells, strict=True):
                    cell.set(step(steps.let(te.cast(cell.get(), "int64"), "at"), each))
            highest = cells[0].get()
            for cell in cells[1:]:
                highest = te.maximum(highest, cell.get())
            busy.set(highest)
            level.add(_STEPS)

    return sequential(
        (rows, parts, targets),
        (x.dtype,),
        [tensor for tensor in tensors if tensor is not None],
        build,
        names,
        apart={0: rows // own, 1: parts},
        length=own * trees * max(levels, 1),
        keeps_inside=True,
    )


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Count a comparison a level, and the weights of a leaf, of each row and tree."""
    x, roots, weights = at(types, 0), at(types, 1), at(types, 5)
    return x.shape[0] * roots.size * (int_attr(attrs, "levels") + weights.shape[1])


def _domain(types: Types, attrs: Attrs, index: int) -> Domain | None:
    sizes = {1: at(types, 2).size, 2: at(types, 0).shape[1], 4: at(types, 2).size}
    return Domain("index", sizes[index]) if index in sizes else None


define(
    "TreeEnsemble",
    "sequential",
    (6, 7),
    _infer,
    _reference,
    _compute,
    {
        "levels": Attribute("int", required=True),
        "parts": Attribute("int", 1),
        "reduce": Attribute("str", "sum", choices=("sum", "min", "max")),
    },
    _complete,
    _flops,
    in_onnx=False,
    domain_rule=_domain,
)
