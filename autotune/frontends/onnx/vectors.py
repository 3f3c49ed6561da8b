"""Vectors of features of ai.onnx.ml: made, taken apart, and compared with support vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from autotune.frontends.onnx.foreign import ForeignNode
from autotune.frontends.onnx.scores import labelled, transformed, two_scores
from autotune.graph.ir import Array


def _feature_vectorizer(node: ForeignNode) -> None:
    """Join columns, cut or filled with zeros to the given widths."""
    widths = node.attrs["inputdimensions"] or ()
    if len(widths) != len(node.proto.input) or min(widths, default=0) < 0:
        raise node.fail(
            f"inputdimensions {list(widths)} are not a width for each of {len(node.proto.input)} inputs"
        )
    columns = []
    for index, width in enumerate(widths):
        x, found = node.cast(node.input(index), "float32"), node.type(index)
        node.check(found.rank in (1, 2), index, "[rows] or [rows, columns]")
        x = x if found.rank == 2 else node.reshape(x, -1, 1)
        more = width - (found.shape[1] if found.rank == 2 else 1)
        if more < 0:
            x = node("Slice", x, node.constant([0]), node.constant([width]), node.constant([1]))
        columns.append(node("Pad", x, node.constant([0, 0, 0, more])) if more > 0 else x)
    node("Concat", *columns, axis=1, result=node.output(0))


def _feature_extractor(node: ForeignNode) -> None:
    """Take elements along the last axis; a vector is one row."""
    taken = node("Gather", node.input(0), node.reshape(node.input(1), -1), axis=-1)
    node.reshape(taken, 1, -1, result=node.output(0)) if node.type(0).rank == 1 else node(
        "Identity", taken, result=node.output(0)
    )


def _kernels(node: ForeignNode, vectors: Array) -> str:
    """Return how near rows are to each of the vectors, [rows, vectors]."""
    x, kind = node.rows(node.cast(node.input(0), "float32")), node.attrs["kernel_type"]
    gamma, offset, degree = node.attrs["kernel_params"] or (0.0, 0.0, 0.0)

    def number(value: float) -> str:
        return node.constant(value, "float32")

    if kind == "RBF":
        apart = node("Sub", node("Unsqueeze", x, node.constant([1])), node.constant(vectors, "float32"))
        squares = node("ReduceSum", node("Mul", apart, apart), node.constant([-1]), keepdims=0)
        return node("Exp", node("Mul", squares, number(-gamma)))
    product = node("MatMul", x, node.constant(vectors.T, "float32"))
    if kind == "LINEAR":
        return product
    product = node("Add", node("Mul", product, number(gamma)), number(offset))
    if kind == "POLY":
        return node("Pow", product, number(degree))
    if kind == "SIGMOID":
        return node("Tanh", product)
    raise node.fail(f"kernel_type is {kind!r}; it is one of LINEAR, POLY, RBF, SIGMOID")


def _matrix(node: ForeignNode, name: str, rows: int, columns: int) -> Array:
    """Return an attribute as a matrix."""
    values: np.ndarray[Any, Any] = np.asarray(node.attrs[name] or (), np.float32)
    if values.size != rows * columns:
        raise node.fail(f"{name} has {values.size} numbers, not {rows} times {columns}")
    return values.reshape(rows, columns)


def _svm_regressor(node: ForeignNode) -> None:
    count, features = node.attrs["n_supports"], node.type(0).shape[-1]
    if not node.attrs["rho"]:
        raise node.fail("attribute 'rho' is missing")
    if count:
        weights = _matrix(node, "coefficients", 1, count)
        y = node(
            "MatMul",
            _kernels(node, _matrix(node, "support_vectors", count, features)),
            node.constant(weights.T, "float32"),
        )
    else:
        node.attrs["kernel_type"] = "LINEAR"
        y = _kernels(node, _matrix(node, "coefficients", 1, features))
    y = node("Add", y, node.constant(node.attrs["rho"][0], "float32"))
    if node.attrs["one_class"]:
        one, other = (node.constant(value, "float32") for value in (1, -1))
        y = node("Where", node("Greater", y, node.constant(0, "float32")), one, other)
    transformed(node, y, 1, node.output(0))


def _svm_classifier(node: ForeignNode) -> None:
    labels, counts = node.attrs["classlabels_ints"] or (), node.attrs["vectors_per_class"] or ()
    if len(labels) < 2 or not node.attrs["rho"]:
        raise node.fail("it has two or more classlabels_ints, and rho")
    (_by_pairs if sum(counts) else _by_planes)(node, labels, counts)


def _by_planes(node: ForeignNode, labels: tuple[int, ...], counts: tuple[int, ...]) -> None:
    """Compute a score for each label, by a product."""
    node.attrs["kernel_type"] = "LINEAR"
    planes = _matrix(node, "coefficients", len(labels), node.type(0).shape[-1])
    scores = node("Add", _kernels(node, planes), node.constant(node.attrs["rho"][0], "float32"))
    place = node("ArgMax", scores, axis=1, keepdims=0)
    if len(labels) == 2:  # the second one if any score is high enough, as runtimes do
        highest = node("ReduceMax", scores, node.constant([1]), keepdims=0)
        positive = bool((planes >= 0).all())
        op, least = ("GreaterOrEqual", 0.5) if positive else ("Greater", 0.0)
        place = node("Where", node(op, highest, node.constant(least, "float32")), node.constant(1), place)
    labelled(node, place, labels)
    transformed(node, scores, len(labels), node.output(1))


def _by_pairs(node: ForeignNode, labels: tuple[int, ...], counts: tuple[int, ...]) -> None:
    """Compute a score for each pair of labels, each of which votes for one of them."""
    if len(counts) != len(labels):
        raise node.fail(f"vectors_per_class has {len(counts)} numbers for {len(labels)} labels")
    total, pairs = sum(counts), [*combinations(range(len(labels)), 2)]
    given = _matrix(node, "coefficients", len(labels) - 1, total)
    ends = np.cumsum([0, *counts])
    weights, votes = (
        np.zeros((total, len(pairs)), np.float32),
        np.zeros((2, len(pairs), len(labels)), np.float32),
    )
    for n, (i, j) in enumerate(pairs):
        for own, other in ((i, j - 1), (j, i)):
            weights[ends[own] : ends[own + 1], n] = given[other, ends[own] : ends[own + 1]]
        votes[0, n, i] = votes[1, n, j] = 1
    vectors = _matrix(node, "support_vectors", total, node.type(0).shape[-1])
    rho = _matrix(node, "rho", 1, len(pairs))
    scores = node("MatMul", _kernels(node, vectors), node.constant(weights, "float32"))
    scores = node("Add", scores, node.constant(rho, "float32"))
    first = node.cast(node("Greater", scores, node.constant(0, "float32")), "float32")
    # A vote for j is one for i that was not given.
    counted = node("MatMul", first, node.constant(votes[0] - votes[1], "float32"))
    counted = node("Add", counted, node.constant(votes[1].sum(0), "float32"))
    labelled(node, node("ArgMax", counted, axis=1, keepdims=0), labels)
    _scores_of_pairs(node, scores, len(labels), len(pairs))


def _scores_of_pairs(node: ForeignNode, scores: str, labels: int, pairs: int) -> None:
    if not node.attrs["prob_a"]:
        if labels > 2:
            transformed(node, scores, pairs, node.output(1))
        else:
            first = "-score" if node.attrs["post_transform"] == "NONE" else "1 - score"
            two_scores(node, scores, first, node.output(1))
        return
    if labels > 2:
        raise node.fail(
            f"probabilities of {labels} labels are not supported, only those of two\n"
            "  fit the model with probability=False, or take scikit-learn's CalibratedClassifierCV"
        )
    a, b = (_matrix(node, name, 1, 1) for name in ("prob_a", "prob_b"))
    p = node(
        "Sigmoid",
        node(
            "Neg", node("Add", node("Mul", scores, node.constant(a, "float32")), node.constant(b, "float32"))
        ),
    )
    p = node("Clip", p, node.constant(1e-7, "float32"), node.constant(1 - 1e-7, "float32"))
    both = node("Concat", p, node("Sub", node.constant(1, "float32"), p), axis=1)
    transformed(node, both, labels, node.output(1))


VECTORS: Mapping[str, Callable[[ForeignNode], None]] = {
    "ArrayFeatureExtractor": _feature_extractor,
    "FeatureVectorizer": _feature_vectorizer,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
}
"""The function that adds the nodes of each operator."""

__all__ = ["VECTORS"]
