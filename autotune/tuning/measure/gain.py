"""The speed-up of a whole model by a change: an interleaved measurement of two versions, in one fresh
process after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from autotune.database.records import SAME_CODE
from autotune.tuning.compare.paired import Readings, across_processes
from autotune.tuning.measure.timing import statistics
from autotune.tuning.measure.turns import Rounds, Turns
from autotune.tuning.report.gain import LEAST, Gain

if TYPE_CHECKING:
    from autotune.runtime.image import ModuleImage

PROCESSES = 9
"""A process is one reading of the gain: where its arrays and code lie is drawn once in each."""
PATIENCE_S = 30.0
"""After so many seconds the least number is enough."""
_ROUNDS = Rounds(most=5, least=5, processes=1)
"""Of each process: their median passes over what disturbs single ones."""


def gain_of(
    before: ModuleImage,
    after: ModuleImage,
    seed: int,
    out_of_time: Callable[[], bool],
    processes: int = PROCESSES,
    patience_s: float = PATIENCE_S,
    turns_of: Callable[[int], Turns] = Turns,
) -> Gain | None:
    """Measure two versions interleaved, in up to ``processes`` fresh processes; None without time, or if a version
    fails.

    ``turns_of`` makes the interleaved measurement by its seed. After ``patience_s`` no more than the least number of
    processes is read. The ratio has no interval where too few were. Two versions of the same machine code are one: it
    is read in one process.
    """
    begin = time.monotonic()
    same = before.same_code(after)
    most = 1 if same else processes
    pairs: list[Sequence[Readings]] = []
    loads = list[float]()
    with turns_of(seed) as turns:
        turns.start(min(most, LEAST))
        for image in [before] if same else [before, after]:
            turns.add(image)
        while len(pairs) < most and not out_of_time():
            if len(pairs) >= LEAST and time.monotonic() - begin > patience_s:
                break
            if len(pairs) == LEAST:
                turns.start(most - LEAST)
            count = min(turns.at_once, most - len(pairs))
            rounds = replace(_ROUNDS, most=count * _ROUNDS.most, least=count * _ROUNDS.least, processes=count)
            known = [ns for ns in turns.time(rounds, out_of_time) if ns is not None]
            if len(known) < (1 if same else 2):
                break
            loads.append(turns.load)
            pairs += zip(*(np.split(ns, len(ns) // _ROUNDS.most) for ns in known), strict=True)
    if not pairs:
        return None
    first, last = (statistics(np.concatenate([pair[side].ravel() for pair in pairs])) for side in (0, -1))
    ratio = SAME_CODE if same else across_processes([(pair[0], pair[1]) for pair in pairs])
    return Gain(first, last, ratio, len(pairs), load=fmean(loads))


__all__ = ["LEAST", "PROCESSES", "Gain", "gain_of"]
