"""Interleaved comparisons of the options of sites: versions of a model are measured, and each site is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autotune.compiler.plan import OPTION
from autotune.database import Database
from autotune.database.records import SAME_CODE, PlanReading, crash_message
from autotune.suggest import counted
from autotune.tuning.compare.paired import PLAN_MARGIN, Series, fastest, hopeless, least_processes, ratio
from autotune.tuning.compare.questions import (
    SCHEDULE,
    Choice,
    Position,
    Question,
    numbered,
    suspects_of,
    version_of,
)
from autotune.tuning.measure.crashes import crashing
from autotune.tuning.measure.timing import statistics
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Profile, Version, Versions, Watch

ROUNDS = 3
"""In each process: what a process draws once, such as where arrays lie, takes several processes, not rounds."""
LOSSES = 2
"""A winner may be slower in so many processes, where there is time for more: other work disturbs one now and then."""
EVERY = 4
"""After so many others the first version has a turn again."""


@dataclass
class Interleaved:
    """Comparisons of the options of sites in one model; :meth:`compare` measures, decides and stores."""

    database: Database
    model: Versions
    job: str
    say: Callable[[str], None] = lambda text: None

    def compare(
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
        if any(question.kind != SCHEDULE for question in questions):
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
        first = questions[0]
        subject = f"the {first.kind} of" if first.whole else f"{counted(len(questions), 'workload')} in"
        self.say(
            f"measuring {subject} the model: the default and {count - 1} candidates, "
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
        """Tell at once which candidates crashed, and why: the comparison of the others may find no time."""
        for (number, candidate), reason in crashed.items():
            self.crashed(questions[number], questions[number].candidates[candidate], reason)

    def crashed(self, question: Question, candidate: Choice, reason: str) -> None:
        """Hear of a candidate that ended its process; of options the comparison itself stores that."""

    def _decide(
        self, question: Question, profiles: Sequence[Profile | None], plan: int, reasons: Sequence[str]
    ) -> int:
        """Return the winner: what is surely faster at this site alone, else what the best plan has,
        unless it seems slower.

        ``reasons`` says for each candidate why it ended its process, if it did.
        """
        series = [
            None if profile is None else question.series(profile)
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
                rows += [replace(row, message=message)] if question.kind != SCHEDULE else []
            else:
                beside = ratio(mine, series[0], ROUNDS) if number and series[0] is not None else None
                rows.append(replace(row, latency=statistics(mine), ratio=beside))
        if series[0] is not None:
            rows += [replace(row, latency=statistics(series[0]), ratio=SAME_CODE) for row in question.same]
        self.database.compared(
            question.workload, question.target, question.kind, rows, self.model.name, self.job
        )
        return winner


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
        here = [questions[mine] for mine, _ in numbered(questions, number)]
        both = ((question.series(profile), question.series(incumbent)) for question in here)
        return all(hopeless(mine, other, ROUNDS, LOSSES) for mine, other in both)

    others = enumerate(profiles[1:], start=1)
    return [number for number, mine in others if mine is not None and is_settled(number, mine)]


def _seems_faster(mine: Series | None, incumbent: Series | None) -> bool:
    return mine is not None and incumbent is not None and ratio(mine, incumbent, ROUNDS).median < 1


__all__ = ["EVERY", "LOSSES", "ROUNDS", "Interleaved"]
