"""The whole models of a job timed again, untuned and as its database answers now; nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.compiler.sites.decision import decided_of_model
from autotune.database import Database
from autotune.errors import UsageError
from autotune.machine_lock import Measuring
from autotune.suggest import counted
from autotune.target import Target
from autotune.tuning.jobs.model import tuned_model
from autotune.tuning.jobs.models import AskedModel, read_models
from autotune.tuning.jobs.owner import JobState
from autotune.tuning.measure.gain import Gain
from autotune.tuning.report.result import Report

SOURCE = "source"
"""The name, in the options of a job, of what its models were read from."""


@dataclass(frozen=True)
class TimedAgain:
    """A model of a job: its gain as it was at the end of the job and as it is now, or why there is none."""

    model: str
    then: Gain | None
    why_not_then: str
    now: Gain | None
    later_jobs: int
    """So many jobs have worked on the same since: what they have found is in use now."""

    def lines(self) -> Iterator[str]:
        """Yield what the job said and what was measured now."""
        yield f"{self.model}, by the job: {self.then or f'not timed: {self.why_not_then}'}"
        yield f"{self.model}, measured now: {self.now or 'a version failed'}"
        if self.later_jobs:
            yield f"  what {counted(self.later_jobs, 'later job')} found since is part of it"

    def to_json(self) -> dict[str, Any]:
        """Return both gains."""
        then, now = (None if gain is None else gain.to_json() for gain in (self.then, self.now))
        return {"model": self.model, "then": then, "now": now, "later_jobs": self.later_jobs}


def time_again(
    state: JobState,
    report: Report | None,
    target: Target,
    database: Database,
    say: Callable[[str], None],
) -> list[TimedAgain]:
    """Time the models of a job again in fresh processes, as its end does.

    Raises UsageError where they cannot be read.
    """
    options = json.loads(state.job.options)
    seed, source = int(options.get("seed", 0)), _source(state, options)
    models = read_models(source.pop("models"), target=target, database=database, **source)
    then = {each.model: each for each in report.models} if report is not None else {}
    later = _later(state, database)
    found = []
    with Measuring(f"time {state.job.model} again", say):
        for asked in models:
            before = then.get(asked.name)
            say(f"timing {asked.name} untuned and tuned, interleaved in fresh processes")
            found.append(
                TimedAgain(
                    asked.name,
                    None if before is None else before.gain,
                    "it has stored no report" if before is None else before.untimed,
                    _gain(asked, database, seed),
                    later,
                )
            )
    return found


def _source(state: JobState, options: Mapping[str, Any]) -> dict[str, Any]:
    source = dict(options.get(SOURCE) or {})
    if not all(source.get("models") or [None]):
        raise UsageError(
            f"job {state.job.id} does not say where its model is: it was given as an object, or by an earlier version\n"
            "  time what is in the database by `autotune bench`, or tune the model's file"
        )
    return source


def _gain(asked: AskedModel, database: Database, seed: int) -> Gain | None:
    request, _, decisions = decided_of_model(asked.request, asked.graph, database)
    model = tuned_model(asked.by(request), decisions, database, seed)
    assert model.whole is not None
    return model.whole.gain({}, {}, lambda: False)


def _later(state: JobState, database: Database) -> int:
    """Return the number of jobs of the same models and target that worked after this one."""
    job = state.job
    return sum(
        other.id != job.id
        and (other.model, other.target_key) == (job.model, job.target_key)
        and other.updated > job.updated
        for other in database.jobs()
    )


__all__ = ["SOURCE", "TimedAgain", "time_again"]
