"""Jobs of a database as text and JSON, and the one that a command means."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune.database.records import Ratio
from autotune.errors import UsageError
from autotune.suggest import did_you_mean
from autotune.tuning.jobs.owner import JobState, Life, Owner, ago, states_of
from autotune.tuning.report.nodes import node_lines
from autotune.tuning.report.units import cut, duration

if TYPE_CHECKING:
    from autotune.database import Database

LEAST_NAME = 12
"""Characters that the name of a model gets, however narrow the terminal is."""
_FORMAT = "{:<8}  {:<9}  {:<11}  {:>6}  {:>7}  {:<8}  "
_NEWEST = 20
"""Jobs among which the newest is looked for: more than a job on several devices has searches."""
ID = 8
"""Characters of a job's id that are shown, and are enough to name it."""


def jobs_of(store: Database, most: int | None = None) -> list[JobState]:
    """Return the jobs of a database as they are now, the newest last; not more than ``most``."""
    return states_of(store.jobs(most), heard={} if most is None else store.heard())


def trials_of(store: Database, jobs: Sequence[JobState]) -> dict[str, int]:
    """Return the number of measured runs of each of these jobs, those of its searches included."""
    parts = {state.job.id: (state.job.id, *searches(state)) for state in jobs}
    counts = store.job_trials([part for own in parts.values() for part in own])
    return {job: sum(counts[part] for part in own) for job, own in parts.items()}


def searches(state: JobState) -> tuple[str, ...]:
    """Return the ids of the jobs that a job on several devices consists of; none of another."""
    return tuple(map(str, state.said.get("searches") or ()))


def chosen(store: Database, name: str | None) -> JobState:
    """Return the job of an id, of its beginning or of a model; the newest of them, without a name of all. A job on
    several devices stands for its searches, unless one of them is named by its id.

    Raises UsageError.
    """
    jobs = jobs_of(store, _NEWEST if name is None else None)
    if not jobs:
        raise UsageError(f"{store.where} has no jobs: `autotune tune MODEL --db {store.where}` begins one")
    parts = {part for job in jobs for part in searches(job)}
    found = [job for job in jobs if name is not None and job.job.id.startswith(name)]
    found = found or [job for job in jobs if name in (None, job.job.model) and job.job.id not in parts]
    if not found:
        known = {job.job.id for job in jobs} | {job.job.model for job in jobs}
        raise UsageError(
            f"no job {name!r} in {store.where}{did_you_mean(str(name), known)}; `autotune jobs` lists them"
        )
    if name is not None and len({job.job.id for job in found}) > 1 and found[0].job.id.startswith(name):
        raise UsageError(
            f"{len(found)} jobs begin with {name!r}: {', '.join(job.job.id for job in found[:4])}; give more of it"
        )
    return found[-1]


def gain_of(said: Mapping[str, Any]) -> Ratio | None:
    """Return the ratio of the only model of a job: the whole model's, timed at the end, else what is confirmed by then.

    None where there is neither, or the job has several models.
    """
    models = said.get("models") or []
    if len(models) != 1:
        return None
    found = (said.get("gains") or {}).get(models[0]["model"]) or models[0].get("confirmed")
    return None if not found else Ratio.from_json(found)


def faster(state: JobState) -> str:
    """Return the speed-up of a job in a few characters."""
    gain = gain_of(state.said)
    return "-" if gain is None else f"{1 / gain.median:.2f}×" if gain.changed else "none"


def to_json(state: JobState, trials: int, target: str) -> dict[str, Any]:
    """Return what is known of a job without its report."""
    job, who = state.job, Owner.parse(state.job.owner)
    gain = gain_of(state.said)
    return {
        "id": job.id,
        "model": job.model,
        "target": target,
        "state": state.life.value,
        "why": state.explained or None,
        "trials": trials,
        "seconds": job.elapsed_s,
        "created": job.created,
        "heard": state.heard,
        "host": who.host,
        "pid": int(who.pid) if who.pid.isdigit() else None,
        "gain": None if gain is None else gain.to_json(),
    }


def table(
    jobs: Sequence[JobState], trials: Mapping[str, int], columns: int | None, now: float | None = None
) -> Iterator[str]:
    """Yield a line a job, names cut where they would be wider than ``columns``; below it what is unusual."""
    yield _FORMAT.format("job", "state", "begun", "worked", "trials", "speed-up") + "model"
    parts = {part for state in jobs for part in searches(state)}
    for state in jobs:
        job = state.job
        begun = time.strftime("%m-%d %H:%M", time.localtime(job.created))
        worked, count = duration(job.elapsed_s), trials[job.id]
        line = _FORMAT.format(job.id[:ID], state.life.value, begun, worked, count, faster(state))
        name = f"  {job.model}" if job.id in parts else title(state)
        yield line + cut(name, None if columns is None else max(LEAST_NAME, columns - len(line)))
        if state.explained:
            yield f"  {state.explained}"


def title(state: JobState) -> str:
    """Return the model of a job, with the devices where these are several."""
    devices = state.said.get("devices")
    return f"{state.job.model} on {', '.join(devices)}" if devices else state.job.model


_LABEL = 10
"""Characters of the names of facts."""


def status_lines(state: JobState, trials: int, target: str, columns: int | None) -> Iterator[str]:
    """Yield a job's state and what it last said of itself, a fact a line; longer ones go on below."""
    width = sys.maxsize if columns is None else columns
    indent = " " * (_LABEL + 2)
    why = f"; {state.explained}" if state.explained else ""
    yield from textwrap.wrap(f"job {state.job.id}: {state.life.value}{why}", width, subsequent_indent="  ")
    for name, text in facts(state, trials, target):
        yield from textwrap.wrap(
            text,
            width,
            initial_indent=f"  {name:<{_LABEL}}",
            subsequent_indent=indent,
            break_on_hyphens=False,
        )


def facts(state: JobState, trials: int, target: str) -> Iterator[tuple[str, str]]:
    """Yield what is known of a job, by names."""
    job, said, who = state.job, state.said, Owner.parse(state.job.owner)
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.created))
    yield "model", title(state) if searches(state) else f"{job.model}, for {target or job.target_key}"
    yield "begun", f"{begun} on {who.host}, process {who.pid or 'unknown'}; heard of {ago(state.silent_s)}"
    left, working = said.get("eta_s"), state.life in (Life.RUNNING, Life.WAITING)
    left = 0.0 if left is None or not working else left - state.silent_s
    eta = f", about {duration(left)} left" if left > 0 else ""
    yield "worked", f"{duration(job.elapsed_s)} of {said.get('budget', 'an unknown budget')}{eta}"
    bad = {name: count for name, count in said.get("outcomes", {}).items() if name != "ok"}
    failed = "".join(f", {count} {name}" for name, count in sorted(bad.items()))
    yield "trials", f"{trials}{failed}"
    if doing(state):
        yield "doing", doing(state)
    if searches(state):
        yield "searches", ", ".join(each[:ID] for each in searches(state))
    if not state.life.over and said.get("forecast"):
        yield "forecast", said["forecast"]["text"]
    yield from _gains(state)
    yield from (("node", line) for line in node_lines(said))


def doing(state: JobState) -> str:
    """Return what a job does now, as it said last; empty of one that is over."""
    phase, note = (state.said.get(name, "") for name in ("phase", "note"))
    return "" if state.life.over else f"{phase}: {note}".strip(": ")


def _gains(state: JobState) -> Iterator[tuple[str, str]]:
    """Yield what is known of the speed-up of each model, or why nothing is."""
    timed, models = state.said.get("gains") or {}, state.said.get("models") or []
    for model in models:
        found = timed.get(model["model"]) or model.get("confirmed")
        how = "whole model timed" if model["model"] in timed else "by dispatches compared in the model"
        yet, far = ("", "") if state.life.over else (" yet", " so far")
        text = (
            f"nothing confirmed{yet}: no candidate was faster in a comparison{far}" if found is None else ""
        )
        which = f"{model['model']}: " if len(models) > 1 else ""
        yield "speed-up", f"{which}{text or f'{Ratio.from_json(found)}, {how}'}"
    if not models:
        yield (
            "speed-up",
            "unknown: the job has stored nothing of itself (of an earlier version, or just begun)",
        )


__all__ = [
    "ID",
    "chosen",
    "doing",
    "facts",
    "faster",
    "gain_of",
    "jobs_of",
    "searches",
    "status_lines",
    "table",
    "title",
    "to_json",
    "trials_of",
]
