"""The one test by which something is faster than something else: readings that took turns, compared in pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.database.records import Ratio

MARGIN = 0.02
"""The median ratio of a candidate that wins is below 1 by this much: less is not worth a change."""
ERROR_RATE = 0.05
"""How often, at most, a site changes although no candidate is faster."""
CONFIDENCE = 0.95

Series = NDArray[np.float64]
"""Nanoseconds, one a round."""


def ratio(candidate: Series, incumbent: Series) -> Ratio:
    """The median of the rounds' ratios, and an interval that holds the true one with :data:`CONFIDENCE`.

    What a slow moment of the machine does to both cancels in a ratio, and the median passes over the rounds in
    which it met only one. The interval is that of the sign test (order statistics): it takes nothing for granted
    of how readings are distributed, but that rounds are independent. It needs six rounds.
    """
    from scipy.stats import quantile_test

    ratios = candidate / incumbent
    low, high = quantile_test(ratios, q=1.0, p=0.5).confidence_interval(CONFIDENCE)
    known = np.isfinite(low) and np.isfinite(high)
    return Ratio(float(np.median(ratios)), (float(low), float(high)) if known else None)


def fastest(series: Sequence[Series | None]) -> int:
    """Which of several series, read taking turns, is the fastest; 0, the incumbent, unless one is surely faster.

    A candidate is, if the median of its ratios is below 1 - :data:`MARGIN` and the sign test rejects that the true
    one is 1 or more. Several candidates share the error rate (Bonferroni): where none is faster, the incumbent
    stays in at least 1 - :data:`ERROR_RATE` of all cases, if rounds are independent. Rounds of one process share
    where its arrays lie; that is what the margin, and reading again in a fresh process, are for.
    """
    from scipy.stats import binomtest

    incumbent = series[0]
    if incumbent is None:
        return 0
    level = ERROR_RATE / max(1, len(series) - 1)
    scores = {0: 1.0}
    for number, mine in enumerate(series[1:], start=1):
        if mine is None:
            continue
        wins = int(np.sum(mine < incumbent))
        median = float(np.median(mine / incumbent))
        if median < 1 - MARGIN and binomtest(wins, len(mine), alternative="greater").pvalue <= level:
            scores[number] = median
    return min(scores, key=scores.__getitem__)


def least_rounds(candidates: int) -> int:
    """With fewer rounds than these none of so many candidates can win."""
    return int(np.ceil(np.log2(max(1, candidates) / ERROR_RATE)))


__all__ = ["CONFIDENCE", "ERROR_RATE", "MARGIN", "Series", "fastest", "least_rounds", "ratio"]
