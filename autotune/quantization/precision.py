"""Precisions of a model's products, and the order in which products become more exact.

A product is computed in float32, in float32 by weights that are stored shorter (docs/weights.md), of bfloat16 operands
with sums in float32, or in eight bits, with ranges of activations by calibration or when the model runs.
Each precision has a latency and the square of the error that it makes alone. What is chosen for all products is a
knapsack problem with several choices an item; the steps of its greedy solution are those of the lower convex hull of
each item, by the square that they take off for the time that they cost (Sinha and Zoltners, 1979, The multiple-choice
knapsack problem).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autotune.graph.ops.common import STORED
from autotune.passes.layout.stored_weights import StoredWeights

FLOAT32, BFLOAT16, INT8 = "float32", "bfloat16", "int8"
INT8_DYNAMIC, INT4_WEIGHTS = "int8 dynamic", "int4 weights"
LOW = (INT8, BFLOAT16)
"""Those whose activations are short between products, too."""

_RULES = {rule.label: rule for rule in map(StoredWeights, STORED)}
STORED_TYPES: Mapping[str, str] = {label: rule.dtype for label, rule in _RULES.items()}
"""The type of the weights by precision, of those that store weights shorter."""
DECLARED_ERRORS: Mapping[str, float] = {label: rule.error for label, rule in _RULES.items()}
"""The tolerance that allows each of these."""
_BY_ERROR = sorted(_RULES, key=lambda label: -_RULES[label].error)
_LESS_EXACT = [label for label in _BY_ERROR if _RULES[label].error > _RULES["bfloat16 weights"].error]
PRECISIONS = (
    INT4_WEIGHTS,
    INT8,
    INT8_DYNAMIC,
    *_LESS_EXACT,
    BFLOAT16,
    *_BY_ERROR[len(_LESS_EXACT) :],
    FLOAT32,
)
"""All precisions, the most exact last."""
SHORT_PRODUCTS = ("avx512bf16", "amx-bf16")
"""Features of targets of which one multiplies bfloat16 numbers."""

Precisions: TypeAlias = Mapping[str, str]
"""The precision of each product, by its output."""


@dataclass(frozen=True)
class PrecisionOption:
    """A precision of one product, its predicted latency, and the square of the error that it makes alone."""

    precision: str
    latency_ns: float
    square: float


@dataclass(frozen=True)
class PrecisionStep:
    """A product becomes more exact; ``worth`` is the square that this takes off for each ns that it costs."""

    product: str
    before: str
    after: str
    worth: float


def hull(product: str, options: Sequence[PrecisionOption], least_ns: float) -> list[PrecisionStep]:
    """Return the steps from the first option to the last, which is the most exact one, each of the largest worth.

    What saves less than ``least_ns`` counts as if it saved that.

    >>> options = [PrecisionOption(*each) for each in (("int8", 1, 8), ("float16 weights", 2, 1), ("float32", 4, 0))]
    >>> [(step.after, step.worth) for step in hull("y", options, 0.1)]
    [('float16 weights', 7.0), ('float32', 0.5)]
    """
    found, left = list[PrecisionStep](), list(options)
    while len(left) > 1:
        first = left[0]
        worths = [_worth(first, other, least_ns) for other in left[1:]]
        best = len(worths) - worths[::-1].index(max(worths))
        found.append(PrecisionStep(product, first.precision, left[best].precision, worths[best - 1]))
        left = left[best:]
    return found


def _worth(before: PrecisionOption, after: PrecisionOption, least_ns: float) -> float:
    return (before.square - after.square) / max(after.latency_ns - before.latency_ns, least_ns)


def in_order(steps: Iterable[PrecisionStep]) -> list[PrecisionStep]:
    """Return the steps of several products by worth, the largest first; those of each product stay in their order."""
    return sorted(steps, key=lambda step: step.worth, reverse=True)


def taken(first: Precisions, steps: Iterable[PrecisionStep]) -> dict[str, str]:
    """Return the precisions after the first steps of an order."""
    return {**first, **{step.product: step.after for step in steps}}


def further(precisions: Precisions, steps: Iterable[PrecisionStep], count: int) -> dict[str, str]:
    """Return the precisions after ``count`` more steps, the first that were not taken."""
    found = dict(precisions)
    for step in steps:
        if count and found[step.product] == step.before:
            found[step.product] = step.after
            count -= 1
    return found


def switched_in(precision: str) -> bool:
    """Return whether a product in a precision has a switch of its own beside that of eight bits by calibration."""
    return precision not in (FLOAT32, INT8)


def products_in(precisions: Precisions, *wanted: str) -> tuple[str, ...]:
    """Return the products that have one of the wanted precisions."""
    return tuple(product for product, precision in precisions.items() if precision in wanted)


def products_by_precision(precisions: Precisions) -> str:
    """Return how many products have each precision, the least exact first.

    >>> products_by_precision({"a": "float32", "b": "int8", "c": "float32"})
    '1 int8, 2 float32'
    """
    return ", ".join(f"{count} {one}" for one, count in counts_by_precision(precisions).items())


def counts_by_precision(precisions: Precisions) -> dict[str, int]:
    """Return the number of products in each precision that is used, the least exact first."""
    counts = {one: len(products_in(precisions, one)) for one in PRECISIONS}
    return {one: count for one, count in counts.items() if count}


def products_outside(precisions: Precisions, unwanted: str) -> tuple[str, ...]:
    """Return the products that have another precision."""
    return tuple(product for product, precision in precisions.items() if precision != unwanted)


__all__ = [
    "BFLOAT16",
    "DECLARED_ERRORS",
    "FLOAT32",
    "INT4_WEIGHTS",
    "INT8",
    "INT8_DYNAMIC",
    "LOW",
    "PRECISIONS",
    "SHORT_PRODUCTS",
    "STORED_TYPES",
    "PrecisionOption",
    "PrecisionStep",
    "Precisions",
    "counts_by_precision",
    "further",
    "hull",
    "in_order",
    "products_by_precision",
    "products_in",
    "products_outside",
    "switched_in",
    "taken",
]
