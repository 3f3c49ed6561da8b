"""Recording a job: what a tuning database knows of a model, and the noise of the machine that it was tuned on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.bench import machine
from autotune.bench.jobs.recording import (
    ActionSeconds,
    NoiseQuantiles,
    RecordedCandidates,
    RecordedChoice,
    RecordedJob,
    RecordedPlace,
)
from autotune.compiler import divide
from autotune.compiler.plan import OPTION
from autotune.database import Database
from autotune.database.inside import ALONE_NOISE, Estimate, estimates
from autotune.database.posterior import ALONE, ALONE_ERROR, ROUNDS, Posterior, beliefs
from autotune.database.posterior import OPTION as OPTION_SPREAD
from autotune.database.records import Origin, Run
from autotune.machine_lock import Measuring
from autotune.passes.preference import TOLERANCE, Preference
from autotune.target import Target
from autotune.tuning.compare.interleaved import EVERY, PROCESSES
from autotune.tuning.compare.sites import Site
from autotune.tuning.jobs.model import MeasuredModel, work_of
from autotune.tuning.jobs.subject import Subject
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Profile, Version

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model

Say = Callable[[str], None]
QUANTILES = 41
FEW, MANY = 2, 9
"""Versions that are measured together: what each takes follows from the difference."""
_TRIAL_S, _BUILT = 2.0, 0.6
"""Runs that were stored so shortly after each other are of one search; the part of a trial that is building."""
_CHECK_S = 0.05


def record(model: Model, database: Database, target: Target, say: Say) -> RecordedJob:
    """Return all that a database knows of a model, with the noise of this machine: equal versions of the model are
    measured for about a minute, interleaved as in a comparison."""
    begun = time.monotonic()
    parts, preference = divide(model, target=target), Preference(TOLERANCE)
    subjects, sites = work_of(parts, target, preference)
    start = time.monotonic() - begun
    measured = MeasuredModel(parts, sites, target, database, preference, seed=0)
    untuned = Version({site.workload.key: site.default for site in sites}, {})
    with Measuring(f"replay record {parts.name}", say):
        noise, seconds, base = _measure(measured, untuned, start, _trial_s(database, subjects), say)
    history = database.comparison_histories([site.workload.key for site in sites], target.key, OPTION)
    known = beliefs(
        history,
        {s.workload.key: _expected(s) for s in sites},
        {s.workload.key: s.default.name for s in sites},
    )
    ns = {site.workload.key: float(np.median(base.series(site.workload.key, site.names))) for site in sites}
    compared = {(key, row.name) for key, rows in history.items() for row in rows}
    spread = _spread_of_estimates(sites, known, compared)
    places = [
        _place(site, ns[site.workload.key], known[site.workload.key], compared, spread) for site in sites
    ]
    workloads = _workloads(database, subjects, sites, ns)
    return RecordedJob(
        parts.name,
        target.to_json(),
        machine.facts(),
        measured.nbytes,
        seconds,
        noise,
        tuple(places),
        workloads,
    )


def _expected(site: Site) -> dict[str, float]:
    return {option.name: site.expected_ns.get(option.name, 1.0) for option in site.options}


def _measure(
    model: MeasuredModel, untuned: Version, start: float, trial: float, say: Say
) -> tuple[NoiseQuantiles, ActionSeconds, Profile]:
    """Return the noise, the seconds of actions, and the times of the default of a model."""
    model.read([untuned] * 2, Rounds(1, processes=1), lambda: False)  # builds the defaults
    taken, profiles = dict[tuple[int, int], float](), list[list[Profile]]()
    for versions, processes in ((FEW, PROCESSES), (MANY, PROCESSES), (MANY, 1), (MANY, PROCESSES)):
        say(f"measuring {versions} equal versions of the model, interleaved in {processes} processes")
        begun = time.monotonic()
        rounds = Rounds(ROUNDS * processes, ROUNDS, processes, every=EVERY)
        read = model.read([untuned] * versions, rounds, lambda: False)
        turns = rounds.most * (versions + math.ceil((versions - 1) / EVERY) - 1) * rounds.turn_ns / 1e9
        taken[versions, processes] = time.monotonic() - begun - turns
        if processes > 1:
            profiles.append([profile for profile in read if profile is not None])
    many, few, one = taken[MANY, PROCESSES], taken[FEW, PROCESSES], taken[MANY, 1]
    each = max(0.0, (many - few) / (MANY - FEW))  # assembled once, loaded in each process
    again = max(0.0, (many - one) / (PROCESSES - 1))  # a process, and all loaded in it
    load = min(each / PROCESSES, again / MANY)
    process, assemble = again - MANY * load, each - PROCESSES * load
    seconds = ActionSeconds(
        start, _BUILT * trial, (1 - _BUILT) * trial, _CHECK_S, process, max(0.0, assemble), load
    )
    return _noise(profiles), seconds, profiles[-1][0]


def _noise(profiles: Sequence[Sequence[Profile]]) -> NoiseQuantiles:
    """Return what equal versions took over each other: of both the half of the variance."""
    drawn, rounds, sessions = [], [], []
    for several in profiles:
        logs = np.stack([np.log(p.ns / several[0].ns) for p in several[1:]]) / math.sqrt(2)
        logs = logs.reshape(len(logs), PROCESSES, ROUNDS, -1)
        middle = np.median(logs, axis=2)
        rounds.append((logs - middle[:, :, None]).ravel() * math.sqrt(ROUNDS / (ROUNDS - 1)))
        mean = middle.mean(axis=1)
        drawn.append((middle - mean[:, None]).ravel() * math.sqrt(PROCESSES / (PROCESSES - 1)))
        sessions.append((float(np.var(mean)), float(np.var(drawn[-1])) / PROCESSES))
    session = math.sqrt(max(0.0, float(np.mean([whole - part for whole, part in sessions]))))
    return NoiseQuantiles(
        _quantiles(np.concatenate(drawn)), _quantiles(np.concatenate(rounds)), session, ALONE_NOISE
    )


def _quantiles(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(map(float, np.quantile(values, np.linspace(0.0, 1.0, QUANTILES))))


def _trial_s(database: Database, subjects: Sequence[Subject]) -> float:
    """Return the seconds from one candidate to the next, the mean over all that follow each other."""
    created = sorted(run.created for subject in subjects for run in _runs(database, subject))
    between = np.diff(created)
    mine = between[between < _TRIAL_S]
    return float(mine.mean()) if len(mine) else 0.15


def _runs(database: Database, subject: Subject) -> list[Run]:
    space = subject.space
    return database.records(workload=subject.workload.key, target=space.target.key, space=space.key)


def _spread_of_estimates(
    sites: Sequence[Site], known: Mapping[str, Mapping[str, Posterior]], compared: Collection[tuple[str, str]]
) -> tuple[float, float]:
    """Return mean and standard deviation of what options take over their estimates, in logs, over those compared."""
    off = [
        known[site.workload.key][option.name].mean - math.log(_ratio(site, option.name))
        for site in sites
        for option in site.options[1:]
        if (site.workload.key, option.name) in compared and option.name in known[site.workload.key]
    ]
    return (float(np.mean(off)), float(np.std(off))) if len(off) > 1 else (0.0, OPTION_SPREAD)


def _place(
    site: Site,
    ns: float,
    known: Mapping[str, Posterior],
    compared: Collection[tuple[str, str]],
    spread: tuple[float, float],
) -> RecordedPlace:
    """Return a site; options that were never compared are off from their estimates as others are."""

    def choice(name: str, keys: Sequence[str]) -> RecordedChoice:
        found = known[name]
        if name != site.default.name and (site.workload.key, name) not in compared:
            found = Posterior(math.log(_ratio(site, name)) + spread[0], spread[1])
        return RecordedChoice(name, tuple(keys), site.expected_ns.get(name, 0.0), found.mean, found.error)

    options = [option for option in site.options if option.name in known]
    choices = tuple(
        choice(option.name, [_short(region.key) for region in option.regions]) for option in options
    )
    return RecordedPlace(site.names, _short(site.workload.key), ns, choices)


def _short(key: str) -> str:
    return key[:12]


def _workloads(
    database: Database, subjects: Sequence[Subject], sites: Sequence[Site], ns: Mapping[str, float]
) -> tuple[RecordedCandidates, ...]:
    """Return the candidates of all workloads; a default that was never timed takes its share of the site."""
    share = {
        region.key: ns[site.workload.key] * _ratio(site, option.name) / len(option.regions)
        for site in sites
        for option in site.options
        for region in option.regions
    }
    return tuple(_candidates(database, subject, share[subject.workload.key]) for subject in subjects)


def _ratio(site: Site, name: str) -> float:
    default, other = site.expected_ns.get(site.default.name), site.expected_ns.get(name)
    return other / default if default and other else 1.0


def _candidates(database: Database, subject: Subject, usual_ns: float) -> RecordedCandidates:
    runs, key = _runs(database, subject), subject.workload.key
    default = next((run for run in runs if run.origin is Origin.DEFAULT and run.latency), None)
    alone_ns = usual_ns if default is None else default.latency_ns
    found = tuple[tuple[float, float, float], ...]()
    if default is not None:
        inside = _inside(database, default)
        found = tuple(
            _candidate(run, alone_ns, inside.get(run.trace_key)) for run in runs if run is not default
        )
    return RecordedCandidates(_short(key), subject.workload.kind, subject.floor_ns, alone_ns, found)


def _inside(database: Database, default: Run) -> dict[str, Estimate]:
    return estimates(database.readings(default.key), database.compared_schedules(default.key))


def _candidate(run: Run, alone_ns: float, inside: Estimate | None) -> tuple[float, float, float]:
    if not run.latency or run.crashed:
        return 0.0, 0.0, 0.0
    ratio = run.latency_ns / alone_ns
    if inside is None:
        return ratio, ALONE * math.log(ratio), ALONE_ERROR
    return ratio, inside.posterior.mean, inside.posterior.error


__all__ = ["record"]
