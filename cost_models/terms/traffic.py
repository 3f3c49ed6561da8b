"""Bytes between the caches: one roof a level of the roofline (Williams et al., CACM 2009).

What a level of the loop nest touches is loaded once where it fits a cache, by the rule of layer conditions
(Stengel et al., ICS 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cost_models.machine import Machine
from cost_models.terms.prefetch import long_run, scattering
from search_spaces.nest import Here, LoopNest, Numbers


class Traffic(NamedTuple):
    """Bytes [n] moved into the first, the second and the last cache from the next level outwards."""

    l1: Numbers
    l2: Numbers
    l3: Numbers


def traffic(nest: LoopNest, machine: Machine) -> Traffic:
    """The bytes of all accesses and of scratch memory; beyond the first cache, as many of a long run as they cost."""
    walks, which = nest.walks
    apart = [scattering(found, machine) for found in walks.touched]
    return Traffic(
        *(
            _into(walks, capacity, whole, machine, lost, apart)[which] + _scratch(nest, capacity, machine)
            for capacity, whole, lost in (
                (machine.l1, machine.l1, 0.0),
                (machine.l2, machine.l2_whole, machine.l3_lost),
                (machine.l3, machine.l3, 1.0),
            )
        )
    )


def _into(
    nest: LoopNest, capacity: float, whole: float, machine: Machine, lost: float, apart: Sequence[Numbers]
) -> Numbers:
    """Bytes moved into a cache of ``capacity`` from the next one.

    The outermost level whose working set fits is loaded once an entry; an access that the next loop outside
    does not move stays, because its reuse distance is that same working set. Bytes that prefetchers do not bring
    count as those of a long run which take as long, as far as this is ``lost`` on the way.
    """
    sets, here = nest.working_sets, fitting(nest, capacity)
    total, streamed = np.zeros(len(nest)), np.zeros(len(nest))
    for access, found, scattered in zip(nest.accesses, nest.touched, apart, strict=True):
        moved = found.moved(here)
        if lost:
            moved = moved + lost * (long_run(access, found, here, scattered, machine) - moved)
        moved = moved * found.entries(here)
        through = moved * (machine.write_cost if access.write else 1.0)
        if access.streamed is not None:
            streamed = streamed + np.where(access.streamed, moved, 0.0)
            through = np.where(access.streamed, 0.0, through)
        total = total + through
    # What fits whole is there already: written by the dispatch before, or read by the last run. Of somewhat more, a
    # part is found again, as lines are not evicted in the order of their use.
    missed = np.clip(1.5 - 1.5 * whole / np.maximum(sets[0], 1.0), 0.0, 1.0)
    return np.asarray(total * missed + streamed)


def fitting(nest: LoopNest, capacity: float) -> Here:
    """The outermost level of each candidate whose working set fits a cache, else the body."""
    sets = nest.working_sets[: nest.body_level + 1]
    level = np.where(sets[-1] > capacity, len(sets) - 1, np.argmax(sets <= capacity, axis=0))
    return Here(nest, level, np.arange(len(nest)))


def _scratch(nest: LoopNest, capacity: float, machine: Machine) -> Numbers:
    """Bytes moved because a block's stored producers do not stay in a cache of ``capacity``.

    The scratch buffer is written, read and overwritten by the next block.
    """
    if nest.scratch is None:
        return np.zeros(len(nest))
    size, fills = nest.scratch
    return np.where(size > machine.scratch_share * capacity, (1.0 + machine.write_cost) * size * fills, 0.0)


__all__ = ["Traffic", "fitting", "traffic"]
