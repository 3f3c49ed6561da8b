"""Candidates of all workloads are read together, inside the model: a version of it has one candidate of each.

What a dispatch takes depends on its neighbours and on what they leave in the caches, so that a reading alone says
little about it. Versions take turns with the untuned one in one process, and a run of a version reads a candidate of
every workload at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.database.records import Reading
from autotune.tuning.compare import EVERY, Options, Profile, Version, WholeModel
from autotune.tuning.measure.interface import Built
from autotune.tuning.sites import Sites
from autotune.tuning.turns import Rounds

ROUNDS = Rounds(3, processes=1, turn_ns=15e6, every=EVERY)
"""For candidates of which most are worse than the default; those that are not are read again."""

Candidates = Mapping[str, Sequence[Built]]
"""Built candidates by workload key."""


@dataclass(frozen=True)
class Inside:
    """Reads candidates inside a model."""

    sites: Sites
    model: WholeModel

    @property
    def most(self) -> int:
        """How many candidates of a workload are read at once."""
        return self.model.most - 1

    def read(self, candidates: Candidates, late: Callable[[], bool]) -> dict[str, list[Reading]]:
        """What candidates took, by workload key; nothing of those for which there was no time, or that failed."""
        found: dict[str, list[Reading]] = {}
        for options in self._options():
            uses = self.sites.uses(options)
            here = {key: built for key, built in candidates.items() if key in uses and key not in found}
            if here and not late():
                found |= self._read(options, here, late)
        return found

    def _options(self) -> list[Options]:
        """The options in use, and as long as there are such, the next ones that may be faster."""
        used = {key: ranking.chosen for key, ranking in self.model.rankings().items()}
        rivals = {
            site.workload.key: [o for o in self.sites.open_options(site) if o != used.get(site.workload.key)]
            for site in self.sites.several
        }
        most = max(map(len, rivals.values()), default=0)
        others = [{key: found[n] for key, found in rivals.items() if n < len(found)} for n in range(most)]
        return [used, *({**used, **other} for other in others)]

    def _read(
        self, options: Options, candidates: Candidates, late: Callable[[], bool]
    ) -> dict[str, list[Reading]]:
        """The candidates of workloads that a model with these options executes."""
        count = max(map(len, candidates.values()))
        versions = [
            Version(options, {key: built[n] for key, built in candidates.items() if n < len(built)})
            for n in range(count)
        ]
        default, *profiles = self.model.read([Version(options, {}), *versions], ROUNDS, late)
        if default is None:
            return {}
        return {
            key: [
                _reading(key, one, default, profile)
                for one, profile in zip(built, profiles, strict=False)
                if profile is not None
            ]
            for key, built in candidates.items()
        }


def _reading(workload: str, built: Built, default: Profile, profile: Profile) -> Reading:
    mine, others = profile.series(workload), default.series(workload)
    ratio = float(np.median(mine / others))
    return Reading(built.trace_key, ratio, len(mine), float(np.median(others)))


__all__ = ["ROUNDS", "Candidates", "Inside"]
