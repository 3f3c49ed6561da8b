"""The compare step: candidates take turns with the incumbents inside the whole model before they are used.

A search reads each candidate alone, with its operands in the caches, and then takes the smallest of many
noisy numbers. What a dispatch takes in use depends on its neighbours and what they leave in the caches. So
versions of the whole model take turns: one with the incumbent at every site, one with the first candidate of each
site, one with the second, and so on. Each site is decided by its own dispatches' share of these runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from autotune.compiler.plan import OPTION, Ranking, option_key
from autotune.database import Database, Miss
from autotune.database.records import SAME_CODE, Comparison, Run
from autotune.errors import NoReferenceError
from autotune.passes.options import Option
from autotune.tuning.gain import Gain
from autotune.tuning.measure.interface import Built, BuiltOption, Measurer
from autotune.tuning.measure.timing import statistics
from autotune.tuning.paired import Readings, Series, fastest, least_processes, ratio
from autotune.tuning.sites import KEPT, LOSING, Site, Sites
from autotune.tuning.task import Task
from autotune.tuning.turns import Rounds

TOP = 2
"""How many runs are compared with the default: those that were fastest inside the model, each time they were read."""
ROUNDS = 3
"""In each process: what a process draws once, such as where arrays lie, takes several processes, not rounds."""
EVERY = 4
"""After so many others the first version has a turn again."""
SCHEDULE = "schedule"
"""The kind of site by which comparisons of the schedules of a workload are stored."""
Code = Mapping[str, Built]
"""Built code by workload key; what is not in it gets its default schedule."""
Options = Mapping[str, Option]
"""Options by workload key; what is not in it is computed directly."""


@dataclass(frozen=True)
class Version:
    """One version of the model: its options and its code."""

    options: Options
    code: Code


@dataclass(frozen=True)
class Profile:
    """What a version took: ``ns`` [rounds, dispatches], and the name and workload key of each dispatch."""

    dispatches: Sequence[tuple[str, str]]
    ns: Readings

    def series(self, workload: str, names: Sequence[str] = ()) -> Series:
        """Nanoseconds a round of a dispatch: the mean over those called ``names``, each with all of its steps, or
        over those that have the workload."""
        mine = [
            number
            for number, (name, key) in enumerate(self.dispatches)
            if (name.partition("/")[0] in names if names else key == workload)
        ]
        return np.asarray(self.ns[:, mine].sum(axis=1) / (len(names) or len(mine)))


class WholeModel(Protocol):
    """The model in which options and schedules are used."""

    name: str
    nbytes: int
    """Of its constants."""
    most: int
    """How many versions of it there is memory for at once."""

    def rankings(self) -> Mapping[str, Ranking]:
        """The options of workloads with several, by workload key: the first of each is what a compilation uses now."""

    def read(
        self, versions: Sequence[Version], rounds: Rounds, out_of_time: Callable[[], bool]
    ) -> list[Profile | None]:
        """Have versions take turns; what each of them took, None for one that failed."""

    def gain(self, untuned: Code, tuned: Code, out_of_time: Callable[[], bool]) -> Gain | None:
        """Time the whole model untuned, and with the options and schedules used now, in several fresh processes.

        None without time for it. ``untuned`` and ``tuned`` are code of defaults and of what is used, as far as built.
        """


@dataclass(frozen=True)
class _Candidate:
    """A candidate for a site: an option of its workload, or code for it. ``row`` is its row in the database."""

    row: Comparison
    option: Option | None = None
    code: Built | None = None


@dataclass(frozen=True)
class _Question:
    """Which candidate is the fastest at a site, the incumbent first; ``failed`` are those that are not to be used.

    ``kind`` is that of the site, ``names`` are its dispatches, or empty for all that have the workload. ``same`` are
    candidates whose machine code is the incumbent's: they take no turns.
    """

    kind: str
    task: Task
    names: tuple[str, ...]
    candidates: tuple[_Candidate, ...]
    failed: tuple[Comparison, ...] = ()
    same: tuple[Comparison, ...] = ()

    @property
    def workload(self) -> str:
        return self.task.workload.key

    def in_version(self, number: int) -> _Candidate:
        """The candidate with this number; the incumbent where there are fewer."""
        return self.candidates[number if number < len(self.candidates) else 0]


@dataclass
class Comparing:
    """Everything that comparing needs; :meth:`run` does it."""

    sites: Sites
    database: Database
    measurer: Measurer
    model: WholeModel
    job: str
    say: Callable[[str], None] = lambda text: None

    def run(self, options_late: Callable[[], bool], late: Callable[[], bool]) -> bool:
        """Compare what was found since the last time: schedules, then options by the best schedules known, and where
        another option won, its schedules; whether anything was decided.

        Options end when ``options_late`` says so, schedules when ``late`` does.
        """
        schedules = self._compare_schedules(late)
        if not self._compare_options(options_late):
            return schedules
        self._compare_schedules(late)
        return True

    def _compare_options(self, late: Callable[[], bool]) -> bool:
        """Compare whole options of workloads, each by the best schedules known."""
        open_options = [(site, self._open_options(site)) for site in self.sites.several]
        news = [(site, found) for site, found in open_options if self._is_news(site, found)]
        if late() or not news:
            return False
        used = self._options()
        asked = {region.key for _, found in news for option in found for region in option.regions}
        code = self._code(asked | self._uses(used))
        questions = []
        for site, found in news:
            if late():
                return False
            with suppress(NoReferenceError):  # no failure of the options: nothing is stored of them
                questions.append(self._question(site, found, code))
        questions = [q for q in questions if q.candidates and len(q.candidates) + len(q.failed) > 1]
        winners = self._read(questions, Version(used, code), late)
        if winners is None:
            return False
        changed = sum(winner > 0 for winner in winners)
        self.say(f"another algorithm is faster inside the model for {changed} of {len(winners)} workloads")
        return True

    def _open_options(self, site: Site) -> list[Option]:
        """The default, the plain one, and those that may be the fastest, as far as they work."""
        first = [site.default, *(option for option in site.options if option.plain)]
        found = dict.fromkeys([*first, *self.sites.open_options(site)])
        return [option for option in found if self.sites.latency(option) < float("inf")]

    def _is_news(self, site: Site, options: Sequence[Option]) -> bool:
        """Whether these were never compared, or one of their dispatches got faster since."""
        if len(options) < 2:
            return False
        target = self.sites.task_of[site.workload.key].space.target
        rows = {row.name: row for row in self.database.comparison(site.workload.key, target.key, OPTION)}
        for option in options:
            row = rows.get(option.name)
            if row is None or row.key != option_key(option, target):
                return True
            best = [self._best(self.sites.task_of[region.key]) for region in option.regions]
            if any(run is not None and run.created > row.created for run in best):
                return True
        return False

    def _question(self, site: Site, options: Sequence[Option], code: Code) -> _Question:
        """The options that are as exact as they declare."""
        task = self.sites.task_of[site.workload.key]
        candidates, failed = list[_Candidate](), list[Comparison]()
        target = task.space.target
        for option in options:
            row = Comparison(option.name, option_key(option, target))
            if option.steps is not None:
                payloads = {r.key: code[r.key].payload for r in option.regions if r.key in code}
                built = BuiltOption(task.workload.text, target.to_json(), task.seed, option.name, payloads)
                checked = self.measurer.check(built)
                row = replace(row, error=checked.error, message=checked.message)
            if row.message:
                failed.append(row)
            else:
                candidates.append(_Candidate(row, option=option))
        return _Question(OPTION, task, site.names, tuple(candidates), tuple(failed))

    def _compare_schedules(self, late: Callable[[], bool]) -> bool:
        """Compare the fastest schedules of each workload in use with its default."""
        options = self._options()
        uses = self._uses(options)
        runs = self._runs([self.sites.task_of[key] for key in sorted(uses)])
        if late() or not runs:
            return False
        built = iter(code_of([(task, run) for task, found in runs for run in found], self.measurer))
        questions = [_schedules(task, found, [next(built) for _ in found]) for task, found in runs]
        others = self._code(uses - {question.workload for question in questions})
        winners = self._read(questions, Version(options, others), late)
        if winners is None:
            return False
        faster = sum(winner > 0 for winner in winners)
        kept = len(winners) - faster
        self.say(f"{faster} workloads faster inside the model, {kept} keep the default")
        return True

    def _runs(self, tasks: Sequence[Task]) -> list[tuple[Task, list[Run]]]:
        """The default and the fastest runs of each task for which one of these was never read inside a model."""
        unknown = [task for task in tasks if not task.default_trace]
        built = self.measurer.build([task.candidate(task.default) for task in unknown])
        for task, default in zip(unknown, built, strict=True):
            task.keep_default(default)
        found = [(task, self._runs_of(task)) for task in tasks]
        return [(task, runs) for task, runs in found if any(run.confirmed_ns is None for run in runs[1:])]

    def _runs_of(self, task: Task) -> list[Run]:
        """The default, then what is faster or used, fastest first; nothing if the default never worked."""
        key = task.key
        known = self.database.records(workload=key.workload, target=key.target, space=key.space)
        default = next((run for run in known if run.trace_key == task.default_trace and run.latency), None)
        best = self._best(task)
        if default is None or best is None:
            return []
        by_trace = {run.trace_key: run for run in known}
        top = [by_trace[trace] for trace in task.leaders(TOP) if trace in by_trace]
        if best.id not in {default.id, *(run.id for run in top)}:
            top = [*top[: TOP - 1], best]
        return [default, *top]

    def _read(
        self, questions: Sequence[_Question], base: Version, late: Callable[[], bool]
    ) -> list[int] | None:
        """Have versions of the model take turns, and store the answers; for each question the number of the winner.

        All versions are ``base`` except for the candidates that are compared. None when there is no reading.
        """
        count = max((len(question.candidates) for question in questions), default=0)
        if not count:
            return None
        processes = least_processes(count - 1) if count > 1 else 1
        self.say(
            f"reading {len(questions)} workloads inside the model: the default and {count - 1} candidates take "
            f"turns in {processes} fresh processes"
        )
        most = ROUNDS * processes
        rounds = Rounds(most, most, processes, every=EVERY)
        profiles = self.model.read([_version(base, questions, n) for n in range(count)], rounds, late)
        if profiles[0] is None:
            self.say("not compared: time is up, or the untuned model itself fails")
            return None
        return [self._decide(question, profiles) for question in questions]

    def _decide(self, question: _Question, profiles: Sequence[Profile | None]) -> int:
        series = [
            None if profile is None else profile.series(question.workload, question.names)
            for profile in profiles[: len(question.candidates)]
        ]
        winner = fastest(series, ROUNDS)
        rows = list(question.failed)
        for number, (candidate, mine) in enumerate(zip(question.candidates, series, strict=True)):
            row = replace(candidate.row, won=number == winner)
            if mine is None:
                rows += (
                    [replace(row, message="its version of the model failed")]
                    if question.kind == OPTION
                    else []
                )
            else:
                beside = ratio(mine, series[0], ROUNDS) if number and series[0] is not None else None
                rows.append(replace(row, latency=statistics(mine), ratio=beside))
        if series[0] is not None:
            rows += [replace(row, latency=statistics(series[0]), ratio=SAME_CODE) for row in question.same]
        target = question.task.space.target.key
        self.database.compared(question.workload, target, question.kind, rows, self.model.name, self.job)
        return winner

    def _options(self) -> Options:
        return {key: ranking.chosen for key, ranking in self.model.rankings().items()}

    def _uses(self, options: Options) -> set[str]:
        """The workloads that a model with these options executes, as far as the job tunes them."""
        return self.sites.uses(options).keys() & self.sites.task_of.keys()

    def _best(self, task: Task) -> Run | None:
        found = self.database.best(task.key.workload, task.key.target, task.key.space)
        return None if isinstance(found, Miss) else found

    def _code(self, keys: Iterable[str]) -> dict[str, Built]:
        """The code of the schedules that a compilation would use now, by workload key."""
        return code_in_use([self.sites.task_of[key] for key in sorted(keys)], self.database, self.measurer)


def close_behind(rows: Sequence[Comparison]) -> frozenset[str]:
    """The names of the fastest options: at most :data:`KEPT`, that took at most :data:`LOSING` times the least."""
    took = sorted((row.latency.median_ns, row.name) for row in rows if row.latency is not None)
    return frozenset(name for ns, name in took[:KEPT] if ns <= LOSING * took[0][0])


def _schedules(task: Task, runs: Sequence[Run], code: Sequence[Built]) -> _Question:
    """Which of the runs is the fastest; one that cannot be built any more is not asked for."""
    candidates, same = list[_Candidate](), list[Comparison]()
    for run, built in zip(runs, code, strict=True):
        row = Comparison(run.trace_key, task.key.space, run=run.id)
        if candidates and built.same_code(code[0]):
            same.append(row)
        elif not built.failed:
            candidates.append(_Candidate(row, code=built))
    return _Question(SCHEDULE, task, (), tuple(candidates), same=tuple(same))


def _version(base: Version, questions: Sequence[_Question], number: int) -> Version:
    """The version in which each question has the candidate of this number."""
    here = {q.workload: q.in_version(number) for q in questions}
    options = {key: c.option for key, c in here.items() if c.option is not None}
    code = {key: c.code for key, c in here.items() if c.code is not None}
    return Version({**base.options, **options}, {**base.code, **code})


def code_in_use(tasks: Iterable[Task], database: Database, measurer: Measurer) -> dict[str, Built]:
    """The code of the schedules that a compilation would use now, by workload key, where there are any."""
    known = [(task, database.best(task.key.workload, task.key.target, task.key.space)) for task in tasks]
    runs = [(task, run) for task, run in known if not isinstance(run, Miss)]
    built = code_of(runs, measurer)
    return {task.workload.key: b for (task, _), b in zip(runs, built, strict=True) if not b.failed}


def code_of(runs: Sequence[tuple[Task, Run]], measurer: Measurer) -> list[Built]:
    """The code of runs of some tasks: kept from when they were measured, else built again, all together."""
    missing = {
        (task.workload.key, run.trace_key): task.candidate(run.config)
        for task, run in runs
        if run.trace_key not in task.built
    }
    again = dict(zip(missing, measurer.build(list(missing.values())), strict=True))
    return [task.built.get(run.trace_key) or again[task.workload.key, run.trace_key] for task, run in runs]


__all__ = [
    "ROUNDS",
    "SCHEDULE",
    "TOP",
    "Code",
    "Comparing",
    "Options",
    "Profile",
    "Version",
    "WholeModel",
    "close_behind",
    "code_in_use",
    "code_of",
]
