"""Time beside the work: starting kernels, handing out tiles, waking workers and waiting for them."""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers


def overhead(nest: LoopNest, kernels: Numbers, workers: Numbers, machine: Machine) -> Numbers:
    """Return seconds [n] of ``kernels`` whose tiles ``workers`` share."""
    waiting = machine.fork_seconds + machine.barrier_seconds * (kernels - 1)
    handing = machine.tile_seconds * nest.tiles / workers
    return np.asarray(machine.kernel_seconds * kernels + np.where(workers > 1, waiting + handing, 0.0))


__all__ = ["overhead"]
