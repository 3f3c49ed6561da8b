"""Jobs on a simulated fleet of one to a thousand seats: when the plan is there, how busy seats are, and what limits."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.jobs.fleet import FleetOutcome, fleet_job
from autotune.bench.jobs.recording import RecordedJob, read_jobs
from autotune.bench.tables import number, percent
from autotune.distribution import version
from autotune.errors import UsageError
from autotune.target import Target
from autotune.tuning.fleet.fleet import Fleet, SeatWork

FOLDER = Path(__file__).parent.parent / "replay"
_MESSAGES = 4000
_TARGET = Target.parse("x86-64-v3", 1)


def measure(
    say: Say, names: Sequence[str], seats: Sequence[int], seconds: Sequence[float], jobs: int, builders: int
) -> Iterator[Sequence[Record]]:
    """Yield a record for each job, then one for the scheduler alone with each number of seats."""
    recordings = read_jobs(FOLDER)
    options.check_known(names, [one.model for one in recordings], "recording")
    wanted = [one for one in recordings if one.model in (names or ("squeezenet",))]
    if len(seats) != len(seconds):
        raise UsageError(
            f"--seats has {len(seats)} numbers, --seconds {len(seconds)}: a budget for each is wanted"
        )
    fleet_job(wanted[0], 2, builders, budget_s=10.0, seed=0)  # imports everything
    for count, budget_s in zip(seats, seconds, strict=True):
        for recording in wanted:
            for seed in range(1, 1 + jobs):
                yield [_job(recording, count, builders, budget_s, seed)]
                say(f"{recording.model} on {count} seats, job {seed}")
    for count in seats:
        say(f"the scheduler alone with {count} seats")
        yield [{"alone": count, "answers": _answers_a_second(count)}]


def _job(recording: RecordedJob, seats: int, builders: int, seconds: float, seed: int) -> Record:
    found = fleet_job(recording, seats, builders, budget_s=seconds, seed=seed)
    end = found.seconds
    until = min(end, found.job.plan_s)
    return {
        "seats": seats,
        "budget": seconds,
        "model": recording.model,
        "plan": found.job.plan_s,
        "half": found.job.half_s,
        "regret": found.job.regret,
        "wrong": len(found.job.wrong),
        "busy": found.use.share(recording.seconds.start, until),
        "busy all": found.use.share(recording.seconds.start, end),
        "computed": found.computed_s / end,
        **_rates(found),
    }


def _rates(found: FleetOutcome) -> dict[str, float]:
    return {
        "candidates": found.use.proposals / found.seconds,
        "processes": len(found.use.ends) / found.seconds,
        "writes": found.use.writes / found.seconds,
    }


@dataclass(frozen=True)
class _SeatAtOnce:
    """A seat that has measured as soon as it is asked."""

    def report(self) -> dict[str, Any]:
        """Return that it is of the target."""
        return {"host": "", "version": version(), "target": _TARGET.to_json(), "stolen_s": 0.0}

    def answer(self, text: str, mac: str, contents: Mapping[str, Any]) -> dict[str, Any]:
        """Return nothing."""
        return {"stolen_s": 0.0}

    def close(self) -> None:
        """Leave nothing."""


@dataclass(frozen=True)
class _ClusterAtOnce:
    count: int

    def places(self) -> Mapping[str, str]:
        """Return all seats."""
        return {f"seat{n}": f"seat{n}" for n in range(self.count)}

    def seat(self, place: str, key: bytes, job: str) -> _SeatAtOnce:
        """Return one."""
        return _SeatAtOnce()

    def put(self, data: bytes) -> object:
        """Return the data."""
        return data

    def close(self) -> None:
        """Leave nothing."""


def _answers_a_second(seats: int) -> float:
    """Return the messages a second of processor time for which the threads of a fleet get an answer."""
    with Fleet(_ClusterAtOnce(seats), _TARGET, "bench") as fleet:
        while len(fleet.ready) < seats:
            with fleet.lanes.aside():
                threading.Event().wait(0.01)
        begin = time.process_time()
        works = [fleet.submit(SeatWork({"do": "measure", "number": n})) for n in range(_MESSAGES)]
        for work in works:
            fleet.result(work)
        return _MESSAGES / (time.process_time() - begin)


def _median(name: str) -> Callable[[FrameRows], float | None]:
    def read(rows: FrameRows) -> float | None:
        found = sorted(float(value) for value in rows.all(name))
        return found[len(found) // 2] if found else None

    return read


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if math.isfinite(value) else "not in time"


EXPERIMENT = Experiment(
    title="A job on one to a thousand seats",
    about=(
        "Jobs of recorded models on simulated fleets. The loop, the policy, the searches, the scheduler of the fleet "
        "and the database (SQLite) are those of `autotune tune --fleet`; seats answer with what a recording says, "
        "after the seconds that were recorded. Time is virtual: it passes while seats and builders do what takes it, "
        "and by the processor time that the searching process itself uses for proposals, decisions, signatures and "
        "writes, in one thread at a time; waiting for the disk is not in it. Medians over jobs; the plan is there from "
        "when on what is in use is within 1 % of the best that there is, to the end of the job. Seats are busy while "
        "they measure: until the plan is there, and in the whole job. Where seats are idle, a measurement takes more "
        "processes, up to 48. The scheduler alone: messages a second of processor time to seats that answer at once, "
        "each with its thread."
    ),
    summary="Simulate jobs on 1 to 1,000 seats of a fleet; NAMES are recordings of results/replay.",
    example="squeezenet --seats 1,10,100,1000 -o results/seats.md",
    options=(
        options.words(),
        options.numbers("--seats", "1,10,100,1000", "Seats of a fleet.", int, 1),
        options.numbers("--seconds", "600,150,60,40", "Time budgets, in virtual seconds.", float, 1.0),
        options.number("--jobs", 1, "Of each recording and number of seats."),
        options.number("--builders", 16, "Cores of the searching machine that build candidates."),
    ),
    measure=measure,
    views=(
        TableView(
            "Jobs",
            ("model", "seats"),
            (
                Column("model", "model"),
                Column("seats", "seats"),
                Column("budget", "budget", _seconds),
                Column("jobs", lambda rows: len(rows.all("plan"))),
                Column("confirmed plan", _median("plan"), _seconds),
                Column("half of the gain", _median("half"), _seconds),
                Column("slower than the best", _median("regret"), percent(1)),
                Column("seats busy until the plan", _median("busy"), percent(0)),
                Column("in the whole job", _median("busy all"), percent(0)),
                Column("searching process computes", _median("computed"), percent(0)),
                Column("candidates a second", _median("candidates"), number(0)),
                Column("measurements a second", _median("processes"), number(0)),
                Column("writes a second", _median("writes"), number(0)),
                Column("wrong claims", lambda rows: sum(rows.all("wrong"))),
            ),
            where=lambda rows: rows.get("seats"),
        ),
        TableView(
            "The scheduler alone",
            ("alone",),
            (Column("seats", "alone"), Column("answers a second", "answers", number(0))),
            where=lambda rows: rows.get("alone"),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
