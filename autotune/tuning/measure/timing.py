"""How long to time a candidate: little when it is clearly slower, more when it may win."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.database.records import Latency

Sample = Callable[[int], NDArray[Any]]
"""Runs a candidate some number of times; gives nanoseconds for each."""

_ROUNDS = ((3, 0.0, 1.5), (60, 15e6, 1.15), (200, 40e6, 1.0))
"""Most repeats, nanoseconds to fill, and how much slower than the incumbent ends it after that."""
_PATIENCE = 3
"""Rounds more for a disturbed candidate."""
_QUIET = 1.4
"""Median over minimum of undisturbed samples is below this."""


def statistics(samples: NDArray[Any]) -> Latency:
    """Number, minimum, median and interquartile range of times in ns."""
    low, median, high = np.percentile(samples, (25, 50, 75))
    return Latency(len(samples), float(samples.min()), float(median), float(high - low))


def time_candidate(sample: Sample, incumbent_ns: float) -> Latency:
    """Time one candidate that was warmed up, with sequential stopping against the incumbent.

    Disturbed samples (the median far above the minimum: other processes had the cores) neither stop
    it early nor end it: a few more rounds look for a quiet moment.
    """
    samples = sample(1)
    for most, fill_ns, factor in _ROUNDS:
        samples = _more(sample, samples, most, fill_ns)
        if samples.min() > factor * incumbent_ns and not _disturbed(samples):
            return statistics(samples)
    for _ in range(_PATIENCE):
        if not _disturbed(samples):
            break
        samples = _more(sample, samples, *_ROUNDS[-1][:2])
    return statistics(samples)


def _more(sample: Sample, samples: NDArray[Any], most: int, fill_ns: float) -> NDArray[Any]:
    repeats = int(np.clip(fill_ns / max(float(samples.min()), 1.0), 2, most))
    return np.concatenate([samples, sample(repeats)])


def _disturbed(samples: NDArray[Any]) -> bool:
    return bool(np.median(samples) > _QUIET * samples.min())


__all__ = ["Sample", "statistics", "time_candidate"]
