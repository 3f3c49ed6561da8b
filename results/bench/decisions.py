"""Decisions of jobs where the truth is known: a gain at one of ten sites, and none at all, on noisy machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.jobs.compare import options_of_jobs, share, wrong_claims
from autotune.bench.jobs.machine import MachineKind
from autotune.bench.jobs.made import SITES, normal_noise, nothing_to_gain, ten_sites
from autotune.bench.jobs.policies import POLICIES
from autotune.bench.jobs.replay import replay
from autotune.bench.tables import percent
from autotune.hardware import usable_cores

DEVIATIONS = (0.03, 0.06)
"""Standard deviations of what a process draws."""
DRIFT = 0.25
"""The amplitude of drift, over that."""
ONE, NOTHING = "5 % at one of ten sites", "nothing to gain"


def measure(
    say: Say, jobs: int, minutes: float, seed: int, processes: int | None
) -> Iterator[Sequence[Record]]:
    """Simulate jobs on machines with more and more noise, steady and loaded."""
    asked = [
        (what, deviation, loaded, seed + n)
        for what in (ONE, NOTHING)
        for deviation in DEVIATIONS
        for loaded in (False, True)
        for n in range(jobs)
    ]
    with ProcessPoolExecutor(processes or usable_cores(), get_context("spawn")) as pool:
        for row in pool.map(partial(simulated, budget_s=60 * minutes), asked):
            say(
                f"{row['what']}, {row['machine']}, seed {row['seed']}: {'used' if row['used'] else 'not used'}"
            )
            yield [{"jobs": jobs, "minutes": f"{minutes:g}", **row}]


def simulated(asked: tuple[str, float, bool, int], budget_s: float) -> Record:
    """Return a row for one job."""
    what, deviation, loaded, seed = asked
    noise = normal_noise(deviation)
    recording = ten_sites(noise, seed) if what == ONE else nothing_to_gain(noise)
    name = f"{100 * deviation:.0f} %, {'half the time at half speed' if loaded else 'steady'}"
    kind = MachineKind(name, noise, DRIFT * deviation, loaded)
    found = replay(recording, kind, POLICIES["policy"], budget_s=budget_s, seed=seed)
    return {
        "what": what,
        "machine": name,
        "seed": seed,
        "used": what == ONE and f"{seed % SITES:03}" in found.changed_sites,
        "worse": found.worse,
        "claims": found.claims,
        "wrong": found.wrong,
        "changed": found.changed,
        "spent": found.spent,
    }


_WORSE = Column("slower by 1 %", share("worse"), percent())
_CLAIMED = Column("change of the model claimed", share("changed"), percent())
_WRONG = Column("wrong claims", wrong_claims)

EXPERIMENT = Experiment(
    title="Decisions of simulated jobs",
    about="Jobs on ten sites of equal shares, each with three options, of which no estimate tells which is faster: one "
    "of one site takes 5 % less than the default, all others up to 30 % longer; and the same without any "
    "difference. The loop, its policy, decisions and claims are those of any job; the machine is simulated. "
    "Processes draw normal errors with the standard deviation given, rounds half of it, and latencies drift by a "
    "quarter of it. Used: jobs that end with the faster option. Slower by 1 %: jobs "
    "that end with any site that is. Wrong claims: intervals that exclude 1 and do not hold the truth.",
    summary="Simulate jobs where the truth is known: are gains used, and is anything claimed that is none?",
    example="--jobs 100 -o decisions.md",
    options=(
        options.number("--jobs", 100, "Of each kind, on each machine."),
        *options_of_jobs(5.0),
    ),
    measure=measure,
    views=(
        TableView(
            "5 % to gain at one of ten sites, {jobs} jobs of {minutes} minutes",
            ("what", "machine"),
            (
                Column("noise", "machine"),
                Column("used", share("used"), percent()),
                _WORSE,
                _CLAIMED,
                _WRONG,
            ),
            where=lambda rows: rows.get("what") == ONE,
        ),
        TableView(
            "Nothing to gain, {jobs} jobs of {minutes} minutes",
            ("what", "machine"),
            (Column("noise", "machine"), _CLAIMED, _WRONG),
            where=lambda rows: rows.get("what") == NOTHING,
        ),
    ),
)

__all__ = ["EXPERIMENT", "simulated"]
