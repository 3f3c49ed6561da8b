"""Time of the kernels before the main one: packing, padding, producers that are stored whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers


class Passes(NamedTuple):
    """Seconds [n] of the passes, and kernels [n] that they and the main one are."""

    seconds: Numbers
    kernels: Numbers


def passes(nest: LoopNest, machine: Machine) -> Passes:
    """Return the passes: each takes as long as its bytes do on the way from where they are."""
    seconds, kernels = np.zeros(len(nest)), np.ones(len(nest))
    for one in nest.passes:
        touched = one.read + one.written
        write_cost = np.where(touched > machine.l3, machine.memory_write_cost, machine.write_cost)
        moved = one.read + write_cost * one.written
        # What another worker has written comes through the cache that they share.
        near = (touched <= machine.l2) & (machine.threads == 1 or not one.shared)
        rate = np.where(near, machine.l2_bytes_per_cycle, machine.l3_bytes_per_cycle)
        rate = np.where(touched > machine.l3, machine.memory_bytes_per_cycle, rate)
        seconds = seconds + moved / rate / machine.hertz / machine.threads
        kernels = kernels + (moved > 0)
    return Passes(seconds, kernels)


__all__ = ["Passes", "passes"]
