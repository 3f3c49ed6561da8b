"""Recordings of runs: the time of each step on its device, and of every worker for every command."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout
from autotune.runtime.image import ModuleImage
from autotune.target import Target


@dataclass(frozen=True, eq=False)
class StepRecording:
    """Runs of one step of a model: an image on a device, or a transfer, which has none and
    moves ``moved_bytes``.

    ``begin_ns`` and ``end_ns`` [runs] are of ``time.monotonic_ns``. ``events`` are event rows
    [runs, commands, workers, EVENT_SLOTS] (:mod:`autotune.runtime.cpu.layout`), with the dispatch of each command in
    ``dispatch_of``; None of a device that does not tell. One without ``known_workers`` tells when kernels ran, but not
    who ran them: its rows are of one worker. ``shares`` are the parts of a command's tiles that
    the workers began with at last. ``target`` is the device with as many threads as it has workers.
    """

    label: str
    device: str
    target: Target | None
    image: ModuleImage | None
    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    moved_bytes: int = 0
    dispatch_of: tuple[int, ...] = ()
    events: NDArray[np.int64] | None = None
    known_workers: bool = True
    shares: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Recording:
    """Runs of a model that followed each other: ns of each [runs], and its steps in the order of the program."""

    name: str
    walls_ns: NDArray[np.int64]
    steps: tuple[StepRecording, ...]

    @property
    def runs(self) -> int:
        """Return the number of runs."""
        return len(self.walls_ns)


def spent(events: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return nanoseconds [commands] of a run's event rows [commands, workers, EVENT_SLOTS].

    Each is from the last tile of the command before (or the beginning) to its own last tile. Commands that ran beside
    each other, or by turns as they are repeated, share the time of all of them, each by how long workers were busy with
    it.
    """
    if not len(events):
        return np.zeros(0, np.int64)
    ran = events[:, :, layout.TILES_RUN] > 0
    begins = np.where(ran, events[:, :, layout.BEGIN], np.iinfo(np.int64).max).min(axis=1)
    # A worker may have run a command before all that another one was at: those from the first of these on.
    soonest = np.minimum.accumulate(begins[::-1])[::-1]
    busy = np.where(ran, events[:, :, layout.BUSY], 0).sum(axis=1)
    ends = boundaries(events)
    first = np.flatnonzero([True, *(soonest[1:] >= ends[1:-1])])
    together = np.repeat(np.arange(len(first)), np.diff([*first, len(events)]))
    walls, busy = np.diff(ends[[*first, len(events)]])[together], np.maximum(busy, 1)
    return np.asarray(walls * busy // np.bincount(together, busy)[together], np.int64)


def boundaries(events: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the begin of a run's first command and the end of each [commands + 1], ns; at least one command."""
    ends = np.where(events[:, :, layout.TILES_RUN] > 0, events[:, :, layout.END], 0).max(axis=1)
    # Workers may have run all tiles of the first command before the caller, off its core, took a look at it.
    begins = events[0, :, layout.BEGIN]
    begin = begins[begins > 0].min()
    return np.concatenate([[begin], np.maximum.accumulate(np.maximum(ends, begin))])


__all__ = ["Recording", "StepRecording", "boundaries", "spent"]
