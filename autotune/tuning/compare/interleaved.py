"""Interleaved comparisons of the options of sites: versions of a model are measured, and each site is decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.database import Database
from autotune.database.inside import Estimate
from autotune.database.posterior import CERTAIN, ROUNDS, decided, standings
from autotune.database.records import SAME_CODE, Comparison, crash_message
from autotune.suggest import counted
from autotune.tuning.compare.paired import at_the_speed_of, ratio
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

PROCESSES = 3
"""Fresh processes of a comparison: what is not clear by then is compared again, and all of it is pooled."""
EVERY = 4
"""After so many others the first version has a turn again."""


@dataclass
class Interleaved:
    """Comparisons of the options of sites in one model; :meth:`compare` measures, decides and stores."""

    database: Database
    model: Versions
    job: str
    say: Callable[[str], None] = lambda text: None
    processes: int = PROCESSES
    """Fresh processes of each comparison."""

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
        profiles = self._measure(questions, base, late, reasons)
        if suspects := suspects_of(questions, profiles):
            self.say(f"{len(suspects)} versions crashed: measuring them in halves, then the others again")
            crashed = self._crashing(questions, suspects, base, late, reasons)
            questions = self._leave_out(
                questions, {position: reasons.get(position, "") for position in crashed}
            )
            reasons = {}
            profiles = self._measure(questions, base, late, reasons)
            again = [position for version in suspects_of(questions, profiles) for position in version]
            self._store_crashes(questions, {position: reasons.get(position, "") for position in again})
        if profiles[0] is None:
            self.say("not compared: time is up, or the untuned model itself fails")
            return None
        now = time.time()
        rows = [
            [replace(row, created=now) for row in self._rows(question, profiles, n, reasons)]
            for n, question in enumerate(questions)
        ]
        winners = self._winners(questions, rows)
        decisions = [
            [replace(row, won=row.name == winner) for row in measured]
            for measured, winner in zip(rows, winners, strict=True)
        ]
        sites = [(question.workload, question.target, question.kind) for question in questions]
        self.database.compared_sites(dict(zip(sites, decisions, strict=True)), self.model.name, self.job)
        for question, stored in zip(questions, decisions, strict=True):
            self.compared(question, stored)
        return [
            next(n for n, choice in enumerate(question.candidates) if choice.row.name == winner)
            for question, winner in zip(questions, winners, strict=True)
        ]

    def _measure(
        self,
        questions: Sequence[Question],
        base: Version,
        late: Callable[[], bool],
        reasons: dict[Position, str],
    ) -> list[Profile | None]:
        """Measure the versions with the incumbents, with the first candidate of each question, and so on. ``reasons``
        gets why a version ended its process, for each of its candidates."""
        count = max(len(question.candidates) for question in questions)
        processes = self.processes if count > 1 else 1  # one has the default's code, which is known already
        first = questions[0]
        subject = f"the {first.kind} of" if first.whole else f"{counted(len(questions), 'workload')} in"
        self.say(
            f"measuring {subject} the model: the default and {counted(count - 1, 'candidate')}, "
            f"interleaved in {counted(processes, 'fresh process')}"
        )
        rounds = Rounds(ROUNDS * processes, ROUNDS, processes, every=EVERY)
        versions = [version_of(base, questions, numbered(questions, n)) for n in range(count)]

        def failed(number: int, reason: str) -> None:
            reasons.update(dict.fromkeys(numbered(questions, number), reason))

        return self.model.read(versions, rounds, late, Watch(failed=failed))

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

    def compared(self, question: Question, rows: Sequence[Comparison]) -> None:
        """Hear of a comparison that was stored."""

    def known(self, question: Question) -> Mapping[str, Estimate]:
        """Return what all earlier measurements inside models say of schedules, by trace keys."""
        return {}

    def _rows(
        self,
        question: Question,
        profiles: Sequence[Profile | None],
        own: int,
        reasons: Mapping[Position, str],
    ) -> list[Comparison]:
        """Return the rows of the candidates of a question with this number; ``reasons`` says why some ended their
        process."""
        series = [
            None if profile is None else question.series(profile)
            for profile in profiles[: len(question.candidates)]
        ]
        load = max((profile.load for profile in profiles if profile is not None), default=0.0)
        rows = list(question.failed)
        for number, (candidate, mine) in enumerate(zip(question.candidates, series, strict=True)):
            if mine is None:
                message = crash_message(reasons.get((own, number), ""))
                rows += [replace(candidate.row, message=message)] if question.kind != SCHEDULE else []
            else:
                beside = ratio(mine, series[0], ROUNDS) if number and series[0] is not None else None
                level = mine if series[0] is None else at_the_speed_of(mine, series[0])
                rows.append(replace(candidate.row, latency=statistics(level), ratio=beside))
        if series[0] is not None:
            rows += [replace(row, latency=statistics(series[0]), ratio=SAME_CODE) for row in question.same]
        return [replace(row, load=load) for row in rows]

    def _winners(self, questions: Sequence[Question], rows: Sequence[Sequence[Comparison]]) -> list[str]:
        """Return the name of what is used of each question: by these measurements and all earlier ones."""
        history = {
            n: [*self.database.comparison_history(q.workload, q.target, q.kind), *rows[n]]
            for n, q in enumerate(questions)
            if q.kind != SCHEDULE
        }
        expected = {str(n): questions[n].expected_ns for n in history}
        found = standings({str(n): earlier for n, earlier in history.items()}, expected)
        winners = list[str]()
        for n, question in enumerate(questions):
            names = [choice.row.name for choice in question.candidates]
            if question.kind == SCHEDULE:
                known = {name: Estimate() for name in names[1:]} | dict(self.known(question))
                for row in rows[n]:
                    known[row.name] = known.get(row.name, Estimate()) + row
                means = {name: known[name].posterior for name in names[1:]} | {names[0]: CERTAIN}
                winners.append(decided(means, names[0]))
            else:
                winners.append(next((one.name for one in found[str(n)].order if one.name in names), names[0]))
        return winners


__all__ = ["EVERY", "PROCESSES", "Interleaved"]
