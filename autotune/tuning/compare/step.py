"""The compare step: candidates are interleaved with the incumbents inside the whole model before they are used.

A search reads each candidate alone, with its operands in the caches, and then takes the smallest of many
noisy numbers. What a dispatch takes in use depends on its neighbours and what they leave in the caches. So
versions of the whole model are interleaved: one with the incumbent at every site, one with the first candidate of each
site, one with the second, and so on. Each site is decided by its own dispatches' share of these runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from autotune.compiler.plan import OPTION
from autotune.database import Hit, Miss
from autotune.database.answers import KeptAnswers
from autotune.database.goal import Goal
from autotune.database.inside import Estimate
from autotune.database.records import Comparison, Run
from autotune.errors import NoReferenceError
from autotune.passes.options import Option
from autotune.suggest import counted
from autotune.tuning.compare.interleaved import Interleaved
from autotune.tuning.compare.questions import (
    SCHEDULE,
    Choice,
    Question,
    schedules_of,
)
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.interface import Built, BuiltOption, Measurer
from autotune.tuning.measure.whole_model import Code, Options, Version, WholeModel


@dataclass(kw_only=True)
class Comparing(Interleaved):
    """Comparisons of the options and schedules of workloads; those that it is asked for."""

    model: WholeModel
    sites: Sites
    measurer: Measurer
    answers: KeptAnswers
    goals: Sequence[Goal] = ()
    """Whose schedules are compared beside the fastest."""
    history: dict[str, list[Comparison]] = field(default_factory=dict)
    """All comparisons of options, by the keys of their sites."""
    recent: list[Comparison] = field(default_factory=list)
    """The rows of the last comparison."""
    _checked: dict[tuple[str, ...], Comparison] = field(default_factory=dict)
    """Options that were checked against the reference, with the code that they had."""

    def compare_options(self, wanted: Mapping[str, Sequence[Option]], late: Callable[[], bool]) -> bool:
        """Compare options of workloads by key, each by the schedules that it would use; return if any was measured."""
        used = self._options()
        asked = {region.key for options in wanted.values() for option in options for region in option.regions}
        code = self._code(asked | self._uses(used))
        questions = list[Question]()
        for site in self.sites.several:
            if site.workload.key in wanted:
                if late():
                    break
                with suppress(NoReferenceError):  # no failure of the options: nothing is stored of them
                    questions.append(self._question(site, wanted[site.workload.key], code))
        questions = [q for q in questions if q.candidates and len(q.candidates) + len(q.failed) > 1]
        winners = self.compare(questions, Version(used, code), late)
        if winners is None:
            return False
        changed = sum(winner > 0 for winner in winners)
        self.say(
            f"another algorithm is faster in the model for {changed} of {counted(len(winners), 'workload')}"
        )
        return True

    def _question(self, site: Site, options: Sequence[Option], code: Code) -> Question:
        """Return the options that are as exact as they declare."""
        candidates, failed = list[Choice](), list[Comparison]()
        seed, target = self._task_at(site).seed, self._task_at(site).space.target
        for option in options:
            row = Comparison(option.name, self.sites.key_of(option))
            if option.steps is not None:
                named = tuple(code[r.key].trace_key if r.key in code else "" for r in option.regions)
                if (known := (site.workload.key, option.name, *named)) not in self._checked:
                    payloads = {r.key: code[r.key].payload for r in option.regions if r.key in code}
                    built = BuiltOption(site.workload.text, target.to_json(), seed, option.name, payloads)
                    checked = self.measurer.check(built)
                    self._checked[known] = replace(row, error=checked.error, message=checked.message)
                row = self._checked[known]
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

    def compare_schedules(self, wanted: Mapping[str, Sequence[str]], late: Callable[[], bool]) -> bool:
        """Compare schedules of workloads by their trace keys with the default, and those for other goals; return if any
        was measured."""
        options = self._options()
        uses = self._uses(options)
        tasks = [self.sites.task_of[key] for key in sorted(uses & wanted.keys())]
        unknown = [task for task in tasks if not task.default_trace]
        for task, built in zip(
            unknown, self.measurer.build([task.candidate(task.default) for task in unknown]), strict=True
        ):
            task.keep_default(built)
        runs = [
            (task, found) for task in tasks if len(found := self._runs(task, wanted[task.workload.key])) > 1
        ]
        if late() or not runs:
            return False
        code = iter(code_of([(task, run) for task, found in runs for run in found], self.measurer))
        questions = [schedules_of(task, found, [next(code) for _ in found]) for task, found in runs]
        others = self._code(uses - {question.workload for question in questions})
        winners = self.compare(questions, Version(options, others), late)
        if winners is None:
            return False
        faster = sum(winner > 0 for winner in winners)
        kept = len(winners) - faster
        self.say(f"{counted(faster, 'workload')} faster in the model, {kept} keep the default")
        return True

    def unconfirmed(self) -> dict[str, list[str]]:
        """Return the schedules that a compilation would use and that were never compared, by workload key, and all
        workloads of which another goal has schedules."""
        found = dict[str, list[str]]()
        tasks = [self.sites.task_of[key] for key in sorted(self._uses(self._options()))]
        answers = self.answers.best(task.key for task in tasks)
        for task in tasks:
            answer = answers[task.key]
            best = None if isinstance(answer, Miss) else answer
            news = best is not None and best.confirmed_ns is None and best.trace_key != task.default_trace
            others = [run for run in self._smaller(task) if run.confirmed_ns is None]
            if news or others:
                found[task.workload.key] = [best.trace_key] if best is not None and news else []
        return found

    def _runs(self, task: Task, traces: Sequence[str]) -> list[Run]:
        """Return the runs of the default, of these schedules and of those for other goals; nothing if the default never
        worked."""
        key = task.key
        known = self.database.records(
            workload=key.workload, target=key.target, space=key.space, traces={task.default_trace, *traces}
        )
        by_trace = {run.trace_key: run for run in known if run.id not in task.stale and run.latency}
        default = by_trace.get(task.default_trace)
        if default is None:
            return []
        top = [by_trace[trace] for trace in traces if trace in by_trace and not by_trace[trace].crashed]
        return list({run.id: run for run in (default, *top, *self._smaller(task))}.values())

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
        """Take a comparison into account."""
        self.recent[:] = [row for row in self.recent if row.created == rows[0].created] + [*rows]
        if question.kind == SCHEDULE:
            self.sites.task_of[question.workload].compare(rows)
        else:
            self.history.setdefault(question.workload, []).extend(rows)

    def learn_of_whole(self, parts: Mapping[tuple[str, str, str], Comparison]) -> None:
        """Take a measurement of the whole model into account, by the parts of all that was used."""
        for (workload, _, kind), part in parts.items():
            if kind == SCHEDULE:
                self.sites.task_of[workload].compare([part])
            else:
                self.history.setdefault(workload, []).append(part)

    def _options(self) -> Options:
        return {key: ranking.chosen for key, ranking in self.model.rankings().items()}

    def _uses(self, options: Options) -> set[str]:
        """Return the workloads that a model with these options executes, as far as the job tunes them."""
        return self.sites.uses(options).keys() & self.sites.task_of.keys()

    def _code(self, keys: Iterable[str]) -> dict[str, Built]:
        """Return the code of the schedules that a compilation would use now, by workload key."""
        return code_in_use([self.sites.task_of[key] for key in sorted(keys)], self.answers, self.measurer)


def code_in_use(tasks: Sequence[Task], answers: KeptAnswers, measurer: Measurer) -> dict[str, Built]:
    """Return the code of the schedules that a compilation would use now, by workload key, where there are any."""
    known = answers.best(task.key for task in tasks)
    runs = [(task, run) for task in tasks if not isinstance(run := known[task.key], Miss)]
    built = code_of(runs, measurer)
    return {task.workload.key: b for (task, _), b in zip(runs, built, strict=True) if not b.failed}


def code_of(runs: Sequence[tuple[Task, Run]], measurer: Measurer) -> list[Built]:
    """Return the code of runs of some tasks: kept from when they were measured, else built again, all together."""
    # Taken before anything is built: meanwhile another lane of a job on a fleet may let go of it.
    known = {
        (task.workload.key, run.trace_key): task.built[run.trace_key]
        for task, run in runs
        if run.trace_key in task.built
    }
    missing = {
        (task.workload.key, run.trace_key): task.candidate(run.config)
        for task, run in runs
        if (task.workload.key, run.trace_key) not in known
    }
    known |= zip(missing, measurer.build(list(missing.values())), strict=True)
    return [known[task.workload.key, run.trace_key] for task, run in runs]


__all__ = [
    "Comparing",
    "code_in_use",
    "code_of",
]
