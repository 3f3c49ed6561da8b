"""The analytic model's terms for a population, one file a term, and how they add up.

A roofline (Williams et al., CACM 2009) with one roof a cache level, after the ECM model's view of a core
(Stengel et al., ICS 2015): what the ports need and what each link between caches needs, the slowest winning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cost_models.machine import Machine
from cost_models.terms.conflicts import conflicts
from cost_models.terms.core import core
from cost_models.terms.fetch import fetch
from cost_models.terms.overhead import overhead
from cost_models.terms.passes import passes
from cost_models.terms.sharing import sharing
from cost_models.terms.tail import tail
from cost_models.terms.traffic import CacheTraffic, traffic
from search_spaces.nest import LoopNest, Numbers


@dataclass(frozen=True)
class Terms:
    """Arrays [n]: seconds on one core unless said otherwise; ``traffic`` are bytes."""

    ports: Numbers
    latency: Numbers
    spills: Numbers
    fetch: Numbers
    tail: Numbers
    conflicts: Numbers
    traffic: CacheTraffic
    imbalance: Numbers
    workers: Numbers
    passes: Numbers
    overhead: Numbers
    total: Numbers


def terms(nest: LoopNest, machine: Machine) -> Terms:
    """Return all terms and the predicted total in seconds for each of the n candidates."""
    inside, moved, shared, before = (
        core(nest, machine),
        traffic(nest, machine),
        sharing(nest, machine),
        passes(nest, machine),
    )
    fetching, outside = fetch(nest, inside.ports, machine), tail(nest, machine)
    beside = overhead(nest, before.kernels, shared.workers, machine)
    evicted = conflicts(nest, machine)
    busy = inside.ports + inside.latency + inside.spills + fetching + outside + evicted
    l2 = moved.l1 / machine.l2_bytes_per_cycle / machine.hertz
    l3 = moved.l2 / machine.l3_bytes_per_cycle / machine.hertz
    memory = moved.l3 / machine.memory_bytes_per_cycle / machine.hertz
    # Prefetching hides the nearer links behind arithmetic, most of the time and not for nothing.
    shown = np.where(np.asarray(nest.body.tiles) > 0, machine.tiles_exposed, machine.l3_exposed)
    private = overlapped(busy, l2, machine) + shown * l3
    alone = private / shared.workers * shared.imbalance
    return Terms(
        ports=inside.ports,
        latency=inside.latency,
        spills=inside.spills,
        fetch=fetching,
        tail=outside,
        conflicts=evicted,
        traffic=moved,
        imbalance=shared.imbalance,
        workers=shared.workers,
        passes=before.seconds,
        overhead=beside,
        total=overlapped(alone, memory, machine) + before.seconds + beside,
    )


def overlapped(one: Numbers | float, other: Numbers | float, machine: Machine) -> Numbers:
    """Return the time of two things that go on at once: the longer, and what it does not hide of the shorter."""
    return np.asarray(np.maximum(one, other) + machine.exposed * np.minimum(one, other))


__all__ = ["Terms", "overlapped", "terms"]
