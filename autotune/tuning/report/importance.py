"""The importance of knobs: how much of the spread of measured latencies each of them explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class KnobImportance:
    """``share`` of the variance of log latencies is between the values of a knob; ``best`` is the value with the least
    geometric mean, over ``runs`` runs, and ``values`` counts those that were tried."""

    knob: str
    share: float
    best: str
    runs: int
    values: int


def importances(runs: Sequence[tuple[float, Mapping[str, object]]]) -> list[KnobImportance]:
    """Return the knobs of runs, given by latency and configuration, the most important first; without those of which
    one value was tried.

    The share is omega squared, which unlike eta squared is not larger for knobs of more values: a knob that does
    nothing has 0 (Hays, Statistics for Psychologists, 1963). Each knob is judged alone, so that shares of knobs that
    were varied together overlap.

    >>> runs = [(2.0 if tile == 4 else 1.0, {"tile": tile, "order": order}) for tile in (4, 8, 4, 8) for order in "ab"]
    >>> [(each.knob, round(each.share, 2), each.best, each.values) for each in importances(runs)]
    [('tile', 1.0, '8', 2), ('order', 0.0, 'a', 2)]
    """
    logs = np.log([latency for latency, _ in runs])
    names = dict.fromkeys(name for _, config in runs for name in config)
    found = [_importance(name, logs, [str(config.get(name, "-")) for _, config in runs]) for name in names]
    return sorted((each for each in found if each.values > 1), key=lambda each: -each.share)


def _importance(knob: str, logs: NDArray[np.float64], values: Sequence[str]) -> KnobImportance:
    number = {value: at for at, value in enumerate(dict.fromkeys(values))}
    column = np.asarray([number[value] for value in values])
    counts = np.bincount(column)
    means = np.bincount(column, logs) / counts
    best = int(means.argmin())
    between = float((counts * (means - logs.mean()) ** 2).sum())
    total = float(((logs - logs.mean()) ** 2).sum())
    free = len(logs) - len(counts)
    within = (total - between) / free if free > 0 else total  # without repetitions nothing is known to matter
    share = (between - (len(counts) - 1) * within) / (total + within) if total > 0 else 0.0
    return KnobImportance(knob, max(0.0, share), [*number][best], int(counts[best]), len(counts))


__all__ = ["KnobImportance", "importances"]
