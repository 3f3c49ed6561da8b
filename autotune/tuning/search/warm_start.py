"""The start of a search: schedules of the nearest workloads, as they are in the space that is searched.

The nearest are the workload itself on compatible targets (other threads, cores, caches), then workloads of the same
structure in other sizes, then those of the same kind. A schedule for other instructions is never one of them
(:func:`autotune.database.near.compatible`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from autotune.compiler.tiers import carried
from autotune.database.records import Key, Run, WorkloadRow
from autotune.schedule.knob import Config, config_to_json

if TYPE_CHECKING:
    from typing import Protocol

    from autotune.database.near import Neighbour
    from autotune.target import Target
    from search_spaces.space import Space

    class NearStore(Protocol):
        """The store in which near workloads are looked up; the database is one."""

        def near(
            self, workload: WorkloadRow, target: Target, space_key: str, *, with_kin: bool
        ) -> list[Neighbour]:
            """Return the near matches of a key, the nearest first."""

        def leaders(self, key: Key, count: int) -> list[tuple[Run, float]]:
            """Return the runs of a key that were fastest inside models, with their latencies over the default's."""

    class Known(Protocol):
        """The record of earlier proposals; a search is one."""

        def __contains__(self, config: Config) -> bool:
            """Return whether a configuration was."""


TRIALS = 4
"""So many trials of a workload are of what was found elsewhere, at most."""
FASTER = 0.97
"""The share of the default's latency there above which a schedule is not tried."""
_SOURCES, _RUNS = 4, 8
"""So many of the nearest workloads that have something faster are drawn on, and so many runs of each."""
_SEARCHED = 16
"""Of a workload with fewer runs that worked it is too early to say what is fast."""


def proposals(
    space: Space, default: Config, store: NearStore, known: Known = (), most: int = TRIALS
) -> list[Config]:
    """Return the legal configurations of a space, at most so many, what promises most first; none that is ``known``.

    Promised is the ratio to the default that was read there, times what the analytic model predicts of the two here.
    """
    from cost_models import analytic

    promised: dict[str, tuple[float, Config]] = {}
    for run, ratio in _found(space, store):
        config = carried(space, run.config, default)
        if config is not None and config != default:
            text = config_to_json(config)
            promised[text] = min(promised.get(text, (ratio, config)), (ratio, config), key=lambda one: one[0])
    if not promised:
        return []
    ratios, configs = zip(*promised.values(), strict=True)
    predicted = analytic.predict(space, [*configs, default])
    order = np.argsort(np.asarray(ratios) * predicted[:-1], kind="stable")
    return [configs[row] for row in order if configs[row] not in known][:most]


def _found(space: Space, store: NearStore) -> Iterator[tuple[Run, float]]:
    """Yield the runs that were faster than the default for the nearest workloads, with their ratios."""
    asked = WorkloadRow.of(space.workload)
    sources = 0
    for source in store.near(asked, space.target, space.key, with_kin=True):
        if source.runs < _SEARCHED:
            continue
        runs = [found for found in store.leaders(source.key, _RUNS) if found[1] <= FASTER]
        yield from runs
        sources += bool(runs)
        if sources == _SOURCES:
            return


__all__ = ["FASTER", "TRIALS", "proposals"]
