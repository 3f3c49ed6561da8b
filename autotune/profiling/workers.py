"""The work of a device's workers in recorded runs, by dispatch and by worker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout
from autotune.runtime.recording import StepRecording, spent

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepCounters:
    """One step's runs: ns of each dispatch [runs, dispatches], and mean counters of a run [dispatches, workers].

    A worker is busy from where it begins a command to where it finds no more tiles of it.
    """

    taken_ns: Numbers
    busy_ns: Numbers
    tiles: Numbers
    stolen: Numbers
    shares: tuple[float, ...] = ()
    """The part of a dispatch's tiles that each worker began with, where that is known."""

    @property
    def workers(self) -> int:
        """Return the number of workers of the device."""
        return int(self.busy_ns.shape[1])


def counters(step: StepRecording) -> StepCounters | None:
    """Return the counters of a step; None where nothing but its beginning and end is known."""
    events, image = step.events, step.image
    if events is None or image is None:
        return None
    runs, dispatches, workers = len(events), len(image.dispatches), events.shape[2]
    of = np.asarray(step.dispatch_of, np.intp)
    taken = np.zeros((runs, dispatches))
    for row, rows in zip(taken, events, strict=True):
        np.add.at(row, of, spent(rows))
    tiles = events[..., layout.TILES_RUN]
    busy = np.where(tiles > 0, events[..., layout.BUSY], 0)

    def means(values: NDArray[np.int64]) -> Numbers:
        found = np.zeros((dispatches, workers))
        np.add.at(found, of, values.mean(axis=0))
        return found

    return StepCounters(
        taken, means(busy), means(tiles), means(events[..., layout.TILES_STOLEN]), step.shares
    )


__all__ = ["StepCounters", "counters"]
