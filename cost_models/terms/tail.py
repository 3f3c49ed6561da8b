"""Time of what a candidate does outside of its reduction: epilogues, stores, staged producers."""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers


def tail(nest: LoopNest, machine: Machine) -> Numbers:
    """Return seconds [n] on one core."""
    if nest.tail_operations is None:
        return np.zeros(len(nest))
    cycles = nest.tail_operations / machine.vector_ports + machine.resume_cycles * nest.resumed
    return np.asarray(cycles / machine.hertz)


__all__ = ["tail"]
