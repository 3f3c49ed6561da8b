"""Errors of the analytic model's seconds against measured ones, by family of search spaces.

The model ranks candidates of one space, for which a common factor does not matter. Where its seconds are shown or
added up, they are divided by the ``scale`` of the family, and ``spread`` gives their interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from cost_models import calibrated
from cost_models.interval import around
from cost_models.microarchitectures import CORES

if TYPE_CHECKING:
    from autotune.target import Target


class KnownError(NamedTuple):
    """The geometric mean of predicted over measured latency, and the standard deviation of its logarithm."""

    scale: float
    spread: float

    def interval(self, value: float) -> tuple[float, float]:
        """Return 95 % interval of a value that was predicted with such an error."""
        return around(value, self.spread)


OTHERS = KnownError(1.3, 0.4)
"""Of families that are not listed."""
FAMILIES: Mapping[str, KnownError] = MappingProxyType(
    {
        "contraction": KnownError(1.43, 0.16),
        "convolution": KnownError(1.46, 0.14),
        "depthwise": KnownError(1.50, 0.27),
        "elementwise": KnownError(1.23, 0.25),
        "normalization": KnownError(1.17, 0.37),
        "pool": KnownError(1.58, 0.37),
        "reduction": KnownError(1.41, 0.30),
        "softmax": KnownError(1.44, 0.56),
        "winograd": KnownError(1.62, 0.33),
    }
)
"""On a Zen 4: the candidates that the model likes best, against their readings alone. Families of which five workloads
or more are recorded in results/runs (two threads) have what results/predictions-recorded.md finds, the others
what earlier recordings gave (one thread)."""
MACHINE = KnownError(1.0, 0.15)
"""The additional error of whole models: machines, hours, and the places of code and arrays in a process."""
LEVEL = KnownError(1.44, 0.6)
"""The same where all that is known of the processor is a level such as x86-64-v3. Code for it on a Zen 4 takes 1 / 1.44
of what is predicted, after the scale of its family, with a spread of 0.36 over 55 workloads
(`python -m results.bench predictions --from results/runs/avx2`); of other processors less is known."""


def known_error(family: str) -> KnownError:
    """Return the error of a family."""
    return FAMILIES.get(family, OTHERS)


def of_machine(target: Target) -> KnownError:
    """Return the error that all predictions for a target have in common."""
    return MACHINE if target.cpu in CORES or calibrated.find(target) is not None else LEVEL


def of_sum(parts: Iterable[tuple[str, float, float]], common: float) -> float:
    """Return the spread of a sum of latencies, each with the workload that it is of, and its spread, beside what
    they have in common.

    Errors of the same workload are equal, and those of different ones independent.
    """
    errors: dict[str, float] = {}
    total = 0.0
    for workload, value, spread in parts:
        errors[workload] = errors.get(workload, 0.0) + value * spread
        total += value
    scatter = math.hypot(*errors.values()) / total if total else 0.0
    return math.hypot(scatter, common)


__all__ = ["FAMILIES", "LEVEL", "MACHINE", "OTHERS", "KnownError", "known_error", "of_machine", "of_sum"]
