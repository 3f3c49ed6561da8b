"""Claims: ratios of interleaved measurements, compared in pairs, and their intervals.

What is used is decided elsewhere (:mod:`autotune.database.posterior`); what is said of the gain of a whole model is a
:class:`autotune.database.Ratio` made here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.database.records import Ratio

ERROR_RATE = 0.05
"""The error rate of what is said to be slower."""
CONFIDENCE = 0.95

Series = NDArray[np.float64]
"""Nanoseconds, one a round."""
Readings = NDArray[np.float64]
"""Nanoseconds, one row a round: of each dispatch, or of each run of the whole model."""


def ratio(candidate: Series, incumbent: Series, each: int = 1) -> Ratio:
    """Return the median of the processes' ratios, and an interval that holds the true one with :data:`CONFIDENCE`.

    What a slow moment of the machine does to both cancels in the ratio of a round, and the median over the ``each``
    rounds of a process passes over those in which it met only one. A process counts once: where code and arrays lie
    is drawn once for all of its rounds, so that more of them say no more about that. The interval is that of the
    sign test (order statistics): it takes nothing for granted of how readings are distributed, but that processes
    are independent. It needs six.
    """
    return _median(_by_process(candidate, incumbent, each))


def _by_process(candidate: Series, incumbent: Series, each: int) -> Series:
    """Return the median ratio of each process; the incumbent may have been read in more of them."""
    ratios = candidate / incumbent[: len(candidate)]
    return np.array([np.median(ratios[first : first + each]) for first in range(0, len(ratios), each)])


def at_the_speed_of(candidate: Series, incumbent: Series) -> Series:
    """Return what a candidate would have taken in each round if the machine had been as fast as it was in the median:
    its spread is that of the ratios."""
    beside = incumbent[: len(candidate)]
    return np.asarray(candidate / beside * np.median(beside))


def across_processes(pairs: Sequence[tuple[Readings, Readings]]) -> Ratio:
    """Return :func:`ratio` of two versions as a whole; ``pairs`` are [rounds, runs] of each process, the
    incumbent's first."""
    rounds = (np.median(after, axis=1) / np.median(before, axis=1) for before, after in pairs)
    return _median(np.array([np.median(ratios) for ratios in rounds]))


def total(parts: Sequence[tuple[float, Ratio | None]]) -> Ratio:
    """Return the ratio of a sum, of parts that took so many ns and have changed by a ratio, or not at all.

    Errors of the parts are taken to be independent: their shares of the interval add up in squares.

    >>> print(total([(50.0, Ratio(0.8, (0.7, 0.9))), (50.0, None)]))
    1.11× (1.05× to 1.18×)
    """
    whole = sum(ns for ns, _ in parts)
    changes = [(ns / whole, ratio) for ns, ratio in parts if ratio is not None and ratio.interval is not None]
    median = 1.0 - sum(share * (1.0 - ratio.median) for share, ratio in changes)
    ends = [
        [share * (end - r.median) for end in r.interval] for share, r in changes if r.interval is not None
    ]
    low, high = (float(np.sqrt(sum(end[side] ** 2 for end in ends))) for side in (0, 1))
    return Ratio(median, (median - low, median + high))


def geometric_mean(ratios: Sequence[Ratio | None]) -> Ratio:
    """Return the geometric mean of ratios, of which None stands for no change; errors are independent, as in
    :func:`total`.

    >>> print(geometric_mean([Ratio(0.8, (0.7, 0.9)), None]))
    1.12× (1.05× to 1.20×)
    """
    changes = [ratio for ratio in ratios if ratio is not None and ratio.interval is not None]
    if len(ratios) == len(changes) == 1:
        return changes[0]
    middle = sum(math.log(ratio.median) for ratio in changes) / len(ratios)
    ends = [[math.log(end / r.median) for end in r.interval] for r in changes if r.interval is not None]
    low, high = (math.sqrt(sum(end[side] ** 2 for end in ends)) / len(ratios) for side in (0, 1))
    return Ratio(math.exp(middle), (math.exp(middle - low), math.exp(middle + high)))


def _median(ratios: Series) -> Ratio:
    """Return the median of independent ratios and its interval, by order statistics; it needs six.

    The interval is that of ``scipy.stats.quantile_test``: from the ratio with the number ``rank``, counted from the
    least, to that with the same number counted from the largest.
    """
    count, ordered = len(ratios), np.sort(ratios)
    chance = (1 - CONFIDENCE) / 2
    rank = next(k for k in range(count + 1) if _at_most(k, count) >= chance)
    known = (float(ordered[rank - 1]), float(ordered[count - rank])) if rank else None
    return Ratio(float(np.median(ratios)), known)


def _at_most(successes: int, count: int) -> float:
    """Return the probability that so many heads, or fewer, are of ``count`` fair coins."""
    # Exact, and without scipy, whose import takes half a second of every start of a job.
    return float(sum(math.comb(count, heads) for heads in range(successes + 1)) / 2**count)


def slower(candidate: Series, incumbent: Series, each: int, by: float, asked: int) -> bool:
    """Return whether a candidate surely takes more than ``1 + by`` times what the incumbent takes.

    ``each`` rounds are of one process. By the one-sided sign test; ``asked`` questions share the error rate
    (Bonferroni): where nothing is so much slower, all answers are no in at least 1 - :data:`ERROR_RATE` of all cases.
    """
    ratios = _by_process(candidate, incumbent, each)
    return _at_most(int(np.sum(ratios <= 1 + by)), len(ratios)) <= ERROR_RATE / asked


def least_processes(candidates: int, losses: int = 0) -> int:
    """Return the least processes with which one of so many candidates can win that is slower in ``losses`` of them.

    >>> least_processes(2), least_processes(2, losses=1), least_processes(2, losses=2)
    (7, 10, 13)
    """
    level = ERROR_RATE / max(1, candidates)
    return next(number for number in itertools.count(losses + 1) if 2 * _at_most(losses, number) <= level)


__all__ = [
    "CONFIDENCE",
    "ERROR_RATE",
    "Readings",
    "Series",
    "across_processes",
    "at_the_speed_of",
    "geometric_mean",
    "least_processes",
    "ratio",
    "slower",
    "total",
]
