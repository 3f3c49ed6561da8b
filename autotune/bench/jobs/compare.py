"""Policies compared over whole jobs that are simulated from recordings, as an experiment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.tables import percent
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.jobs.machine import MachineKind
    from autotune.bench.jobs.recording import NoiseQuantiles, RecordedJob

QUIET, NOISY, LOADED = "quiet", "noisy", "loaded"
MACHINES = (QUIET, NOISY, LOADED)
"""As recorded; a process draws 4 % and there is drift; 6 %, and half the time everything takes twice as long."""


@dataclass(frozen=True)
class JobCase:
    """A job to simulate: of a recording, on a machine, with a seed of all that is drawn."""

    recording: RecordedJob
    machine: str
    seed: int


def machine_of(name: str, noise: NoiseQuantiles) -> MachineKind:
    """Return a machine by its name."""
    from autotune.bench.jobs.machine import MachineKind

    recorded = MachineKind.recorded(noise)
    if name == NOISY:
        return recorded.with_noise(name, 0.04, drift=0.015)
    return recorded if name == QUIET else recorded.with_noise(name, 0.06, drift=0.02, loaded=True)


def cases(recordings: Sequence[RecordedJob], machines: Sequence[str], jobs: int, seed: int) -> list[JobCase]:
    """Return so many jobs: each recording on each machine in turn, each with a seed of its own."""
    both = [(recording, machine) for machine in machines for recording in recordings]
    return [JobCase(*both[n % len(both)], seed + n) for n in range(jobs)]


def measure(
    say: Say,
    folder: Path,
    policies: Sequence[str],
    machines: Sequence[str],
    jobs: int,
    minutes: float,
    seed: int,
    processes: int | None,
) -> Iterator[Sequence[Record]]:
    """Simulate jobs of the recordings in a folder by each policy."""
    from autotune.bench.jobs.recording import read_jobs
    from autotune.hardware import usable_cores

    found = cases(read_jobs(folder), machines, jobs, seed)
    asked = [(case, policy) for case in found for policy in policies]
    work = partial(simulated, budget_s=60 * minutes)
    about = {"jobs": jobs, "minutes": f"{minutes:g}"}
    with ProcessPoolExecutor(processes or usable_cores(), get_context("spawn")) as pool:
        for (case, policy), outcome in zip(asked, pool.map(work, asked), strict=True):
            say(
                f"{case.recording.model} on {case.machine}, seed {case.seed}: {policy}, {outcome['regret']:.4f}"
            )
            yield [{**about, **outcome}]


def simulated(asked: tuple[JobCase, str], budget_s: float) -> Record:
    """Return a row for a job by a policy."""
    from autotune.bench.jobs.policies import POLICIES
    from autotune.bench.jobs.replay import replay

    case, policy = asked
    kind = machine_of(case.machine, case.recording.noise)
    found = replay(case.recording, kind, POLICIES[policy], budget_s=budget_s, seed=case.seed)
    row = {name: value for name, value in vars(found).items() if name != "steps"}
    return {
        "policy": policy,
        "model": case.recording.model,
        "machine": case.machine,
        "seed": case.seed,
        **row,
    }


def _median_s(column: str) -> Any:
    def median(rows: FrameRows) -> float:
        return float(np.median(rows.all(column)))

    return median


def _minutes(seconds: float) -> str:
    return "not reached" if math.isinf(seconds) else f"{seconds:.0f} s"


def _reached(rows: FrameRows) -> float:
    return float(np.mean(np.isfinite(rows.all("plan_s"))))


def _mean(column: str) -> Any:
    def mean(rows: FrameRows) -> float:
        return float(np.mean(rows.all(column)))

    return mean


def share(column: str) -> Callable[[FrameRows], float]:
    """Return the share of jobs in which a column has something."""
    return lambda rows: float(np.mean([bool(one) for one in rows.all(column)]))


def wrong_claims(rows: FrameRows) -> str:
    """Return how many of the claims do not hold."""
    return f"{sum(map(len, rows.all('wrong')))} of {sum(rows.all('claims'))}"


COLUMNS = (
    Column("plan", _median_s("plan_s"), _minutes),
    Column("reached", _reached, percent()),
    Column("half of it", _median_s("half_s"), _minutes),
    Column("regret", _mean("regret"), percent(2)),
    Column("slower sites", share("worse"), percent()),
    Column("wrong claims", wrong_claims),
    Column("spent", _mean("spent"), percent()),
    Column("useful", _mean("useful"), percent()),
    Column("forecasts", _mean("held"), percent()),
    Column("wide", _mean("width"), percent(1)),
)


def _policies() -> Sequence[str]:
    from autotune.bench.jobs.policies import POLICIES

    return tuple(POLICIES)


def options_of_jobs(minutes: float) -> tuple[click.Option, ...]:
    """Return the options of all simulated jobs, with the default of their budget."""
    return (
        click.Option(
            ["--minutes"],
            type=click.FloatRange(0.5),
            default=minutes,
            show_default=True,
            metavar="M",
            help="The budget of each job, on the simulated clock.",
        ),
        options.seed(),
        options.number("--processes", None, "That simulate. [default: one a core]"),
    )


EXPERIMENT = Experiment(
    title="Policies in simulated jobs",
    about="Whole tuning jobs, each drawn from a recording: what options and candidates take where it was measured, "
    "what is likely where it was not. The loop, its decisions and its database are those of a job; the machine "
    "is simulated. All policies get the same jobs. Plan: from when on what is used is within 1 % of the best plan "
    "that there is, the median over jobs; reached: in so many of them. Half of it: the same of half of the best "
    "plan's gain. Regret: the latency of the final plan over the best one's. Slower sites: jobs that end with any "
    "site 1 % slower than untuned. Wrong claims: intervals at the end that do not hold the truth. Spent: of the "
    "budget. Useful: of the search's seconds those on options and workloads in use at the end, or within 10 % of "
    "it. Forecasts: so many jobs end with a gain in the interval that was forecast at a fifth of the budget, which is "
    "so wide in the mean. Machines: quiet as recorded, noisy (processes draw 4 %, latencies drift by 1.5 %), loaded "
    "(6 %, 2 %, half the time at half speed).",
    summary="""Simulate jobs from the recordings in FOLDER by several policies: how soon is the best plan in use?

    All seeds give the same jobs again, on any machine.""",
    example="results/replay --policies policy,in-turn,options-only -o policies.md",
    options=(
        click.Argument(["folder"], type=click.Path(exists=True, file_okay=False, path_type=Path)),
        options.listed(
            "--policies",
            "policy,in-turn,options-only",
            "That of jobs; actions in turn; by chance; options alone; the largest gain, whatever time it takes.",
            known=_policies,
            what="policy",
        ),
        options.listed(
            "--machines",
            ",".join(MACHINES),
            "Those that jobs are simulated on.",
            known=lambda: MACHINES,
            what="machine",
        ),
        options.number("--jobs", 20, "That each policy does."),
        *options_of_jobs(2.0),
    ),
    measure=measure,
    views=(
        TableView("{jobs} jobs of {minutes} minutes", ("policy",), (Column("policy", "policy"), *COLUMNS)),
        TableView(
            "On each machine",
            ("machine", "policy"),
            (Column("machine", "machine"), Column("policy", "policy"), *COLUMNS),
        ),
        TableView(
            "Of each model",
            ("model", "policy"),
            (
                Column("model", "model"),
                Column("policy", "policy"),
                Column("best ÷ untuned", _mean("best"), lambda value: f"{value:.3f}"),
                *COLUMNS[:4],
            ),
        ),
    ),
    notes=lambda rows: [f"models: {counted(len({*rows.all('model')}), 'recording')}"],
)

__all__ = [
    "COLUMNS",
    "EXPERIMENT",
    "MACHINES",
    "JobCase",
    "cases",
    "machine_of",
    "options_of_jobs",
    "share",
    "simulated",
    "wrong_claims",
]
