"""A mean with the interval that holds it: what is said of every number that was read from a sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean and the interval that holds it with some confidence, :data:`CONFIDENCE` unless another is asked for."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: NDArray[np.float64], confidence: float = CONFIDENCE) -> ConfidenceInterval:
        """Return the mean of independent values with its bootstrap interval (BCa, Efron 1987)."""
        from scipy.stats import bootstrap

        mean = float(values.mean())
        if len(values) < 2 or np.ptp(values) == 0:
            return ConfidenceInterval(mean, mean, mean)
        found = bootstrap((values,), np.mean, confidence_level=confidence, rng=np.random.default_rng(0))
        return ConfidenceInterval(mean, *map(float, found.confidence_interval))

    def map(self, function: Callable[[float], float]) -> ConfidenceInterval:
        """Return the interval of a monotonically increasing function of the value."""
        return ConfidenceInterval(*(float(function(value)) for value in (self.mean, self.low, self.high)))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


def around(value: float, spread: float) -> tuple[float, float]:
    """Return the 95 % interval of a value whose logarithm is off by so much: its standard deviation, or
    root mean square.

    >>> [round(end, 2) for end in around(1.0, 0.22)]
    [0.65, 1.54]
    """
    factor = math.exp(_NORMAL_95 * spread)
    return value / factor, value * factor


__all__ = ["CONFIDENCE", "ConfidenceInterval", "around"]
