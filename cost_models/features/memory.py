"""Traffic through the caches of this machine, of the whole nest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cost_models.features.numbers import log
from cost_models.machine import Machine
from cost_models.terms import Terms
from cost_models.terms.traffic import fitting
from search_spaces.nest import LoopNest, Numbers

CACHES = ("l1", "l2", "l3")
_LEVELS = 4
_BY_CACHE = ("link_share", "log_traffic", "log_fill", "log_beyond", "fit_depth")

NAMES = (
    "log_bytes",
    "log_intensity",
    *(f"{what}_{cache}" for cache in CACHES for what in _BY_CACHE),
    *(f"log_set_{i}" for i in range(_LEVELS)),
)
"""``link_share``: the time of the bytes into a cache over the predicted; ``log_traffic``: those bytes an operation;
``log_fill``, ``log_beyond``: the largest working set that fits the cache and the next larger one, over its size;
``fit_depth``: how deep in the nest that is; ``log_set``: working sets over the first cache, at evenly spread levels."""


def memory(nest: LoopNest, machine: Machine, t: Terms) -> Mapping[str, Numbers | float]:
    """Return the features :data:`NAMES` [n]."""
    walks, which = nest.walks
    found = {name: column[which] for name, column in _working_sets(walks, machine).items()}
    whole, total = walks.working_sets[0][which], np.maximum(t.total, 1e-12)
    rates = (machine.l2_bytes_per_cycle, machine.l3_bytes_per_cycle, machine.memory_bytes_per_cycle)
    for cache, moved, rate in zip(CACHES, t.traffic, rates, strict=True):
        found[f"log_traffic_{cache}"] = log(moved / max(nest.flops, 1.0))
        found[f"link_share_{cache}"] = moved / rate / machine.hertz / t.workers / total
    found["log_bytes"] = log(whole)
    found["log_intensity"] = log(nest.flops / np.maximum(whole, 1.0))
    for i in range(_LEVELS):
        level = nest.level(np.rint(i * nest.depths / _LEVELS).astype(np.intp))
        found[f"log_set_{i}"] = log(walks.working_sets[level, which] / machine.l1)
    return found


def _working_sets(nest: LoopNest, machine: Machine) -> dict[str, Numbers]:
    """Return the fit of reused data in the caches."""
    every, sets, found = np.arange(len(nest)), nest.working_sets, {}
    numbers = np.arange(len(nest.loops))[:, None]
    # Those that do not repeat may be there for other candidates only.
    repeats = np.array([loop.extent > 1 for loop in nest.loops], np.bool_).reshape(len(nest.loops), len(nest))
    for cache in CACHES:
        capacity = getattr(machine, cache)
        level = fitting(nest, capacity)
        beyond = np.maximum(nest.enclosing[level, every], 0)
        found[f"log_fill_{cache}"] = log(sets[level, every] / capacity)
        found[f"log_beyond_{cache}"] = log(sets[beyond, every] / capacity)
        found[f"fit_depth_{cache}"] = (repeats & (numbers < level)).sum(axis=0) / np.maximum(
            repeats.sum(axis=0), 1
        )
    return found


__all__ = ["CACHES", "NAMES", "memory"]
