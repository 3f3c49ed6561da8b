"""Trees and forests of ai.onnx.ml: their lists of nodes and leaves, and what becomes of their scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune.frontends.onnx.foreign import ForeignNode
from autotune.frontends.onnx.forests import MEMBER, MODES, NEUTRAL, Trees, ensemble
from autotune.frontends.onnx.scores import labelled, transformed, two_scores
from autotune.graph.ir import Array

_LEAF = -1
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


def _array(node: ForeignNode, name: str, dtype: Any) -> Array:
    """Return the numbers of an attribute, or of its namesake that is a tensor; none where both are absent."""
    from onnx import numpy_helper

    tensor = node.attrs.get(f"{name}_as_tensor")
    value = numpy_helper.to_array(tensor) if tensor is not None else node.attrs.get(name)
    if value is not None and hasattr(value, "data_type"):
        value = numpy_helper.to_array(value)
    return np.asarray(() if value is None else value, dtype).reshape(-1)


def _same_length(node: ForeignNode, arrays: Mapping[str, Array | Sequence[Any]]) -> None:
    lengths = {name: len(each) for name, each in arrays.items()}
    if len({*lengths.values()}) > 1:
        text = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise node.fail(f"lists of its nodes are not of one length: {text}")


def _dtype(node: ForeignNode) -> Any:
    return np.float64 if node.type(0).dtype == "float64" else np.float32


def _classical(node: ForeignNode, prefix: str, targets: int) -> tuple[Trees, Array]:
    """Return the trees of TreeEnsembleRegressor and TreeEnsembleClassifier, and [leaves, targets] of weights."""
    integers = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    lists: dict[str, Any] = {name: _array(node, f"nodes_{name}", np.int64) for name in integers}
    lists |= {"values": _array(node, "nodes_values", _dtype(node)), "modes": node.attrs["nodes_modes"] or ()}
    _same_length(node, {f"nodes_{name}": each for name, each in lists.items()})
    if not len(lists["modes"]):
        raise node.fail("it has no nodes")
    modes = _modes(node, lists["modes"])
    inner, leaf = np.flatnonzero(modes != _LEAF), np.flatnonzero(modes == _LEAF)
    reference = np.empty(len(modes), np.int64)
    reference[inner], reference[leaf] = np.arange(len(inner)), ~np.arange(len(leaf))
    keys = [*zip(lists["treeids"].tolist(), lists["nodeids"].tolist(), strict=True)]
    places = dict(zip(keys, reference.tolist(), strict=True))
    if len(places) < len(keys):
        raise node.fail("two of its nodes have the same number in the same tree")

    def found(trees: Array, numbers: Array, what: str) -> Array:
        pairs = [*zip(trees.tolist(), numbers.tolist(), strict=True)]
        wrong = [pair for pair in pairs if pair not in places]
        if wrong:
            raise node.fail(f"{what} names node {wrong[0][1]} of tree {wrong[0][0]}, which is not there")
        return np.asarray([places[pair] for pair in pairs], np.int64)

    own = lists["treeids"][inner]
    true, false = (
        found(own, lists[name][inner], f"nodes_{name}") for name in ("truenodeids", "falsenodeids")
    )
    missing = _array(node, "nodes_missing_value_tracks_true", bool)
    missing = missing if len(missing) else np.zeros(len(modes), bool)
    _same_length(node, {"nodes_modes": modes, "nodes_missing_value_tracks_true": missing})
    roots = _roots(node, places, {*true.tolist(), *false.tolist()})
    trees = Trees(
        *(modes[inner], lists["featureids"][inner], lists["values"][inner], true, false, missing[inner]),
        roots,
        {},
    )
    return trees, _weights(node, prefix, targets, len(leaf), found)


def _roots(node: ForeignNode, places: Mapping[tuple[int, int], int], below: set[int]) -> Array:
    """Return the node of each tree that is below no other."""
    roots: dict[int, list[int]] = {tree: [] for tree, _ in places}
    for (tree, _), place in places.items():
        if place not in below:
            roots[tree].append(place)
    for tree, found in roots.items():
        if len(found) != 1:
            raise node.fail(f"tree {tree} has {len(found)} nodes that are below no other; it has one root")
    return np.asarray([*roots.values()], np.int64).reshape(-1)


def _modes(node: ForeignNode, modes: Sequence[str]) -> Array:
    known = {f"BRANCH_{name}": number for number, name in enumerate(MODES[:MEMBER])} | {"LEAF": _LEAF}
    wrong = [mode for mode in modes if mode not in known]
    if wrong:
        raise node.fail(f"a node has mode {wrong[0]!r}; it is one of {', '.join(known)}")
    return np.asarray([known[mode] for mode in modes])


def _weights(
    node: ForeignNode, prefix: str, targets: int, leaves: int, found: Callable[[Array, Array, str], Array]
) -> Array:
    """Return what leaves add to each target; the weights of one leaf and target are summed."""
    lists = {name: _array(node, f"{prefix}_{name}", np.int64) for name in ("treeids", "nodeids", "ids")}
    values = _array(node, f"{prefix}_weights", _dtype(node))
    _same_length(node, {f"{prefix}_{name}": each for name, each in {**lists, "weights": values}.items()})
    places, ids = ~found(lists["treeids"], lists["nodeids"], f"{prefix}_nodeids"), lists["ids"]
    if ((ids < 0) | (ids >= targets)).any() or (places < 0).any():
        raise node.fail(f"{prefix}_ids are from 0 to {targets - 1}, and {prefix}_nodeids are leaves")
    return _summed(places, ids, values, (leaves, targets), node.attrs.get("aggregate_function", "SUM"))


def _summed(places: Array, ids: Array, values: Array, shape: tuple[int, int], aggregate: str) -> Array:
    weights = np.zeros(shape, values.dtype)
    np.add.at(weights, (places, ids), values)
    if aggregate in NEUTRAL:
        given = np.zeros(shape, bool)
        given[places, ids] = True
        weights[~given] = NEUTRAL[aggregate]
    return weights


def _with_base(node: ForeignNode, y: str, targets: int, dtype: Any) -> str:
    base = _array(node, "base_values", dtype)
    if not base.size:
        return y
    if base.size != targets:
        raise node.fail(f"it has {base.size} base_values for {targets} targets")
    return node("Add", y, node.constant(base, str(np.dtype(dtype))))


def _regressor(node: ForeignNode) -> None:
    aggregate, targets = node.attrs["aggregate_function"], int(node.attrs["n_targets"] or 1)
    if aggregate not in _AGGREGATES:
        raise node.fail(f"aggregate_function is {aggregate!r}; it is one of {', '.join(_AGGREGATES)}")
    trees, weights = _classical(node, "target", targets)
    y = _with_base(node, ensemble(node, trees, weights, aggregate), targets, _dtype(node))
    transformed(node, node.cast(y, "float32"), targets, node.output(0))


def _classifier(node: ForeignNode) -> None:
    labels = node.attrs["classlabels_int64s"] or ()
    if not labels:
        raise node.fail("attribute 'classlabels_int64s' is missing")
    trees, weights = _classical(node, "class", max(len(labels), 2))
    ids = {*_array(node, "class_ids", np.int64).tolist()}
    y = ensemble(node, trees, weights, "SUM")
    if len(labels) <= 2 and ids == {0}:
        _binary(node, y, labels, positive=bool((weights >= 0).all()))
        return
    y = node.cast(_with_base(node, y, len(labels), _dtype(node)), "float32")
    labelled(node, node("ArgMax", y, axis=1, keepdims=0), labels)
    transformed(node, y, len(labels), node.output(1))


def _binary(node: ForeignNode, y: str, labels: Sequence[int], positive: bool) -> None:
    """Give labels and scores of one score: a probability where no weight is negative, else one about zero."""
    y = node("Slice", y, node.constant([0]), node.constant([1]), node.constant([1]))
    y = node.cast(_with_base(node, y, 1, _dtype(node)), "float32")
    least = node.constant(0.5 if positive and len(labels) == 2 else 0.0, "float32")
    above = node("Greater", node("Squeeze", y, node.constant([1])), least)
    if len(labels) < 2:
        labelled(node, above, (0, 1))
        transformed(node, y, 1, node.output(1))
        return
    labelled(node, above, labels)
    two_scores(node, y, "1 - score" if positive else "-score", node.output(1))


def _tree_ensemble(node: ForeignNode) -> None:
    """Import the operator of opset 5, in which leaves have one weight each."""
    dtype, targets = _dtype(node), int(node.attrs["n_targets"] or 1)
    number = node.attrs["aggregate_function"]
    if number not in range(len(_AGGREGATES)):
        raise node.fail(f"aggregate_function is {number!r}; it is from 0 to {len(_AGGREGATES) - 1}")
    integers = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs", "modes")
    lists = {name: _array(node, f"nodes_{name}", np.int64) for name in integers}
    lists["splits"] = _array(node, "nodes_splits", dtype)
    missing = _array(node, "nodes_missing_value_tracks_true", bool)
    lists["missing_value_tracks_true"] = missing if len(missing) else np.zeros(len(lists["modes"]), bool)
    _same_length(node, {f"nodes_{name}": each for name, each in lists.items()})
    modes, roots = lists["modes"], _array(node, "tree_roots", np.int64)
    if ((modes < 0) | (modes >= len(MODES))).any() or not len(roots):
        raise node.fail(f"nodes_modes are from 0 to {len(MODES) - 1}, and there is a root of a tree")
    true, false = (
        np.where(lists[f"{side}leafs"] != 0, ~lists[f"{side}nodeids"], lists[f"{side}nodeids"])
        for side in ("true", "false")
    )
    members = _members(node, modes, dtype)
    trees = Trees(
        modes,
        lists["featureids"],
        lists["splits"],
        true,
        false,
        lists["missing_value_tracks_true"],
        roots,
        members,
    )
    ids, values = _array(node, "leaf_targetids", np.int64), _array(node, "leaf_weights", dtype)
    _same_length(node, {"leaf_targetids": ids, "leaf_weights": values})
    if not ids.size or ((ids < 0) | (ids >= targets)).any():
        raise node.fail(f"leaf_targetids are from 0 to {targets - 1}")
    aggregate = _AGGREGATES[number]
    weights = _summed(np.arange(len(ids)), ids, values, (len(ids), targets), aggregate)
    transformed(node, ensemble(node, trees, weights, aggregate), targets, node.output(0))


def _members(node: ForeignNode, modes: Array, dtype: Any) -> dict[int, Array]:
    """Return the sorted members of each set, which end by NaN in membership_values."""
    places, values = np.flatnonzero(modes == MEMBER).tolist(), _array(node, "membership_values", dtype)
    ends = np.flatnonzero(np.isnan(values)).tolist()
    if len(ends) != len(places):
        raise node.fail(f"membership_values has {len(ends)} sets, which end by NaN, for {len(places)} nodes")
    starts = [0, *(end + 1 for end in ends)]
    return {p: np.unique(values[start:end]) for p, start, end in zip(places, starts, ends, strict=False)}


TREES: Mapping[str, Callable[[ForeignNode], None]] = {
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsembleRegressor": _regressor,
}
"""The function that adds the nodes of each operator."""

__all__ = ["TREES"]
