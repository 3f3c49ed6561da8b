"""The time of a job on one seat and on two, each of which has a core of its own, as an experiment."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.tables import number, ratio
from autotune.files import scratch_folder
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress, Status
from results.bench.fleet.nodes import RayNodes

LEVEL = "x86-64-v4"
"""The level that seats with one core count as: they are no longer the target of the whole machine."""
NEAR = 0.01
"""A plan is as good as that of the end when its confirmed latency is within so much of it."""


@dataclass
class Confirmed(Progress):
    """Notes when the confirmed latency, over that of the default, became what."""

    begun: float = field(default_factory=time.monotonic)
    steps: list[tuple[float, float]] = field(default_factory=list)

    def started(self, status: Status) -> None:
        """Begin to count: the seats are there."""
        self.begun = time.monotonic()

    def phase(self, status: Status) -> None:
        """Note what is confirmed."""
        ratio = 1.0 if status.confirmed is None else status.confirmed.median
        if not self.steps or self.steps[-1][1] != ratio:
            self.steps.append((time.monotonic() - self.begun, ratio))

    def finished(self, report: Report) -> None:
        """Note the end."""
        self.steps.append((time.monotonic() - self.begun, self.steps[-1][1] if self.steps else 1.0))

    @property
    def end_s(self) -> float:
        """Return the seconds from the first candidate to the report."""
        return self.steps[-1][0]

    @property
    def ratio(self) -> float:
        """Return the confirmed latency at the end, over that of the default."""
        return self.steps[-1][1]

    def reached_s(self, ratio: float) -> float | None:
        """Return when the confirmed latency was ``ratio`` or less; None if it never was."""
        return next((at for at, found in self.steps if found <= ratio), None)


def measure(say: Say, names: Sequence[str], jobs: int, trials: int) -> Iterator[Sequence[Record]]:
    """Yield a record of each job on one seat, then on two. Raises what tuning does."""
    model = (names or ["zoo:mlp"])[0]
    for seed in range(jobs):
        with scratch_folder("autotune-bench-") as folder:
            order = (1, 2) if seed % 2 == 0 else (2, 1)
            found = {seats: _job(model, folder / str(seats), seats, seed, trials, say) for seats in order}
        target = max(one.ratio for one in found.values()) * (1 + NEAR)
        yield [
            {
                "job": seed + 1,
                "seats": seats,
                "end_s": one.end_s,
                "plan_s": one.reached_s(target),
                "ratio": one.ratio,
            }
            for seats, one in sorted(found.items())
        ]


def _job(model: str, folder: Path, seats: int, seed: int, trials: int, say: Say) -> Confirmed:
    say(f"job {seed + 1} on {seats}")
    with RayNodes(folder / "nodes") as cluster:
        for core in range(seats):
            cluster.add(host=LEVEL).pin(core)
        confirmed = Confirmed()
        autotune.tune(
            model,
            budget=Budget(trials=trials),
            seed=seed,
            target=LEVEL,
            threads=1,
            database=folder / "tuning.db",
            time_model=False,
            fleet=cluster.address,
            progress=confirmed,
        )
    return confirmed


def _seconds(column: str, seats: int) -> Column:
    def read(rows: FrameRows) -> float | None:
        value = rows.where(seats=seats).get(column)
        return None if value is None else float(value)

    return Column(f"{seats} seat{'s' * (seats > 1)}", read, number(1, " s", 1.0))


def _over(column: str) -> Column:
    def read(rows: FrameRows) -> float | None:
        one, two = (rows.where(seats=seats).get(column) for seats in (1, 2))
        return None if not one or two is None else float(two / one)

    return Column("÷", read, ratio)


ABOUT = (
    "The same job on one seat and on two: nodes of a Ray cluster on this machine, each pinned to a core of its own. "
    "The searching process and its builders run on the same cores. The time begins with the first candidate; a plan is "
    "confirmed when its latency is within 1 % of the worse one of both ends."
)

EXPERIMENT = Experiment(
    title="A job on one seat and on two",
    about=ABOUT,
    summary="Time jobs on one seat and on two, each pinned to a core; NAME is a model.",
    example="zoo:mlp --jobs 5 -o results/fleet-seats.md",
    options=(
        options.words(),
        options.number("--jobs", 5, "Jobs, each on one seat and on two."),
        options.number("--trials", 60, "Candidates of each."),
    ),
    measure=measure,
    views=(
        TableView(
            "Until the plan is confirmed",
            ("job",),
            (Column("job", "job"), _seconds("plan_s", 1), _seconds("plan_s", 2), _over("plan_s")),
        ),
        TableView(
            "Until the end of the job",
            ("job",),
            (Column("job", "job"), _seconds("end_s", 1), _seconds("end_s", 2), _over("end_s")),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
