"""Time that lines take longer which are evicted from the first cache too early, as too many lie in one set."""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from cost_models.terms.prefetch import hidden
from cost_models.terms.traffic import fitting
from search_spaces.nest import CACHE_LINE, Here, LoopNest, Numbers


def conflicts(nest: LoopNest, machine: Machine) -> Numbers:
    """Return seconds [n] on one core: a share of the cycles of each line, all where twice as many rows
    as a set has ways."""
    walks, which = nest.walks
    here, cycles = Here(walks, fitting(walks, machine.l1), np.arange(len(walks))), np.zeros(len(walks))
    for access, found in zip(walks.accesses, walks.touched, strict=True):
        excess = np.clip(found.in_one_set / machine.l1_ways - 1.0, 0.0, 1.0)
        if not excess.any():
            continue
        excess = excess * (1.0 - hidden(access, machine))
        lines = found.moved(here) * found.entries(here) / CACHE_LINE
        cycles = cycles + machine.conflict_cycles * excess * lines
    return np.asarray(np.where(walks.working_sets[0] > machine.l1, cycles, 0.0)[which] / machine.hertz)


__all__ = ["conflicts"]
