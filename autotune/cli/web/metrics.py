"""Metrics for Prometheus: jobs by state, runs by outcome, and figures of the jobs that work or were heard of in the
last day."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from autotune.cli.job_lines import gain_of, jobs_of
from autotune.database import Database
from autotune.foreign import printable
from autotune.tuning.jobs.owner import JobState, Life, Owner

TYPE = "text/plain; version=0.0.4"
_SHOWN_S = 86_400.0
_Samples = Iterable[tuple[Mapping[str, str], float]]


def text(store: Database) -> str:
    """Return the metrics of a database in the text format of Prometheus."""
    jobs, by_job = jobs_of(store), store.outcomes_by_job()
    counts = _counts(jobs, store.outcomes(by_job=by_job))
    trials = {job: sum(outcomes.values()) for job, outcomes in by_job.items()}
    return "\n".join([*counts, *_jobs(store, jobs, trials)]) + "\n"


def _counts(jobs: Iterable[JobState], outcomes: Mapping[str, int]) -> Iterator[str]:
    lives = Counter(state.life for state in jobs)
    yield from _metric(
        "jobs", "Tuning jobs by state.", (({"state": life.value}, lives[life]) for life in Life)
    )
    found = (({"outcome": name}, count) for name, count in outcomes.items())
    yield from _metric("runs", "Measured runs by outcome.", found)


def _jobs(store: Database, jobs: Iterable[JobState], trials: Mapping[str, int]) -> Iterator[str]:
    now = time.time()
    shown = [state for state in jobs if not state.life.over or now - state.heard < _SHOWN_S]
    targets = {key: target.name for key, target in store.targets().items()}
    named = [(_labels(state), state) for state in shown]

    def about(state: JobState) -> dict[str, str]:
        who, target = Owner.parse(state.job.owner), targets.get(state.job.target_key, "")
        return {"state": state.life.value, "target": target, "host": who.host, "pid": who.pid}

    yield from _metric(
        "job_info", "A job: its state and process.", ((own | about(state), 1) for own, state in named)
    )
    yield from _metric(
        "job_trials", "Measured runs of a job.", ((own, trials.get(state.job.id, 0)) for own, state in named)
    )
    yield from _metric(
        "job_worked_seconds",
        "Time that a job has worked.",
        ((own, state.job.elapsed_s) for own, state in named),
    )
    yield from _metric(
        "job_heard_timestamp_seconds",
        "Time at which a job was last heard of.",
        ((own, state.heard) for own, state in named),
    )
    left = ((own, state.said.get("eta_s")) for own, state in named if not state.life.over)
    yield from _metric(
        "job_left_seconds",
        "Time that a job expected to need when it was last heard of.",
        ((own, float(s)) for own, s in left if s is not None),
    )
    gains = ((own, gain_of(state.said)) for own, state in named)
    yield from _metric(
        "job_speedup",
        "Confirmed speed-up of a job's model, 1 while there is none.",
        ((own, gain.speedup or 1.0) for own, gain in gains if gain is not None),
    )


def _labels(state: JobState) -> dict[str, str]:
    return {"job": state.job.id, "model": state.job.model}


def _metric(name: str, about: str, samples: _Samples) -> Iterator[str]:
    yield f"# HELP autotune_{name} {about}"
    yield f"# TYPE autotune_{name} gauge"
    for labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"autotune_{name}{{{shown}}} {value!r}"


def _escaped(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


__all__ = ["TYPE", "text"]
