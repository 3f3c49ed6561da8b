"""The duration of timing a candidate in isolation: little, unless it is clearly slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.database.records import Latency

Sample = Callable[[int], NDArray[Any]]
"""Runs a candidate some number of times; gives nanoseconds for each."""

_FEW, _MORE = (3, 1e6), (60, 15e6)
"""Most repeats and nanoseconds to fill: for a candidate that is not clearly slower than the default, and for others."""
SLOWER = 1.5
"""Up to so many times the default's latency a candidate is not clearly slower."""
_PATIENCE = 3
"""Rounds more for a disturbed candidate."""
_QUIET = 1.4
"""Median over minimum of undisturbed samples is below this."""


def statistics(samples: NDArray[Any]) -> Latency:
    """Return number, minimum, median and interquartile range of times in ns."""
    low, median, high = np.percentile(samples, (25, 50, 75))
    return Latency(len(samples), float(samples.min()), float(median), float(high - low))


def time_candidate(sample: Sample, default_ns: float) -> Latency:
    """Return the time one candidate that was warmed up, to see whether it is clearly slower than the default.

    Few samples are enough for one that is not: what it takes in use is measured in the model. More are taken of one
    that seems slower, and of the default itself (``default_ns`` is infinite): disturbed samples (the median far above
    the minimum: other processes had the cores) do not decide; a few more rounds look for a quiet moment.
    """
    samples = _more(sample, sample(1), *_FEW)
    if samples.min() <= SLOWER * default_ns < np.inf:
        return statistics(samples)
    samples = _more(sample, samples, *_MORE)
    for _ in range(_PATIENCE):
        if not _disturbed(samples) or samples.min() <= SLOWER * default_ns < np.inf:
            break
        samples = _more(sample, samples, *_MORE)
    return statistics(samples)


def _more(sample: Sample, samples: NDArray[Any], most: int, fill_ns: float) -> NDArray[Any]:
    repeats = int(np.clip(fill_ns / max(float(samples.min()), 1.0), 2, most))
    return np.concatenate([samples, sample(repeats)])


def _disturbed(samples: NDArray[Any]) -> bool:
    return bool(np.median(samples) > _QUIET * samples.min())


__all__ = ["Sample", "statistics", "time_candidate"]
