"""Bytes between the caches: one roof a level of the roofline (Williams et al., CACM 2009).

What a level of the loop nest touches is loaded once where it fits a cache, by the rule of layer conditions
(Stengel et al., ICS 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cost_models.machine import Machine
from cost_models.terms.prefetch import long_run
from search_spaces.nest import Here, LoopNest, Numbers


class CacheTraffic(NamedTuple):
    """Bytes [n] moved into the first, the second and the last cache from the next level outwards."""

    l1: Numbers
    l2: Numbers
    l3: Numbers


def traffic(nest: LoopNest, machine: Machine) -> CacheTraffic:
    """Return the bytes of all accesses and of scratch memory; beyond the first cache, as many of a long
    run as they cost."""
    walks, which = nest.walks
    second = machine.l2_of_tiles if np.any(walks.body.tiles) else machine.l2
    capacities = (machine.l1, second, machine.l3)
    scratch = (_scratch(nest, capacity, machine) for capacity in capacities)
    found = zip(_into(walks, capacities, machine), scratch, strict=True)
    return CacheTraffic(*(moved[which] + stored for moved, stored in found))


def _into(nest: LoopNest, capacities: Sequence[float], machine: Machine) -> Numbers:
    """Return bytes [caches, n] moved into each of the caches from the next one.

    The outermost level whose working set fits is loaded once an entry; an access that the next loop outside
    does not move stays, because its reuse distance is that same working set. Bytes that prefetchers do not bring
    count as those of a long run which take as long, as far as this is lost on the way.
    """
    here = Here(nest, np.stack([fitting(nest, capacity) for capacity in capacities]), np.arange(len(nest)))
    lost = np.asarray([[0.0], [machine.l3_lost], [1.0]])
    write = np.asarray([[machine.write_cost], [machine.write_cost], [machine.memory_write_cost]])
    total, streamed = np.zeros(here.level.shape), np.zeros(here.level.shape)
    for access, found in zip(nest.accesses, nest.touched, strict=True):
        moved = found.moved(here)
        moved = moved + lost * (long_run(access, found, here, moved, machine) - moved)
        moved = moved * found.entries(here)
        through = moved * (write if access.write else 1.0)
        if access.streamed is not None:
            streamed = streamed + np.where(access.streamed, moved, 0.0)
            through = np.where(access.streamed, 0.0, through)
        total = total + through
    # What fits whole is there already: written by the dispatch before, or read by the last run.
    whole = np.asarray([[machine.l1], [machine.l2_whole], [machine.l3_whole]])
    return np.asarray(total * evicted(whole, nest.working_sets[0]) + streamed)


def evicted(capacity: Numbers | float, nbytes: Numbers | float) -> Numbers:
    """Return the share of data that a cache has lost after so many bytes: none while they fit, all of
    three times as many.

    Of somewhat more than fits a part is found again, as lines are not evicted in the order of their use.
    """
    return np.clip(1.5 - 1.5 * capacity / np.maximum(nbytes, 1.0), 0.0, 1.0)


def fitting(nest: LoopNest, capacity: float) -> NDArray[np.intp]:
    """Return the outermost level of each candidate whose working set fits a cache, else the body."""
    sets = nest.working_sets[: nest.body_level + 1]
    return np.where(sets[-1] > capacity, len(sets) - 1, np.argmax(sets <= capacity, axis=0))


def _scratch(nest: LoopNest, capacity: float, machine: Machine) -> Numbers:
    """Return bytes moved because a block's stored producers do not stay in a cache of ``capacity``.

    The scratch buffer is written, read and overwritten by the next block.
    """
    if nest.scratch is None:
        return np.zeros(len(nest))
    size, fills = nest.scratch
    return np.where(size > machine.scratch_share * capacity, (1.0 + machine.write_cost) * size * fills, 0.0)


__all__ = ["CacheTraffic", "evicted", "fitting", "traffic"]
