"""Candidates of all workloads are read together, inside the model: a version of it has one candidate of each.

What a dispatch takes depends on its neighbours and on what they leave in the caches, so that a reading alone says
little about it. Versions take turns with the untuned one in one process, and a run of a version reads a candidate of
every workload at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from autotune.database.records import Reading
from autotune.tuning.compare import EVERY, Code, Options, Profile, Version, WholeModel
from autotune.tuning.measure.interface import Built
from autotune.tuning.sites import Sites
from autotune.tuning.turns import Rounds

ROUNDS = Rounds(3, processes=1, turn_ns=15e6, every=EVERY, part=True)
"""For candidates of which most are worse than the default; those that are not are read again."""

Candidates = Mapping[str, Sequence[Built]]
"""Built candidates by workload key."""


@dataclass(frozen=True)
class InModelReader:
    """Reads candidates inside a model."""

    sites: Sites
    model: WholeModel

    @property
    def most(self) -> int:
        """How many candidates of a workload are read at once."""
        return self.model.most - 1

    def read(self, candidates: Candidates, late: Callable[[], bool]) -> dict[str, list[Reading]]:
        """What candidates took, by workload key; nothing of those for which there was no time, or that failed.

        A version that ends its process is read again in halves, until it is known which of its candidates does: the
        others have their readings.
        """
        found: dict[str, list[Reading]] = {}
        waiting = self._groups(candidates)
        while waiting:
            halves = list[_Group]()
            for groups in self._batches(waiting):
                if late():
                    return found
                for group, default, profiles in self._read(groups, late):
                    for key in group.candidates:
                        found.setdefault(key, []).extend(group.readings(key, default, profiles))
                    halves += [
                        h for n, profile in enumerate(profiles) if profile is None for h in group.halves(n)
                    ]
            waiting = halves
        return found

    def _groups(self, candidates: Candidates) -> list[_Group]:
        """Candidates by the first of the model's options that execute their workloads."""
        groups, left = list[_Group](), dict(candidates)
        for options in self._options():
            uses = self.sites.uses(options)
            here = {key: left.pop(key) for key in candidates if key in left and key in uses}
            if here:
                groups.append(_Group(options, here, self._defaults(uses)))
        return groups

    def _defaults(self, workloads: Iterable[str]) -> Code:
        """The code of default schedules, as far as it was built."""
        tasks = [self.sites.task_of[key] for key in workloads if key in self.sites.task_of]
        return {task.workload.key: task.default_code for task in tasks if task.default_code}

    def _batches(self, groups: Sequence[_Group]) -> list[list[_Group]]:
        """Those that are read in one process, as far as there is memory."""
        batches: list[list[_Group]] = []
        for group in groups:
            if batches and sum(len(g.versions) for g in (*batches[-1], group)) <= self.model.most:
                batches[-1].append(group)
            else:
                batches.append([group])
        return batches

    def _options(self) -> list[Options]:
        """The options in use, and as long as there are such, the next ones that may be faster."""
        used = {key: ranking.chosen for key, ranking in self.model.rankings().items()}
        alternatives = {
            site.workload.key: [o for o in self.sites.open_options(site) if o != used.get(site.workload.key)]
            for site in self.sites.several
        }
        most = max(map(len, alternatives.values()), default=0)
        others = [
            {key: found[n] for key, found in alternatives.items() if n < len(found)} for n in range(most)
        ]
        return [used, *({**used, **other} for other in others)]

    def _read(
        self, groups: Sequence[_Group], late: Callable[[], bool]
    ) -> Iterator[tuple[_Group, Profile, list[Profile | None]]]:
        """What the untuned model and the versions of each group took, in one process."""
        read = iter(self.model.read([v for group in groups for v in group.versions], ROUNDS, late))
        for group in groups:
            default, *profiles = islice(read, len(group.versions))
            if default is not None:
                yield group, default, profiles


@dataclass(frozen=True)
class _Group:
    """Candidates of workloads that a model with these options executes."""

    options: Options
    candidates: Candidates
    defaults: Code

    @cached_property
    def versions(self) -> list[Version]:
        """The untuned one, then one with the first candidate of each workload, and so on."""
        count = max(map(len, self.candidates.values()))
        codes = [{key: b[n] for key, b in self.candidates.items() if n < len(b)} for n in range(count)]
        return [Version(self.options, {**self.defaults, **code}) for code in ({}, *codes)]

    def halves(self, number: int) -> list[_Group]:
        """The candidates with this number of half of the workloads, and of the others; none if it is a single one."""
        mine = {key: [built[number]] for key, built in self.candidates.items() if number < len(built)}
        keys = list(mine)
        parts = (keys[: len(keys) // 2], keys[len(keys) // 2 :]) if len(keys) > 1 else ()
        return [_Group(self.options, {key: mine[key] for key in part}, self.defaults) for part in parts]

    def readings(self, workload: str, default: Profile, profiles: Sequence[Profile | None]) -> list[Reading]:
        """What the candidates of a workload took."""
        both = zip(self.candidates[workload], profiles, strict=False)
        return [_reading(workload, built, default, found) for built, found in both if found is not None]


def _reading(workload: str, built: Built, default: Profile, profile: Profile) -> Reading:
    mine, others = profile.series(workload), default.series(workload)
    ratio = float(np.median(mine / others))
    return Reading(built.trace_key, ratio, len(mine), float(np.median(others)))


__all__ = ["ROUNDS", "Candidates", "InModelReader"]
