"""Origins of a dispatch's data within a model: time that it takes longer than in isolation.

Alone, a dispatch finds again what it touched a run before, as far as that fits a cache. In a model others run in
between. What they touch since a piece of memory was last used is its reuse distance (Mattson et al., IBM Systems
Journal 1970), which says how far away it is: results of the dispatch before are warm, weights were last read a run ago.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cost_models.machine import Machine
from cost_models.terms import overlapped
from cost_models.terms.traffic import evicted


@dataclass(frozen=True)
class TouchedBytes:
    """Bytes of each piece of memory that a dispatch reads and writes, by name."""

    reads: Mapping[str, int]
    writes: Mapping[str, int]

    @property
    def all(self) -> dict[str, int]:
        """Both; of what is read and written the larger part."""
        found = dict(self.reads)
        for name, nbytes in self.writes.items():
            found[name] = max(nbytes, found.get(name, 0))
        return found


class Distant(NamedTuple):
    """Bytes that a dispatch reads and finds in the last cache and in memory, beyond those that it does alone."""

    last_cache: float
    memory: float


def distant(model: Sequence[TouchedBytes], machine: Machine) -> list[Distant]:
    """Return for each dispatch of a model, in the order they run, what is further away than when it runs alone,
    again and again."""
    recent: dict[str, int] = {}
    found: list[Distant] = []
    for again in (False, True):  # the caches are as the run before left them
        for step in model:
            if again:
                found.append(_of(step, recent, machine))
            for name, nbytes in step.all.items():
                recent[name] = max(recent.pop(name, 0), nbytes)
    return found


def _of(step: TouchedBytes, recent: Mapping[str, int], machine: Machine) -> Distant:
    own = float(sum(step.all.values()))
    names = [*recent][::-1]
    read = np.asarray([step.reads.get(name, 0) for name in names], np.float64)
    since = np.cumsum([float(recent[name]) for name in names])
    near, far = machine.l2_whole * machine.threads, machine.l3_whole
    missed, from_memory = (
        float(read @ (evicted(capacity, np.maximum(since, own)) - evicted(capacity, own)))
        for capacity in (near, far)
    )
    return Distant(missed - from_memory, from_memory)


def in_place(seconds: float, moved: Distant, machine: Machine) -> float:
    """Return seconds in a model of what takes so many alone."""
    near = moved.last_cache / (machine.l3_bytes_per_cycle * machine.threads) * machine.l3_exposed
    far = moved.memory / min(machine.core_stream * machine.threads, machine.all_streams)
    return float(overlapped(seconds + near / machine.hertz, far / machine.hertz, machine))


__all__ = ["Distant", "TouchedBytes", "distant", "in_place"]
