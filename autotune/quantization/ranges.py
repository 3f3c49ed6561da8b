"""Ranges of activations: what is seen of a tensor in several runs, and which part of it eight bits shall span."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from autotune.graph.ir import Array

Method: TypeAlias = Literal["minmax", "percentile", "mse"]
METHODS: tuple[Method, ...] = get_args(Method)
LEVELS = 255
_BINS = 2048
_SHRINKS = np.linspace(1.0, 0.3, 71)


@dataclass
class Histogram:
    """A histogram of a tensor's values, between the least and the greatest that were seen."""

    low: float
    high: float
    counts: Array = field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def add(self, values: Array) -> None:
        """Count more values."""
        self.counts += np.histogram(values, _BINS, (self.low, max(self.high, self.low + 1e-30)))[0]

    @property
    def centres(self) -> Array:
        """The middle of each bin."""
        return self.low + (np.arange(_BINS) + 0.5) * ((self.high - self.low) / _BINS)


@dataclass(frozen=True)
class QuantizedRange:
    """The real numbers that eight bits span, 0 among them."""

    low: float
    high: float

    def hull(self, other: QuantizedRange) -> QuantizedRange:
        """Return the smallest range that has both in it."""
        return QuantizedRange(min(self.low, other.low), max(self.high, other.high))

    @property
    def steps(self) -> tuple[np.float32, np.uint8]:
        """Scale and zero point of uint8.

        >>> QuantizedRange(0.0, 2.55).steps
        (np.float32(0.01), np.uint8(0))
        """
        if self.high <= self.low:  # nothing but 0 was seen
            return np.float32(1), np.uint8(0)
        scale = np.float32(max((self.high - self.low) / LEVELS, 1e-30))
        return scale, np.uint8(np.clip(np.rint(-self.low / scale), 0, LEVELS))


def chosen(seen: Histogram, method: Method, percentile: float) -> QuantizedRange:
    """Return the range that a method chooses; "percentile" leaves out what is beyond ``percentile`` at either end.

    "mse" tries shares of what was seen and takes that of the smallest mean square of the error, by rounding and by
    clipping.
    """
    whole = QuantizedRange(min(seen.low, 0.0), max(seen.high, 0.0))
    total = int(seen.counts.sum())
    if method == "minmax" or not total or seen.high <= seen.low:
        return whole
    if method == "percentile":
        shares = np.cumsum(seen.counts) / total
        first = int(np.searchsorted(shares, 1 - percentile / 100, side="right"))
        last = int(np.searchsorted(shares, percentile / 100))
        width = (seen.high - seen.low) / _BINS
        return QuantizedRange(min(seen.low + first * width, 0.0), max(seen.low + (last + 1) * width, 0.0))
    tried = [QuantizedRange(whole.low * share, whole.high * share) for share in _SHRINKS]
    return min(tried, key=lambda each: _error(seen, each))


def _error(seen: Histogram, found: QuantizedRange) -> float:
    """Return the mean square of the error, where errors by rounding are spread evenly over a step."""
    scale = (found.high - found.low) / LEVELS
    beyond = seen.centres - np.clip(seen.centres, found.low, found.high)
    squares = np.where(beyond == 0, scale * scale / 12, beyond * beyond)
    return float((squares * seen.counts).sum() / seen.counts.sum())


__all__ = ["METHODS", "Histogram", "Method", "QuantizedRange", "chosen"]
