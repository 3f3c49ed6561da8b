"""The compare step: candidates are interleaved with the incumbents inside the whole model before they are used.

A search reads each candidate alone, with its operands in the caches, and then takes the smallest of many
noisy numbers. What a dispatch takes in use depends on its neighbours and what they leave in the caches. So
versions of the whole model are interleaved: one with the incumbent at every site, one with the first candidate of each
site, one with the second, and so on. Each site is decided by its own dispatches' share of these runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from autotune.compiler.plan import OPTION, option_key
from autotune.database import Database, Hit, Miss
from autotune.database.goal import Goal
from autotune.database.inside import Estimate
from autotune.database.records import Comparison, Run
from autotune.errors import NoReferenceError
from autotune.passes.options import Option
from autotune.tuning.compare.interleaved import Interleaved
from autotune.tuning.compare.questions import (
    SCHEDULE,
    Choice,
    Question,
    schedules_of,
)
from autotune.tuning.compare.sites import KEPT, LOSING, Site, Sites
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.interface import Built, BuiltOption, Measurer
from autotune.tuning.measure.whole_model import Code, Options, Version, WholeModel

TOP = 2
"""The number of runs that are compared with the default: those fastest inside the model, at each measurement."""


@dataclass(kw_only=True)
class Comparing(Interleaved):
    """Comparisons of the options and schedules of workloads; :meth:`run` chooses and makes them."""

    model: WholeModel
    sites: Sites
    measurer: Measurer
    best_plan: Callable[[Options], Mapping[str, str]] = lambda options: {}
    """The trace keys of the plan that promises most with some options, by workload key."""
    goals: Sequence[Goal] = ()
    """Whose schedules are compared beside the fastest."""

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
        winners = self.compare(questions, Version(used, code), late)
        if winners is None:
            return False
        changed = sum(winner > 0 for winner in winners)
        self.say(f"another algorithm is faster in the model for {changed} of {len(winners)} workloads")
        return True

    def _open_options(self, site: Site) -> list[Option]:
        """Return the default, then those that may be the fastest and the plain one, fastest first, as
        far as they work."""
        others = {*self.sites.open_options(site), *(option for option in site.options if option.plain)}
        ranked = sorted(others - {site.default}, key=lambda o: (self.sites.latency(o), o.name))
        return [o for o in (site.default, *ranked) if self.sites.latency(o) < float("inf")]

    def _is_news(self, site: Site, options: Sequence[Option]) -> bool:
        """Return whether these were never compared, or one of their dispatches got faster since."""
        if len(options) < 2:
            return False
        target = self._task_at(site).space.target
        rows = {row.name: row for row in self.database.comparison(site.workload.key, target.key, OPTION)}
        for option in options:
            row = rows.get(option.name)
            if row is None or row.key != option_key(option, target):
                return True
            best = [self._best(self.sites.task_of[region.key]) for region in option.regions]
            if any(run is not None and run.created > row.created for run in best):
                return True
        return False

    def _question(self, site: Site, options: Sequence[Option], code: Code) -> Question:
        """Return the options that are as exact as they declare."""
        candidates, failed = list[Choice](), list[Comparison]()
        seed, target = self._task_at(site).seed, self._task_at(site).space.target
        for option in options:
            row = Comparison(option.name, option_key(option, target))
            if option.steps is not None:
                payloads = {r.key: code[r.key].payload for r in option.regions if r.key in code}
                built = BuiltOption(site.workload.text, target.to_json(), seed, option.name, payloads)
                checked = self.measurer.check(built)
                row = replace(row, error=checked.error, message=checked.message)
            if row.message:
                failed.append(row)
            else:
                candidates.append(Choice(row, option=option))
        return Question(OPTION, site.workload.key, target.key, site.names, tuple(candidates), tuple(failed))

    def _task_at(self, site: Site) -> Task:
        """Return one of the tasks of a site; all have the target and the seed of the job.

        A chain of anchors need not be a task as a whole: none is where one dispatch for all promises nothing.
        """
        return self.sites.task_of[site.default.regions[0].key]

    def _compare_schedules(self, late: Callable[[], bool]) -> bool:
        """Compare the fastest schedules of each workload in use with its default."""
        options = self._options()
        uses = self._uses(options)
        runs = self._runs([self.sites.task_of[key] for key in sorted(uses)], self.best_plan(options))
        if late() or not runs:
            return False
        built = iter(code_of([(task, run) for task, found in runs for run in found], self.measurer))
        questions = [schedules_of(task, found, [next(built) for _ in found]) for task, found in runs]
        others = self._code(uses - {question.workload for question in questions})
        winners = self.compare(questions, Version(options, others), late)
        if winners is None:
            return False
        faster = sum(winner > 0 for winner in winners)
        kept = len(winners) - faster
        self.say(f"{faster} workloads faster in the model, {kept} keep the default")
        return True

    def _runs(self, tasks: Sequence[Task], plan: Mapping[str, str]) -> list[tuple[Task, list[Run]]]:
        """Return the default, what the best plan has and the fastest runs of each task, if any was never compared."""
        unknown = [task for task in tasks if not task.default_trace]
        built = self.measurer.build([task.candidate(task.default) for task in unknown])
        for task, default in zip(unknown, built, strict=True):
            task.keep_default(default)
        found = [(task, self._runs_of(task, plan.get(task.workload.key))) for task in tasks]
        return [(task, runs) for task, runs in found if any(run.confirmed_ns is None for run in runs[1:])]

    def _runs_of(self, task: Task, planned: str | None) -> list[Run]:
        """Return the default, then what is ``planned``, then what is faster or used, fastest first; nothing if the
        default never worked."""
        key = task.key
        known = self.database.records(workload=key.workload, target=key.target, space=key.space)
        default = next((r for r in reversed(known) if r.trace_key == task.default_trace and r.latency), None)
        best = self._best(task)
        if default is None or best is None or default.id in task.stale:
            return []
        if best.id in task.stale:
            best = default
        by_trace = {run.trace_key: run for run in known if run.id not in task.stale}
        wanted = dict.fromkeys([*([planned] if planned else []), *task.leaders(TOP)])
        top = [by_trace[trace] for trace in wanted if trace in by_trace][:TOP]
        if all(run.confirmed_ns is not None for run in top):
            top = [*self._next(task, best, by_trace), *top][:TOP]
        if best.id not in {default.id, *(run.id for run in top)}:
            top = [*top[: TOP - 1], best]
        return list({run.id: run for run in (default, *top, *self._smaller(task))}.values())

    def _next(self, task: Task, best: Run, by_trace: Mapping[str, Run]) -> list[Run]:
        """Return the run that seems clearly faster than the one in use and was never compared, the
        fastest; empty if none."""
        fast = (by_trace[trace] for trace in task.leaders(len(task.inside)) if trace in by_trace)
        return [run for run in fast if run.confirmed_ns is None and not run.crashed][:1]

    def _smaller(self, task: Task) -> Iterator[Run]:
        """Yield the runs for each other goal than latency: a comparison says how much slower they are."""
        for goal in self.goals:
            found = self.database.lookup(task.key.workload, task.key.target, task.key.space, goal)
            if isinstance(found, Hit) and found.saving is not None:
                yield found.best

    def crashed(self, question: Question, candidate: Choice, reason: str) -> None:
        """Store of a schedule that it crashed: it is never measured again."""
        if question.kind == SCHEDULE:
            task, traces = self.sites.task_of[question.workload], {candidate.row.name: reason}
            self.database.crashed_inside(task.key, traces, self.model.name, self.job)
            task.crashed_inside(traces)

    def known(self, question: Question) -> Mapping[str, Estimate]:
        """Return what the job knows of the schedules of a workload."""
        return self.sites.task_of[question.workload].inside

    def compared(self, question: Question, rows: Sequence[Comparison]) -> None:
        """Take a comparison of schedules into account."""
        if question.kind == SCHEDULE:
            self.sites.task_of[question.workload].compare(rows)

    def _options(self) -> Options:
        return {key: ranking.chosen for key, ranking in self.model.rankings().items()}

    def _uses(self, options: Options) -> set[str]:
        """Return the workloads that a model with these options executes, as far as the job tunes them."""
        return self.sites.uses(options).keys() & self.sites.task_of.keys()

    def _best(self, task: Task) -> Run | None:
        found = self.database.best(task.key.workload, task.key.target, task.key.space)
        return None if isinstance(found, Miss) else found

    def _code(self, keys: Iterable[str]) -> dict[str, Built]:
        """Return the code of the schedules that a compilation would use now, by workload key."""
        return code_in_use([self.sites.task_of[key] for key in sorted(keys)], self.database, self.measurer)


def close_behind(rows: Sequence[Comparison]) -> frozenset[str]:
    """Return the names of the fastest options: at most :data:`KEPT`, that took at most :data:`LOSING`
    times the least."""
    took = sorted((row.latency.median_ns, row.name) for row in rows if row.latency is not None)
    return frozenset(name for ns, name in took[:KEPT] if ns <= LOSING * took[0][0])


def code_in_use(tasks: Iterable[Task], database: Database, measurer: Measurer) -> dict[str, Built]:
    """Return the code of the schedules that a compilation would use now, by workload key, where there are any."""
    known = [(task, database.best(task.key.workload, task.key.target, task.key.space)) for task in tasks]
    runs = [(task, run) for task, run in known if not isinstance(run, Miss)]
    built = code_of(runs, measurer)
    return {task.workload.key: b for (task, _), b in zip(runs, built, strict=True) if not b.failed}


def code_of(runs: Sequence[tuple[Task, Run]], measurer: Measurer) -> list[Built]:
    """Return the code of runs of some tasks: kept from when they were measured, else built again, all together."""
    missing = {
        (task.workload.key, run.trace_key): task.candidate(run.config)
        for task, run in runs
        if run.trace_key not in task.built
    }
    again = dict(zip(missing, measurer.build(list(missing.values())), strict=True))
    return [task.built.get(run.trace_key) or again[task.workload.key, run.trace_key] for task, run in runs]


__all__ = [
    "TOP",
    "Comparing",
    "close_behind",
    "code_in_use",
    "code_of",
]
