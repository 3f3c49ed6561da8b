"""The confirm step: winners are read beside the default inside the whole model before they are declared.

A search reads each candidate alone, with its operands in the caches, and then takes the smallest of many
noisy numbers. What a dispatch takes in use depends on its neighbours and what they leave in the caches. So
versions of the whole model take turns (everything by default, everything by the best candidates, by the
second best, ...), and each workload is decided by its own dispatches' share of these runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from autotune.compiler.decision import alternative_key
from autotune.database import Database, Miss
from autotune.database.records import ContestRow, Latency, Rival, Run
from autotune.passes.alternatives import Alternative
from autotune.tuning.lineup import Readings
from autotune.tuning.measure.interface import Built, Measurer
from autotune.tuning.measure.timing import statistics
from autotune.tuning.objective import Fork, Objective
from autotune.tuning.sheet import MARGIN, Sheet, choose, dispatches_of, playing
from autotune.tuning.task import Task

TOP = 4
"""How many of the fastest runs are compared with the default."""
ROUNDS = 12
Code = Mapping[str, Built]
"""Built code by workload key; what is not in it gets its default schedule."""


@dataclass(frozen=True)
class Version:
    """One version of the model: with the alternatives that the database ``decided`` or those of an untuned
    model, and the schedules to use."""

    decided: bool
    code: Code


class Surroundings(Protocol):
    """The model in which schedules are used."""

    name: str
    nbytes: int
    """Of its constants."""

    def dispatches(self, *, decided: bool) -> list[tuple[str, str]]:
        """Name and workload key of each dispatch, in order."""

    def read(
        self, versions: Sequence[Version], rounds: int, out_of_time: Callable[[], bool]
    ) -> list[Readings | None]:
        """Latencies [rounds, dispatches] in ns of versions that take turns; None for one that failed.

        The dispatches are those that :meth:`dispatches` told last.
        """

    def time(self, tuned: Code, out_of_time: Callable[[], bool]) -> tuple[Latency, Latency] | None:
        """The whole model untuned, and with the alternatives and schedules used now, taking turns; None without
        time for it."""


@dataclass(frozen=True)
class Confirmed:
    """What a confirmation found: workloads with a faster schedule, those that keep their default, and
    workloads where the untuned model's algorithm came back."""

    faster: int = 0
    kept: int = 0
    returned: int = 0

    def __add__(self, other: Confirmed) -> Confirmed:
        return Confirmed(self.faster + other.faster, self.kept + other.kept, self.returned + other.returned)

    def __str__(self) -> str:
        again = f", {self.returned} went back to the untuned algorithm" if self.returned else ""
        return f"{self.faster} workloads faster inside the model, {self.kept} keep the default{again}"


@dataclass(frozen=True)
class _Contender:
    """A task, its default and the runs that may replace it, fastest first reading first."""

    task: Task
    default: Run
    rivals: tuple[Run, ...]
    incumbent: Run

    @property
    def is_news(self) -> bool:
        """Whether some rival was never read inside a model."""
        return any(run.confirmed_ns is None for run in self.rivals)

    def run_of(self, version: int) -> Run:
        """What it plays in a version: 0 is the default, then a rival each, then what is used today."""
        if version == 0:
            return self.default
        if self.is_news and version <= len(self.rivals):
            return self.rivals[version - 1]
        return self.incumbent


@dataclass
class Confirmation:
    """Everything that confirming needs; :meth:`run` does it."""

    objective: Objective
    database: Database
    measurer: Measurer
    surroundings: Surroundings
    job: str
    out_of_time: Callable[[], bool]
    say: Callable[[str], None] = lambda text: None
    _tasks: dict[str, Task] = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = {task.workload.key: task for task in self.objective.tasks}

    def run(self) -> Confirmed:
        """Read and decide what was found since the last confirmation.

        Once more where an algorithm went back: its dispatches were not in the model before.
        """
        found = self._once()
        return found + self._once() if found.returned else found

    def _once(self) -> Confirmed:
        used = self.surroundings.dispatches(decided=True)
        contenders = self._contenders({key for _, key in used})
        forks = self._changed(used)
        news = [c for c in contenders if c.is_news]
        if self.out_of_time() or not (news or forks):
            return Confirmed()
        count = max([0, *(len(c.rivals) for c in news)]) or 1
        versions = self._versions(contenders, count)
        if forks:
            versions.append(Version(False, versions[0].code))
        self.say(
            f"reading {len(news)} workloads inside the model: the default and {count} candidates take "
            f"turns, up to {ROUNDS} rounds"
        )
        readings = self.surroundings.read(versions, ROUNDS, self.out_of_time)
        default = readings[0]
        if default is None:
            self.say("not confirmed: time is up, or the untuned model itself fails")
            return Confirmed()
        tuned = Sheet(used, [default, *readings[1 : count + 1]])
        winners = {c.task.workload.key: self._decide(c, tuned) for c in contenders}
        faster = sum(winners[c.task.workload.key] > 0 for c in news)
        untuned = readings[-1] if forks else None
        returned = 0
        if untuned is not None:
            plain = Sheet(self.surroundings.dispatches(decided=False), [untuned])
            returned = sum(self._goes_back(fork, plain, tuned, winners) for fork in forks)
        return Confirmed(faster, len(news) - faster, returned)

    def _contenders(self, keys: set[str]) -> list[_Contender]:
        """Those of the tasks in the model whose default ever worked: others have nothing to compare with."""
        tasks = [task for key, task in self._tasks.items() if key in keys]
        unknown = [task for task in tasks if not task.default_trace]
        for task, built in zip(
            unknown, self.measurer.build([task.candidate(task.default) for task in unknown]), strict=True
        ):
            task.keep_default(built)
        return [found for task in tasks if (found := self._contender(task)) is not None]

    def _contender(self, task: Task) -> _Contender | None:
        key = task.key
        known = self.database.records(workload=key.workload, target=key.target, space=key.space)
        default = next((run for run in known if run.trace_key == task.default_trace and run.latency), None)
        incumbent = self.database.best(key.workload, key.target, key.space)
        if default is None or isinstance(incumbent, Miss):
            return None
        top = [
            run
            for run in self.database.top(key, TOP + 1)
            if run.id != default.id and run.latency_ns < default.latency_ns
        ][:TOP]
        if incumbent.id not in {default.id, *(run.id for run in top)}:
            top = [*top[: TOP - 1], incumbent]
        return _Contender(task, default, tuple(top), incumbent)

    def _versions(self, contenders: Sequence[_Contender], count: int) -> list[Version]:
        """The default, then each place of the candidates; one that cannot be built any more leaves the
        default in its place."""
        parts = [(c, number) for number in range(count + 1) for c in contenders]
        built = iter(code_of([(c.task, c.run_of(number)) for c, number in parts], self.measurer))
        versions = [{c.task.workload.key: next(built) for c in contenders} for _ in range(count + 1)]
        default = versions[0]
        return [
            Version(True, {k: default[k] if b.failed else b for k, b in code.items()}) for code in versions
        ]

    def _decide(self, contender: _Contender, sheet: Sheet) -> int:
        """Choose, and store it if it is news; the number of the version that is used from now on."""
        key = contender.task.workload.key
        mine = [sheet.of_workload(version, key) for version in range(len(sheet.readings))]
        if not contender.is_news:
            used = contender.incumbent.id != contender.default.id
            return 1 if used and mine[1] is not None else 0
        mine = mine[: len(contender.rivals) + 1]
        winner = choose(mine)
        runs = (contender.default, *contender.rivals)
        rivals = [
            Rival(run, statistics(series), number == winner)
            for number, (run, series) in enumerate(zip(runs, mine, strict=True))
            if series is not None
        ]
        self.database.confirm(rivals, self.surroundings.name, self.job)
        return winner

    def _changed(self, used: Sequence[tuple[str, str]]) -> list[Fork]:
        """The forks for which the database decided otherwise than an untuned model does."""
        return [
            fork
            for fork in self.objective.forks
            if (a := playing(fork, used)) is not None and a.name != fork.default.name
        ]

    def _goes_back(self, fork: Fork, plain: Sheet, tuned: Sheet, winners: Mapping[str, int]) -> bool:
        """Whether the untuned model's alternative, by default, is as fast as the decided one: then it is used."""
        chosen = playing(fork, tuned.dispatches)
        if chosen is None:
            return False
        before = plain.together(dispatches_of(fork, fork.default), {})
        after = tuned.together(dispatches_of(fork, chosen), winners)
        if before is None or after is None or choose([before, after]) == 1:
            return False
        own = float(np.median(after)) / len(fork.names)
        self._send_back(fork, chosen, own, float(np.median(before / after)))
        return True

    def _send_back(self, fork: Fork, chosen: Alternative, own_ns: float, ratio: float) -> None:
        """Let the untuned alternative come first: a contest like the last, with its latency as the model has it.

        The others keep what they had. ``own_ns`` is the chosen alternative's latency inside the model, ``ratio``
        the untuned one's over it.
        """
        target = self._tasks[fork.workload.key].space.target
        rows = {row.name: row for row in self.database.contest(fork.workload.key, target.key)}
        known = rows.get(chosen.name)
        if known is not None and known.latency is not None:
            reference = known.latency.min_ns
        else:
            reference = own_ns
            inside = Latency(ROUNDS, own_ns, own_ns, 0.0)
            rows[chosen.name] = ContestRow(chosen.name, alternative_key(chosen, target), inside)
        ns = reference * min(ratio, 1.0 - MARGIN)
        others = [row.latency.min_ns for row in rows.values() if row.latency is not None]
        ns = min(ns, (1.0 - MARGIN) * min(others))
        first = ContestRow(
            fork.default.name,
            alternative_key(fork.default, target),
            Latency(ROUNDS, ns, ns, 0.0),
            message=f"as fast as {chosen.name} inside {self.surroundings.name}",
        )
        rows[fork.default.name] = first
        self.database.record_contest(
            fork.workload.key, target.key, [replace(row, created=0.0) for row in rows.values()], self.job
        )


def code_of(runs: Sequence[tuple[Task, Run]], measurer: Measurer) -> list[Built]:
    """The code of runs of some tasks: kept from when they were measured, else built again, all together."""
    missing = {
        (task.workload.key, run.trace_key): task.candidate(json.loads(run.config_json))
        for task, run in runs
        if run.trace_key not in task.built
    }
    again = dict(zip(missing, measurer.build(list(missing.values())), strict=True))
    return [task.built.get(run.trace_key) or again[task.workload.key, run.trace_key] for task, run in runs]


__all__ = [
    "ROUNDS",
    "TOP",
    "Confirmation",
    "Confirmed",
    "Surroundings",
    "Version",
    "code_of",
]
