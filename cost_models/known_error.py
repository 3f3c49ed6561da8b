"""How far the analytic model's seconds are from measured ones, by family of search spaces.

The model ranks candidates of one space, for which a common factor does not matter. Where its seconds are shown or
added up, they are divided by the ``scale`` of the family, and ``spread`` gives their interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

NORMAL_95 = 1.96


class KnownError(NamedTuple):
    """The geometric mean of predicted over measured latency, and the standard deviation of its logarithm."""

    scale: float
    spread: float

    def interval(self, value: float) -> tuple[float, float]:
        """95 % interval of a value that was predicted with such an error."""
        factor = math.exp(NORMAL_95 * self.spread)
        return value / factor, value * factor


OTHERS = KnownError(1.3, 0.4)
"""Of families that are not listed."""
FAMILIES: Mapping[str, KnownError] = MappingProxyType(
    {
        "contraction": KnownError(1.2, 0.36),
        "convolution": KnownError(1.4, 0.21),
        "depthwise": KnownError(1.37, 0.30),
        "elementwise": KnownError(1.21, 0.23),
        "normalization": KnownError(1.17, 0.37),
        "pool": KnownError(1.58, 0.37),
        "winograd": KnownError(1.33, 0.11),
    }
)
"""On a Zen 4, one thread: of 4 to 22 workloads a family the candidates that the model likes best, against their
recorded readings alone."""
MODEL_SPREAD = 0.15
"""What whole models scatter by in addition: machines, hours, and the places of code and arrays in a process."""


def known_error(family: str) -> KnownError:
    """The error of a family."""
    return FAMILIES.get(family, OTHERS)


def of_sum(parts: Iterable[tuple[str, float, float]]) -> KnownError:
    """The error of a sum of latencies, each with the workload that it is of, and its spread.

    Errors of the same workload are equal, and those of different ones independent.
    """
    errors: dict[str, float] = {}
    total = 0.0
    for workload, value, spread in parts:
        errors[workload] = errors.get(workload, 0.0) + value * spread
        total += value
    scatter = math.hypot(*errors.values()) / total if total else 0.0
    return KnownError(1.0, math.hypot(scatter, MODEL_SPREAD))


__all__ = ["FAMILIES", "MODEL_SPREAD", "NORMAL_95", "OTHERS", "KnownError", "known_error", "of_sum"]
