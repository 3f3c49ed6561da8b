"""Time beside the work: starting kernels, handing out tiles, waking workers and waiting for them."""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers


def overhead(nest: LoopNest, kernels: Numbers, workers: Numbers, machine: Machine) -> Numbers:
    """Seconds [n] of ``kernels`` whose tiles ``workers`` share."""
    seconds = machine.kernel_seconds * kernels + machine.tile_seconds * nest.tiles / workers
    waiting = machine.fork_seconds + machine.barrier_seconds * (kernels - 1)
    return np.asarray(seconds + np.where(workers > 1, waiting, 0.0))


__all__ = ["overhead"]
