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
from functools import partial

from autotune.compiler.plan import OPTION, option_key
from autotune.database import Database, Hit, Miss
from autotune.database.best import clearly_faster
from autotune.database.goal import Goal
from autotune.database.records import SAME_CODE, Comparison, PlanReading, Run, crash_message
from autotune.errors import NoReferenceError
from autotune.passes.options import Option
from autotune.tuning.compare.paired import PLAN_MARGIN, Series, fastest, hopeless, least_processes, ratio
from autotune.tuning.compare.questions import (
    SCHEDULE,
    Choice,
    Position,
    Question,
    numbered,
    schedules_of,
    suspects_of,
    version_of,
)
from autotune.tuning.compare.sites import KEPT, LOSING, Site, Sites
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.crashes import crashing
from autotune.tuning.measure.interface import Built, BuiltOption, Measurer
from autotune.tuning.measure.timing import statistics
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Code, Options, Profile, Version, Watch, WholeModel

TOP = 2
"""The number of runs that are compared with the default: those fastest inside the model, at each measurement."""
ROUNDS = 3
"""In each process: what a process draws once, such as where arrays lie, takes several processes, not rounds."""
LOSSES = 2
"""A winner may be slower in so many processes, where there is time for more: other work disturbs one now and then."""
EVERY = 4
"""After so many others the first version has a turn again."""


@dataclass
class Comparing:
    """Everything that comparing needs; :meth:`run` does it."""

    sites: Sites
    database: Database
    measurer: Measurer
    model: WholeModel
    job: str
    say: Callable[[str], None] = lambda text: None
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
        winners = self._read(questions, Version(used, code), late)
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
        winners = self._read(questions, Version(options, others), late)
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
        fast = (by_trace[trace] for trace in clearly_faster(task.inside, best.trace_key) if trace in by_trace)
        return [run for run in fast if run.confirmed_ns is None and not run.crashed][:1]

    def _smaller(self, task: Task) -> Iterator[Run]:
        """Yield the runs for each other goal than latency: a comparison says how much slower they are."""
        for goal in self.goals:
            found = self.database.lookup(task.key.workload, task.key.target, task.key.space, goal)
            if isinstance(found, Hit) and found.saving is not None:
                yield found.best

    def _read(
        self, questions: Sequence[Question], base: Version, late: Callable[[], bool]
    ) -> list[int] | None:
        """Measure versions interleaved, and store the results; return the number of the winner of each question.

        All versions are ``base`` except for the candidates that are compared. None when there is no reading. What ends
        its process is left out, and the others take their turns again; after that whole versions are left out.
        """
        if not any(question.candidates for question in questions):
            return None
        reasons: dict[Position, str] = {}
        profiles = self._take_turns(questions, base, late, reasons)
        if suspects := suspects_of(questions, profiles):
            self.say(f"{len(suspects)} versions crashed: measuring them in halves, then the others again")
            crashed = self._crashing(questions, suspects, base, late, reasons)
            questions = self._leave_out(
                questions, {position: reasons.get(position, "") for position in crashed}
            )
            reasons = {}
            profiles = self._take_turns(questions, base, late, reasons)
            again = [position for version in suspects_of(questions, profiles) for position in version]
            self._store_crashes(questions, {position: reasons.get(position, "") for position in again})
        if profiles[0] is None:
            self.say("not compared: time is up, or the untuned model itself fails")
            return None
        plan = self._best_plan(questions, profiles, base)
        return [
            self._decide(
                question, profiles, plan, [reasons.get((n, c), "") for c in range(len(question.candidates))]
            )
            for n, question in enumerate(questions)
        ]

    def _best_plan(
        self, questions: Sequence[Question], profiles: Sequence[Profile | None], base: Version
    ) -> int:
        """Return the number of the version of which all candidates together make the model surely faster; 0 for none.

        One test of all of them resolves what none of many, each of a single dispatch, does: small gains add up, and
        what a process draws for each dispatch averages out.
        """
        if any(question.kind == OPTION for question in questions):
            return 0  # versions have the n-th option of every workload, whatever that is: no plan to be used
        whole = [None if profile is None else profile.whole for profile in profiles]
        plan = fastest(whole, ROUNDS, PLAN_MARGIN)
        options = {key: option.name for key, option in base.options.items()}
        read = list[PlanReading]()
        for number, mine in enumerate(whole[1:], start=1):
            if mine is not None and whole[0] is not None:
                here = [(questions[question], at) for question, at in numbered(questions, number)]
                schedules = {question.workload: question.candidates[at].row.name for question, at in here}
                gain = ratio(mine, whole[0], ROUNDS)
                read.append(PlanReading(options, schedules, gain, len(mine), won=number == plan))
        self.database.read_plans(read, self.model.name, self.job)
        self.say(f"all candidates together: {'; then '.join(str(plan.ratio) for plan in read)}")
        return plan

    def _take_turns(
        self,
        questions: Sequence[Question],
        base: Version,
        late: Callable[[], bool],
        reasons: dict[Position, str],
    ) -> list[Profile | None]:
        """Read the versions with the incumbents, with the first candidate of each question, and so on, the latter for
        as long as one of their candidates may win. ``reasons`` gets why a version ended its process, for each of its
        candidates."""
        count = max(len(question.candidates) for question in questions)
        fewest, processes = (least_processes(count - 1, n) if count > 1 else 1 for n in (0, LOSSES))
        self.say(
            f"measuring {len(questions)} workloads in the model: the default and {count - 1} candidates, "
            f"interleaved in up to {processes} fresh processes"
        )
        # Too few processes for a winner still say which options are far behind, and these get no trials.
        least = 1 if all(question.kind == OPTION for question in questions) else fewest
        rounds = Rounds(ROUNDS * processes, ROUNDS * least, processes, every=EVERY)
        versions = [version_of(base, questions, numbered(questions, n)) for n in range(count)]

        def failed(number: int, reason: str) -> None:
            reasons.update(dict.fromkeys(numbered(questions, number), reason))

        return self.model.read(versions, rounds, late, Watch(partial(_settled, questions), failed))

    def _crashing(
        self,
        questions: Sequence[Question],
        suspects: Sequence[Sequence[Position]],
        base: Version,
        late: Callable[[], bool],
        reasons: dict[Position, str],
    ) -> list[Position]:
        """Return those of the suspects that end a process by themselves; ``reasons`` gets why."""
        rounds, most = Rounds(ROUNDS, ROUNDS, processes=1, every=EVERY), self.model.most - 1

        def live(parts: Sequence[Sequence[Position]]) -> list[bool] | None:
            found = list[bool]()
            for first in range(0, len(parts), most):
                several: list[Sequence[Position]] = [(), *parts[first : first + most]]

                def failed(number: int, reason: str, several: Sequence[Sequence[Position]] = several) -> None:
                    reasons.update(dict.fromkeys(several[number], reason))

                versions = [version_of(base, questions, positions) for positions in several]
                default, *others = self.model.read(versions, rounds, late, Watch(failed=failed))
                if late():
                    return None
                found += [default is None or profile is not None for profile in others]
            return found

        return crashing(suspects, live)

    def _leave_out(self, questions: Sequence[Question], crashed: Mapping[Position, str]) -> list[Question]:
        """Return the questions without candidates that crashed; ``crashed`` says why they did."""
        self._store_crashes(questions, crashed)
        return [
            question.without({candidate: why for (mine, candidate), why in crashed.items() if mine == number})
            for number, question in enumerate(questions)
        ]

    def _store_crashes(self, questions: Sequence[Question], crashed: Mapping[Position, str]) -> None:
        """Store at once which schedules crashed, and why: the comparison of the others may find no time."""
        for (number, candidate), reason in crashed.items():
            question = questions[number]
            if question.kind == SCHEDULE:
                traces = {question.candidates[candidate].row.name: reason}
                task = self.sites.task_of[question.workload]
                self.database.crashed_inside(task.key, traces, self.model.name, self.job)
                task.crashed_inside(traces)

    def _decide(
        self, question: Question, profiles: Sequence[Profile | None], plan: int, reasons: Sequence[str]
    ) -> int:
        """Return the winner: what is surely faster at this site alone, else what the best plan has,
        unless it seems slower.

        ``reasons`` says for each candidate why it ended its process, if it did.
        """
        series = [
            None if profile is None else profile.series(question.workload, question.names)
            for profile in profiles[: len(question.candidates)]
        ]
        winner = fastest(series, ROUNDS)
        if not winner and plan < len(series) and _seems_faster(series[plan], series[0]):
            winner = plan
        rows = list(question.failed)
        for number, (candidate, mine) in enumerate(zip(question.candidates, series, strict=True)):
            row = replace(candidate.row, won=number == winner)
            if mine is None:
                message = crash_message(reasons[number])
                rows += [replace(row, message=message)] if question.kind == OPTION else []
            else:
                beside = ratio(mine, series[0], ROUNDS) if number and series[0] is not None else None
                rows.append(replace(row, latency=statistics(mine), ratio=beside))
        if series[0] is not None:
            rows += [replace(row, latency=statistics(series[0]), ratio=SAME_CODE) for row in question.same]
        self.database.compared(
            question.workload, question.target, question.kind, rows, self.model.name, self.job
        )
        return winner

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


def _settled(questions: Sequence[Question], profiles: Sequence[Profile | None]) -> list[int]:
    """Return the numbers of the versions in which nothing may win any more: no candidate, and not all of
    them together."""
    incumbent = profiles[0]
    if incumbent is None:
        return []
    together = any(question.kind == SCHEDULE for question in questions)

    def is_settled(number: int, profile: Profile) -> bool:
        whole = (profile.whole, incumbent.whole)
        if together and not hopeless(*whole, ROUNDS, LOSSES, PLAN_MARGIN):
            return False
        sites = [(questions[mine].workload, questions[mine].names) for mine, _ in numbered(questions, number)]
        both = ((profile.series(*site), incumbent.series(*site)) for site in sites)
        return all(hopeless(mine, other, ROUNDS, LOSSES) for mine, other in both)

    others = enumerate(profiles[1:], start=1)
    return [number for number, mine in others if mine is not None and is_settled(number, mine)]


def _seems_faster(mine: Series | None, incumbent: Series | None) -> bool:
    return mine is not None and incumbent is not None and ratio(mine, incumbent, ROUNDS).median < 1


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
    "LOSSES",
    "ROUNDS",
    "TOP",
    "Comparing",
    "close_behind",
    "code_in_use",
    "code_of",
]
