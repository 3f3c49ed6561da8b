"""Measurements of one ratio beside different loads, pooled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

SHIFT = 0.015
"""The standard deviation of what other work adds to the log of a ratio for each processor that it takes: it is the same
whenever there is as much of it, and does not average out. (results/other-work.md)"""


@dataclass(frozen=True)
class Pooled:
    """Measured logs of a ratio, pooled: sums over their variances.

    What other work adds to all that is measured beside it is an unknown for each processor that it takes. It is the
    second coefficient of a regression on the load, whose normal prior is integrated out (Gelman et al., chapter 14).
    """

    ones: float = 0.0
    loads: float = 0.0
    products_of_loads: float = 0.0
    values: float = 0.0
    products: float = 0.0
    squares: float = 0.0
    count: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float, variance: float, load: float = 0.0) -> Pooled:
        """Return all of it and one more value with this variance, measured beside this load."""
        return Pooled(
            self.ones + 1 / variance,
            self.loads + load / variance,
            self.products_of_loads + load * load / variance,
            self.values + value / variance,
            self.products + load * value / variance,
            self.squares + value * value / variance,
            self.count + 1,
            min(self.low, value),
            max(self.high, value),
        )

    @cached_property
    def weight(self) -> float:
        """The inverse of the mean's variance; 0 of nothing."""
        return max(0.0, self.ones - self.loads**2 / self._shifts)

    @property
    def mean(self) -> float:
        """The mean, between the values: the load does not extrapolate. 0 of nothing."""
        if not self.weight:
            return 0.0
        fitted = (self.values - self.loads * self.products / self._shifts) / self.weight
        return min(self.high, max(self.low, fitted))

    @property
    def misfit(self) -> float:
        """The sum of the squares of what is not explained, over the variances: of n values n - 1 is expected."""
        return max(0.0, self.squares - self.products**2 / self._shifts - self.weight * self.mean**2)

    def added(self, variance: float, load: float) -> float:
        """Return the variance of one more such value as far as it tells something new: beside a load little is."""
        loads, shifts = self.loads + load / variance, self._shifts + load * load / variance
        return 1 / max(1e-12, self.ones + 1 / variance - loads * loads / shifts - self.weight)

    @cached_property
    def _shifts(self) -> float:
        return self.products_of_loads + SHIFT**-2


NOTHING = Pooled()
"""Nothing measured."""

__all__ = ["NOTHING", "SHIFT", "Pooled"]
