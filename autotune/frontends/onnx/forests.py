"""Forests as tables of nodes for the graph's TreeEnsemble.

There a node has one way to compare: it goes on to its first child where x[feature] <= threshold. The other ways are
written by it: "<" by the number just below, ">=" and ">" with the children exchanged, "==" as two nodes, and membership
of a set by a search among its members in order. Nodes of a tree stand side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.frontends.onnx.foreign import ForeignNode
from autotune.graph.ir import Array

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Ways to compare, by their numbers."""
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, MEMBER = range(7)
NEUTRAL = {"MIN": np.inf, "MAX": -np.inf}
"""The neutral elements of aggregates, where they are not 0."""
_PARTS = 8
"""Of trees: workers share them, and nodes of one fit a cache of the second level."""
_MANY_TREES = 64
"""From so many on they are divided."""


@dataclass(frozen=True)
class Trees:
    """Nodes of trees: children are nodes, or leaves as ~number; the members of sets stand in ``members`` by node."""

    mode: Array
    feature: Array
    value: Array
    true: Array
    false: Array
    missing: Array
    roots: Array
    members: Mapping[int, Array]


@dataclass(frozen=True)
class _Tables:
    """Nodes that compare by <=, the leaves first; see the graph's TreeEnsemble."""

    feature: Array
    threshold: Array
    children: Array
    missing: Array | None
    roots: Array
    levels: int


def _below(values: Array) -> Array:
    """Return the next number below each, NaN below the least: nothing is less than that."""
    return np.where(np.isneginf(values), np.nan, np.nextafter(values, -np.inf)).astype(values.dtype)


def _by_order(trees: Trees) -> Trees:
    """Return the same trees with nodes that compare by <= only."""
    mode, value, missing = trees.mode, trees.value, trees.missing
    turned = np.isin(mode, (_GTE, _GT, _NEQ))
    true, false = np.where(turned, trees.false, trees.true), np.where(turned, trees.true, trees.false)
    # What is not a number is neither less nor greater, and differs from all.
    missing = np.where(turned, ~missing & (mode != _NEQ), missing)
    value = np.where(np.isin(mode, (_LT, _GTE)), _below(value), value)
    nodes = [*zip(*(a.tolist() for a in (trees.feature, value, true, false, missing)), strict=True)]
    for place in np.flatnonzero(np.isin(mode, (_EQ, _NEQ, MEMBER))).tolist():
        members = trees.members[place] if mode[place] == MEMBER else trees.value[place : place + 1]
        _search(nodes, place, members)
    columns = [*zip(*nodes, strict=True)]
    dtype = trees.value.dtype
    return Trees(
        np.zeros(len(nodes), np.int64),
        np.asarray(columns[0]),
        np.asarray(columns[1], dtype),
        np.asarray(columns[2]),
        np.asarray(columns[3]),
        np.asarray(columns[4], bool),
        trees.roots,
        {},
    )


def _search(nodes: list[tuple[Any, ...]], place: int, members: Array) -> None:
    """Put the search for a member at a node, whose children are those of a member and of what is none; more nodes at
    the end. ``members`` are sorted."""
    feature, _, true, false, missing = nodes[place]
    if not len(members):
        nodes[place] = (feature, np.nan, true, false, missing)
    elif len(members) == 1:
        nodes[place] = (feature, members[0], len(nodes), false, missing)
        nodes.append((feature, _below(members[:1])[0], false, true, False))
    else:
        middle, first = len(members) // 2, len(nodes)
        nodes[place] = (feature, members[middle - 1], first, first + 1, missing)
        nodes += [(feature, 0.0, true, false, missing)] * 2
        _search(nodes, first, members[:middle])
        _search(nodes, first + 1, members[middle:])


def _check(node: ForeignNode, trees: Trees, leaves: int) -> None:
    """Refuse numbers out of range, and nodes below themselves."""
    node.check(node.type(0).rank in (1, 2), 0, "[rows, features] or [features]")
    features, count = node.type(0).shape[-1], len(trees.feature)
    for what, numbers, least, most in (
        ("child", np.concatenate([trees.true, trees.false]), -leaves, count),
        ("root", trees.roots, -leaves, count),
        ("feature", trees.feature, 0, features),
    ):
        wrong = numbers[(numbers < least) | (numbers >= most)]
        if wrong.size:
            raise node.fail(
                f"a node has {what} {wrong.flat[0]}; x is {node.type(0)}, nodes are {count}, leaves {leaves}"
            )
    if _levels(trees) > count:
        raise node.fail("a node is below itself")


def _tables(trees: Trees, leaves: int) -> _Tables:
    """Return the tables of trees with so many leaves."""
    trees = _by_order(trees) if len(trees.feature) else trees

    def numbered(places: Array) -> Array:
        return np.where(places < 0, ~places, places + leaves).astype(np.int32)

    own = np.arange(leaves)[:, None].repeat(2, 1).astype(np.int32)
    missing = np.concatenate([np.zeros(leaves, bool), trees.missing])
    return _Tables(
        np.concatenate([np.zeros(leaves, np.int32), trees.feature.astype(np.int32)]),
        np.concatenate([np.zeros(leaves, trees.value.dtype), trees.value]),
        np.concatenate([own, np.stack([numbered(trees.true), numbered(trees.false)], 1)]),
        missing if missing.any() else None,
        numbered(trees.roots),
        _levels(trees),
    )


def _levels(trees: Trees) -> int:
    """Return the number of nodes on the longest way to a leaf, or one more than there are where it has no end."""
    level, at = 0, np.unique(trees.roots[trees.roots >= 0])
    while at.size and level <= len(trees.feature):
        below = np.concatenate([trees.true[at], trees.false[at]])
        at, level = np.unique(below[below >= 0]), level + 1
    return level


def ensemble(node: ForeignNode, trees: Trees, weights: Array, aggregate: str) -> str:
    """Add the nodes that compute [rows, targets] of trees and the weights of their leaves, as float32 or float64."""
    dtype, count, neutral = str(trees.value.dtype), len(trees.roots), NEUTRAL.get(aggregate, 0.0)
    _check(node, trees, len(weights))
    own = _own_targets(trees, weights, neutral)
    groups = (
        [np.arange(count)] if own is None else [np.flatnonzero(own == n) for n in range(weights.shape[1])]
    )
    table = weights if own is None else _joined(weights, neutral)
    divided = own is None and count >= _MANY_TREES
    table, trees = _padded(table, trees, groups, neutral)
    tables = _tables(trees, len(table))
    x = node.rows(node.cast(node.input(0), dtype))
    operands = [
        node.constant(tables.roots, "int32"),
        node.constant(tables.feature, "int32"),
        node.constant(tables.threshold, dtype),
        node.constant(tables.children, "int32"),
        node.constant(table, dtype),
        *([] if tables.missing is None else [node.constant(tables.missing, "bool")]),
    ]
    reduce = {"MIN": "min", "MAX": "max"}.get(aggregate, "sum")
    parts = _PARTS if divided else len(groups)
    y = node.of_graph("TreeEnsemble", x, *operands, levels=tables.levels, parts=parts, reduce=reduce)
    if divided:
        op = {"min": "ReduceMin", "max": "ReduceMax", "sum": "ReduceSum"}[reduce]
        y = node(op, y, node.constant([1]), keepdims=0)
    else:
        y = node("Squeeze", y, node.constant([1 if own is None else 2]))
    if reduce != "sum" and np.isinf(weights).any():  # targets that no leaf has a weight for
        y = node("Where", node("IsInf", y), node.constant(0, dtype), y)
    return node("Div", y, node.constant(count, dtype)) if aggregate == "AVERAGE" else y


def _own_targets(trees: Trees, weights: Array, neutral: float) -> Array | None:
    """Return the target of each tree, if each has weights for one only, as boosted trees have; else None."""
    given = weights != neutral
    if weights.shape[1] == 1 or (given.sum(1) > 1).any():
        return None
    of_leaf = np.where(given.any(1), given.argmax(1), -1)
    lowest, highest = np.full(len(trees.roots), weights.shape[1]), np.full(len(trees.roots), -1)
    tree, at = np.arange(len(trees.roots)), trees.roots
    while at.size:
        tree, at = np.unique(np.stack([tree, at]), axis=1)  # of which trees may share some
        leaf = at < 0
        found = of_leaf[~at[leaf]]
        np.minimum.at(lowest, tree[leaf][found >= 0], found[found >= 0])
        np.maximum.at(highest, tree[leaf], found)
        tree, at = np.tile(tree[~leaf], 2), np.concatenate([trees.true[at[~leaf]], trees.false[at[~leaf]]])
    return np.maximum(highest, 0) if (lowest >= highest).all() else None


def _joined(weights: Array, neutral: float) -> Array:
    """Return the only weight of each leaf."""
    place = (weights != neutral).argmax(1)
    return np.take_along_axis(weights, place[:, None], 1)


def _padded(weights: Array, trees: Trees, groups: Sequence[Array], neutral: float) -> tuple[Array, Trees]:
    """Return weights and trees by groups of as many trees, a number that has divisors: more of one leaf each, which
    changes nothing."""
    size = max(1, *(len(group) for group in groups))
    size += -size % (_PARTS if size > _PARTS else 1)
    leaf = np.full((1, weights.shape[1]), neutral, weights.dtype)
    roots = [np.pad(trees.roots[g], (0, size - len(g)), constant_values=~len(weights)) for g in groups]
    return np.concatenate([weights, leaf]), replace(trees, roots=np.concatenate(roots))


__all__ = ["MEMBER", "MODES", "NEUTRAL", "Trees", "ensemble"]
