"""The cost of scratch memory beside its traffic: no schedule is picked that takes more of it than its share.

A schedule that stores a whole input, or all patches of it, for each worker may be the fastest by a percent, and take
gigabytes for that. The limit is what the dispatch reads and writes, so that all scratch memory of a model is no larger
than the operands and results of one of its dispatches; what caches hold is free.
"""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers

SHARE = 1.0
"""Of the bytes that a dispatch reads and writes, what the scratch memory of all workers may take."""
_REFUSED = 1000.0
"""So many times the time is taken for what exceeds it: it is picked only where everything does."""


def most_scratch(machine: Machine, nbytes: float) -> float:
    """Return bytes of scratch memory that all workers together may take for a dispatch that reads and
    writes ``nbytes``."""
    return max(machine.threads * machine.l2, SHARE * nbytes)


def refusal(nest: LoopNest, machine: Machine, nbytes: float) -> Numbers:
    """Return the factor [n] by which times of candidates are multiplied; their dispatch reads and writes ``nbytes``."""
    if nest.scratch is None:
        return np.ones(len(nest))
    taken = np.broadcast_to(np.asarray(nest.scratch[0], np.float64) * machine.threads, len(nest))
    limit = most_scratch(machine, nbytes)
    return np.where(taken > limit, _REFUSED * taken / limit, 1.0)


__all__ = ["SHARE", "most_scratch", "refusal"]
