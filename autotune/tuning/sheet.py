"""What versions of a model took when they took turns, and who is faster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.passes.alternatives import Alternative, alternatives_of
from autotune.tuning.lineup import Readings
from autotune.tuning.objective import Fork

MARGIN = 0.02
"""A candidate must be this much faster, by the median and by the minimum; else the default stays."""

ROUNDS_WON = 0.8

Series = NDArray[np.float64]
"""Nanoseconds, one a round."""


@dataclass(frozen=True)
class Sheet:
    """Readings of versions that have the same dispatches, given by name and workload key."""

    dispatches: Sequence[tuple[str, str]]
    readings: Sequence[Readings | None]

    def of_workload(self, version: int, key: str) -> Series | None:
        """One dispatch of a workload: the mean over those that have it."""
        columns = [number for number, (_, found) in enumerate(self.dispatches) if found == key]
        found = self.readings[version]
        return None if found is None else np.asarray(found[:, columns].mean(axis=1))

    def together(self, wanted: set[tuple[str, str]], versions: Mapping[str, int]) -> Series | None:
        """Some dispatches together, each in the version that ``versions`` has for its workload (else 0)."""
        total = np.zeros(1)
        for number, (name, key) in enumerate(self.dispatches):
            if (name, key) in wanted:
                found = self.readings[versions.get(key, 0)]
                if found is None:
                    return None
                total = total + found[:, number]
        return total


def choose(series: Sequence[Series | None]) -> int:
    """Which of several series, read taking turns, is the fastest; 0, the default, wins ties.

    A candidate counts only if it is faster than the default by more than :data:`MARGIN` both in the median
    of the rounds' ratios (what a slow moment of the machine does to both cancels) and in the minimum, and if it
    is faster in at least :data:`ROUNDS_WON` of the rounds: on a busy machine the other two can be luck.
    """
    default = series[0]
    if default is None:
        return 0
    scores = {0: 1.0}
    for number, mine in enumerate(series[1:], start=1):
        if mine is None:
            continue
        median, least = float(np.median(mine / default)), float(mine.min() / default.min())
        if max(median, least) < 1.0 - MARGIN and np.mean(mine < default) >= ROUNDS_WON:
            scores[number] = median * least
    return min(scores, key=scores.__getitem__)


def dispatches_of(fork: Fork, alternative: Alternative) -> set[tuple[str, str]]:
    """Name and workload key of the dispatches that compute a fork by an alternative."""
    if alternative.steps is None:
        return {(name, fork.workload.key) for name in fork.names}
    steps = [(step.name, step.workload.key) for step in alternative.steps.dispatches]
    return {(f"{name}/{step}", key) for name in fork.names for step, key in steps}


def playing(fork: Fork, dispatches: Iterable[tuple[str, str]]) -> Alternative | None:
    """The alternative by which a model with these dispatches computes a fork."""
    found = set(dispatches)
    return next((a for a in alternatives_of(fork.workload) if dispatches_of(fork, a) <= found), None)


__all__ = ["MARGIN", "ROUNDS_WON", "Series", "Sheet", "choose", "dispatches_of", "playing"]
