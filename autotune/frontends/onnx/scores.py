"""Scores and labels of classifiers of ai.onnx.ml."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.frontends.onnx.foreign import ForeignNode

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""By their numbers in TreeEnsemble."""
_A = 0.147
"""Of Winitzki's approximation of the inverse error function, which runtimes use for PROBIT."""
_ZERO = 1e-7
"""SOFTMAX_ZERO takes scores up to this for zero."""


def transform_of(node: ForeignNode) -> str:
    """Return the transform that a node asks for."""
    given = node.attrs["post_transform"]
    numbered = isinstance(given, int) and 0 <= given < len(_TRANSFORMS)
    name = _TRANSFORMS[given] if numbered else given
    if name not in _TRANSFORMS:
        raise node.fail(f"post_transform is {given!r}; it is one of {', '.join(_TRANSFORMS)}")
    return str(name)


def transformed(node: ForeignNode, scores: str, columns: int, result: str, transform: str = "") -> None:
    """Give [rows, columns] of transformed scores as a result. As in runtimes, single scores only change by PROBIT."""
    transform = transform or transform_of(node)
    if transform == "PROBIT":
        _probit(node, scores, result)
    elif columns == 1 or transform == "NONE":
        node("Identity", scores, result=result)
    elif transform == "LOGISTIC":
        node("Sigmoid", scores, result=result)
    elif transform == "SOFTMAX":
        node("Softmax", scores, axis=-1, result=result)
    else:
        _softmax_zero(node, scores, result)


def two_scores(node: ForeignNode, score: str, first: str, result: str) -> None:
    """Give the scores of two labels: the second has ``score``, [rows, 1], the first "1 - score" or "-score"."""
    transform = transform_of(node)
    if transform == "PROBIT":
        raise node.fail("post_transform PROBIT of one score for two labels is not supported")
    if first == "1 - score" and transform != "LOGISTIC":
        node("Concat", node("Sub", node.like(score, 1), score), score, axis=1, result=result)
        return
    both = node("Concat", node("Neg", score), score, axis=1)
    node("Sigmoid" if transform == "LOGISTIC" else "Identity", both, result=result)


def labelled(node: ForeignNode, place: str, labels: Sequence[int]) -> None:
    """Give the labels as the first result: one for each of [rows], which is a place among them or a flag."""
    place = node.cast(place, "int64")
    if [*labels] == [*range(len(labels))]:
        node("Identity", place, result=node.output(0))
    else:
        node("Gather", node.constant(list(labels)), place, result=node.output(0))


def _softmax_zero(node: ForeignNode, scores: str, result: str) -> None:
    """Compute a softmax in which zeros stay zeros."""
    highest = node("ReduceMax", scores, node.constant([-1]), keepdims=1)
    exps = node("Exp", node("Sub", scores, highest))
    is_zero = node("LessOrEqual", node("Abs", scores), node.like(scores, _ZERO))
    small = node("Mul", scores, node("Exp", node("Neg", highest)))
    total = node(
        "ReduceSum", node("Where", is_zero, node.like(scores, 0), exps), node.constant([-1]), keepdims=1
    )
    node("Div", node("Where", is_zero, small, exps), total, result=result)


def _probit(node: ForeignNode, scores: str, result: str) -> None:
    """Compute the quantile of the normal distribution, of probabilities."""

    def number(value: float) -> str:
        return node.like(scores, value)

    x = node("Sub", node("Mul", scores, number(2)), number(1))
    log = node("Log", node("Mul", node("Sub", number(1), x), node("Add", number(1), x)))
    v = node("Add", node("Mul", log, number(0.5)), number(2 / (math.pi * _A)))
    root = node("Sqrt", node("Sub", node("Mul", v, v), node("Mul", log, number(1 / _A))))
    magnitude = node("Sqrt", node("Sub", root, v))
    node("Mul", node("Mul", node("Sign", x), magnitude), number(math.sqrt(2)), result=result)


__all__ = ["labelled", "transform_of", "transformed", "two_scores"]
