"""Time that instructions of a body wait for which do not fit the caches of decoded instructions."""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers


def fetch(nest: LoopNest, ports: Numbers, machine: Machine) -> Numbers:
    """Return seconds [n] on one core: a share of the time in the ``ports`` that grows with the body, to
    three times it."""
    pressure = np.clip(nest.body.instructions / machine.instruction_cache - 1.0, 0.0, 2.0)
    return np.asarray(ports * machine.fetch_share * pressure)


__all__ = ["fetch"]
