"""The speed-up of a whole model by a change: an interleaved measurement of two versions, in one fresh
process after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.database.records import SAME_CODE, Latency, Ratio
from autotune.suggest import counted
from autotune.tuning.compare.paired import Readings, across_processes
from autotune.tuning.measure.accuracy import in_words
from autotune.tuning.measure.timing import statistics
from autotune.tuning.measure.turns import Rounds, Turns
from autotune.tuning.report.units import nanoseconds

if TYPE_CHECKING:
    from autotune.runtime.image import ModuleImage

PROCESSES = 9
"""A process is one reading of the gain: where its arrays and code lie is drawn once in each."""
LEAST = 6
"""An interval needs so many."""
PATIENCE_S = 30.0
"""After so many seconds the least number is enough."""
_ROUNDS = Rounds(most=5, least=5, processes=1)
"""Of each process: their median passes over what disturbs single ones."""


@dataclass(frozen=True)
class Gain:
    """Latencies of a model before and after a change, over all processes, and their ratio with its interval.

    ``error`` is that of the changed model from end to end, where it was asked for. ``load``: the processors that other
    processes took meanwhile, in the mean.
    """

    before: Latency
    after: Latency
    ratio: Ratio
    processes: int
    error: float | None = None
    load: float = 0.0

    def __str__(self) -> str:
        """Return a line such as ``4.84 ms untuned, 4.55 ms tuned (medians of 9 processes): 1.06× (1.04× to 1.08×)``."""
        before, after = nanoseconds(self.before.median_ns), nanoseconds(self.after.median_ns)
        exact = "" if self.error is None else f"; {in_words(self.error)}"
        if self.ratio == SAME_CODE:
            return f"{before}, {self.ratio}{exact}"
        many = counted(self.processes, "process")
        few = "" if self.ratio.interval else f", which takes {LEAST} processes"
        return f"{before} untuned, {after} tuned (medians of {many}): {self.ratio}{few}{exact}"

    def to_json(self) -> dict[str, Any]:
        """Return the ratio's values, and latencies in ns."""
        return {
            **self.ratio.to_json(),
            "before": asdict(self.before),
            "after": asdict(self.after),
            "processes": self.processes,
            "error": self.error,
            "load": self.load,
        }


def gain_of(
    before: ModuleImage,
    after: ModuleImage,
    seed: int,
    out_of_time: Callable[[], bool],
    processes: int = PROCESSES,
    patience_s: float = PATIENCE_S,
) -> Gain | None:
    """Measure two versions interleaved, in up to ``processes`` fresh processes; None without time, or if a version
    fails.

    After ``patience_s`` no more than the least number of processes is read. The ratio has no interval where too few
    were. Two versions of the same machine code are one: it is read in one process.
    """
    begin = time.monotonic()
    same = before.same_code(after)
    most = 1 if same else processes
    pairs: list[Sequence[Readings]] = []
    loads = list[float]()
    with Turns(seed) as turns:
        turns.start(min(most, LEAST))
        for image in [before] if same else [before, after]:
            turns.add(image)
        while len(pairs) < most and not out_of_time():
            if len(pairs) >= LEAST and time.monotonic() - begin > patience_s:
                break
            if len(pairs) == LEAST:
                turns.start(most - LEAST)
            read = turns.time(_ROUNDS, out_of_time)
            if any(readings is None for readings in read):
                break
            loads.append(turns.load)
            pairs.append([readings for readings in read if readings is not None])
    if not pairs:
        return None
    first, last = (statistics(np.concatenate([pair[side].ravel() for pair in pairs])) for side in (0, -1))
    ratio = SAME_CODE if same else across_processes([(pair[0], pair[1]) for pair in pairs])
    return Gain(first, last, ratio, len(pairs), load=fmean(loads))


__all__ = ["LEAST", "PROCESSES", "Gain", "gain_of"]
