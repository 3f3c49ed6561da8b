"""The balance of a kernel's tiles among workers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers


class Sharing(NamedTuple):
    """Workers that have something to do [n], and the time of the busiest over the mean [n]."""

    workers: Numbers
    imbalance: Numbers


def sharing(nest: LoopNest, machine: Machine) -> Sharing:
    """Return the makespan of equal tiles in list order (Graham, 1969); the last tile of the slowest
    worker is waited for."""
    workers = np.minimum(nest.tiles, machine.threads)
    imbalance = np.ceil(nest.tiles / machine.threads) * workers / nest.tiles
    # Workers do not run at one speed: the last tile of the slowest is waited for.
    return Sharing(workers, imbalance + machine.jitter * (workers - 1) / nest.tiles)


__all__ = ["Sharing", "sharing"]
