"""Candidates of all workloads are read together, inside the model: a version of it has one candidate of each.

What a dispatch takes depends on its neighbours and on what they leave in the caches, so that a reading alone says
little about it. Versions are interleaved with the untuned one in one process, and a run of a version times a
candidate of every workload at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from autotune.database.records import Reading
from autotune.tuning.compare.interleaved import EVERY
from autotune.tuning.compare.sites import Sites
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Code, Options, Profile, Version, Watch, WholeModel

ROUNDS = Rounds(3, processes=1, turn_ns=15e6, every=EVERY, part=True)
"""For candidates of which most are worse than the default; those that are not are read again."""

Concurrently = Callable[[Sequence[Callable[[], None]]], None]
"""Does several things, and returns when all are done."""


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    """Do one after the other."""
    for work in works:
        work()


Candidates = Mapping[str, Sequence[Built]]
"""Built candidates by workload key."""


@dataclass(frozen=True)
class Found:
    """The latencies of candidates, and the reasons of those that end their process by trace key, by workload key."""

    readings: dict[str, list[Reading]] = field(default_factory=dict)
    crashed: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class InModelReader:
    """Reads candidates inside a model."""

    sites: Sites
    model: WholeModel
    concurrently: Concurrently = one_by_one
    """Does what does not wait for each other."""
    together: Callable[[], int] = lambda: 1 << 30
    """Returns the most versions in a process, if there is memory for them."""

    @property
    def most(self) -> int:
        """Return the number of candidates of a workload that are measured at once."""
        return self.model.most - 1

    def read(self, candidates: Candidates, late: Callable[[], bool]) -> Found:
        """Measure candidates, and find those that crash; nothing of those for which there was no time.

        A version that ends its process is read again in halves, until it is known which of its candidates does: the
        others have their readings. A candidate alone in its version has crashed when that ends its process again.
        """
        found = Found()
        waiting = self._groups(candidates)
        while waiting:
            halves = list[_Group]()
            self.concurrently(
                [partial(self._measure, groups, late, found, halves) for groups in self._batches(waiting)]
            )
            waiting = halves
        return found

    def _measure(
        self, groups: Sequence[_Group], late: Callable[[], bool], found: Found, halves: list[_Group]
    ) -> None:
        """Measure groups in one process, and add what is to be measured again in halves; nothing if it is late."""
        if late():
            return
        reasons: dict[int, str] = {}
        for first, group, default, profiles in self._read(groups, late, reasons):
            for key, reading in group.readings(default, profiles):
                found.readings.setdefault(key, []).append(reading)
            dead = [] if late() else [n for n, profile in enumerate(profiles) if profile is None]
            halves += [half for number in dead for half in group.halves(number)]
            for number in dead:
                for key, trace in group.crashes(number):
                    why = reasons.get(first + 1 + number, "")
                    found.crashed.setdefault(key, {})[trace] = why

    def options(self, wanted: Iterable[str] = ()) -> list[Options]:
        """Return the options in use, and more as long as ``wanted`` workloads are not executed by any of them."""
        used: Options = {key: ranking.chosen for key, ranking in self.model.rankings().items()}
        found, left = [used], set(wanted) - self.sites.uses(used).keys()
        while left:
            chosen = {
                site.workload.key: option
                for site in self.sites.several
                for option in reversed(site.options)
                if any(region.key in left for region in option.regions)
            }
            if not chosen:
                break
            found.append({**used, **chosen})
            left -= self.sites.uses(found[-1]).keys()
        return found

    def _groups(self, candidates: Candidates) -> list[_Group]:
        """Return candidates by the first of the model's options that execute their workloads."""
        groups, left = list[_Group](), dict(candidates)
        for options in self.options(candidates):
            uses = self.sites.uses(options)
            here = {key: left.pop(key) for key in candidates if key in left and key in uses}
            if here:
                groups.append(_Group(options, _transposed(here), self._defaults(uses)))
        return groups

    def _defaults(self, workloads: Iterable[str]) -> Code:
        """Return the code of default schedules, as far as it was built."""
        tasks = [self.sites.task_of[key] for key in workloads if key in self.sites.task_of]
        return {task.workload.key: task.default_code for task in tasks if task.default_code}

    def _batches(self, groups: Sequence[_Group]) -> list[list[_Group]]:
        """Return those that are read in one process, as far as there is memory."""
        batches: list[list[_Group]] = []
        most = min(self.model.most, max(2, self.together()))
        for group in (part for one in groups for part in one.parts(most - 1)):
            if batches and sum(len(g.versions) for g in (*batches[-1], group)) <= most:
                batches[-1].append(group)
            else:
                batches.append([group])
        return batches

    def _read(
        self, groups: Sequence[_Group], late: Callable[[], bool], reasons: dict[int, str]
    ) -> Iterator[tuple[int, _Group, Profile, list[Profile | None]]]:
        """Yield for each group the number of its first version, and the times of that one, of the defaults, and
        of the others, in one process; ``reasons`` gets why versions ended it, by their numbers."""
        versions = [v for group in groups for v in group.versions]
        read = self.model.read(versions, ROUNDS, late, Watch(failed=reasons.__setitem__))
        first = 0
        for group in groups:
            default, *profiles = read[first : first + len(group.versions)]
            if default is not None:
                yield first, group, default, profiles
            first += len(group.versions)


@dataclass(frozen=True)
class _Group:
    """Versions of a model with the same options; ``again`` after one died."""

    options: Options
    codes: Sequence[Code]
    defaults: Code
    again: bool = False

    @cached_property
    def versions(self) -> list[Version]:
        """The one without candidates, then the others."""
        return [Version(self.options, {**self.defaults, **code}) for code in ({}, *self.codes)]

    def parts(self, most: int) -> list[_Group]:
        """Return groups of at most so many of its versions, beside the one without candidates."""
        starts = range(0, len(self.codes), most)
        return [replace(self, codes=self.codes[first : first + most]) for first in starts]

    def halves(self, number: int) -> list[_Group]:
        """Return the candidates of this version of half of the workloads, and of the others; none if it is known
        which one ends the process."""
        if self.crashes(number):
            return []
        mine = self.codes[number]
        keys = list(mine)
        parts = [part for part in (keys[: len(keys) // 2], keys[len(keys) // 2 :]) if part]
        return [
            _Group(self.options, [{key: mine[key] for key in part}], self.defaults, again=True)
            for part in parts
        ]

    def crashes(self, number: int) -> list[tuple[str, str]]:
        """Return the workload and the trace of the candidate that ended the process of the version with this number,
        where it was the only one and not for the first time."""
        mine = self.codes[number]
        return [(key, one.trace_key) for key, one in mine.items()] if self.again and len(mine) == 1 else []

    def readings(self, default: Profile, profiles: Sequence[Profile | None]) -> Iterator[tuple[str, Reading]]:
        """Yield the latencies of candidates, with their workload keys."""
        for code, profile in zip(self.codes, profiles, strict=False):
            if profile is not None:
                for key, built in code.items():
                    yield key, _reading(key, built, default, profile)


def _transposed(candidates: Candidates) -> list[Code]:
    """Return one candidate of each workload, then the next of each, and so on."""
    count = max(map(len, candidates.values()), default=0)
    return [{key: found[n] for key, found in candidates.items() if n < len(found)} for n in range(count)]


def _reading(workload: str, built: Built, default: Profile, profile: Profile) -> Reading:
    mine, others = profile.series(workload), default.series(workload)
    ratio = float(np.median(mine / others))
    default_ns = float(np.median(others))
    return Reading(built.trace_key, ratio, len(mine), default_ns, load=profile.load, host=profile.host)


__all__ = ["ROUNDS", "Candidates", "Concurrently", "Found", "InModelReader", "one_by_one"]
