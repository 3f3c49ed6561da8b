"""The subject of a comparison: at each site, which of several candidates is the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.compiler.plan import OPTION
from autotune.database.records import Comparison, Run, crash_message
from autotune.passes.options import Option
from autotune.tuning.compare.paired import Series
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.whole_model import Profile, Version

SCHEDULE = "schedule"
"""The kind of site by which comparisons of the schedules of a workload are stored."""

Position = tuple[int, int]
"""A candidate by the number of its question and its own in it."""


@dataclass(frozen=True)
class Choice:
    """A candidate at a site: an option of its workload, code for it, or by its name alone an option of a site of the
    whole model. ``row`` is its row in the database."""

    row: Comparison
    option: Option | None = None
    code: Built | None = None


@dataclass(frozen=True)
class Question:
    """The candidates of a site, the incumbent first; ``failed`` are those that are not to be used.

    ``workload`` and ``target`` are keys; ``kind`` is that of the site, ``names`` are its dispatches, or empty for
    all that have the workload. ``same`` are candidates whose machine code is the incumbent's: they take no turns.
    ``expected_ns``: the latencies by an estimate, by names, for the prior; nothing where all may be as fast.

    Of another kind than options and schedules of a workload it is a site of the whole model, and ``workload`` the key
    of that.
    """

    kind: str
    workload: str
    target: str
    names: tuple[str, ...]
    candidates: tuple[Choice, ...]
    failed: tuple[Comparison, ...] = ()
    same: tuple[Comparison, ...] = ()
    expected_ns: Mapping[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Return whether it is decided by the latency of the whole model."""
        return self.kind not in (OPTION, SCHEDULE)

    def series(self, profile: Profile) -> Series:
        """Return the latencies of the site in a version."""
        return profile.whole if self.whole else profile.series(self.workload, self.names)

    def without(self, crashed: Mapping[int, str]) -> Question:
        """Return the question without the candidates with these numbers, which crashed for these reasons; those of
        options are said to have failed."""
        left = tuple(c for number, c in enumerate(self.candidates) if number not in crashed)
        gone = [
            replace(self.candidates[number].row, message=crash_message(crashed[number]))
            for number in sorted(crashed)
        ]
        failed = [] if self.kind == SCHEDULE else gone
        return replace(self, candidates=left, failed=(*self.failed, *failed))


def schedules_of(task: Task, runs: Sequence[Run], code: Sequence[Built]) -> Question:
    """Return the question which of the runs is the fastest; it leaves out what cannot be built any more, or gives other
    code than was measured."""
    candidates, same = list[Choice](), list[Comparison]()
    for run, built in zip(runs, code, strict=True):
        row = Comparison(run.trace_key, task.key.space, run=run.id)
        if candidates and built.same_code(code[0]):
            same.append(row)
        elif not built.failed and (not candidates or built.code == run.code):
            candidates.append(Choice(row, code=built))
    return Question(SCHEDULE, task.key.workload, task.key.target, (), tuple(candidates), same=tuple(same))


def numbered(questions: Sequence[Question], number: int) -> list[Position]:
    """Return the candidates with this number, one of each question that has so many."""
    return [(mine, number) for mine, question in enumerate(questions) if number < len(question.candidates)]


def suspects_of(questions: Sequence[Question], profiles: Sequence[Profile | None]) -> list[list[Position]]:
    """Return the candidates of each version that ended its process; none where the incumbents do, or
    there was no time."""
    if profiles[0] is None:
        return []
    return [numbered(questions, number) for number, profile in enumerate(profiles) if profile is None]


def version_of(base: Version, questions: Sequence[Question], positions: Iterable[Position]) -> Version:
    """Return the version in which some questions have these candidates, and the others their incumbents."""
    numbers = dict(positions)
    here = [(q, q.candidates[numbers.get(mine, 0)]) for mine, q in enumerate(questions)]
    options = {q.workload: c.option for q, c in here if c.option is not None}
    code = {q.workload: c.code for q, c in here if c.code is not None}
    whole = {q.kind: c.row.name for q, c in here if q.whole}
    return Version({**base.options, **options}, {**base.code, **code}, {**base.whole, **whole})


__all__ = [
    "SCHEDULE",
    "Choice",
    "Position",
    "Question",
    "numbered",
    "schedules_of",
    "suspects_of",
    "version_of",
]
