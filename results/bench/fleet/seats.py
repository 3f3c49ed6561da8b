"""The time of a job on one seat and on two, each of which has a core of its own, as an experiment."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import psutil

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, at
from autotune.bench.tables import number, ratio
from autotune.files import scratch_folder
from autotune.frontends.model_builder import ModelBuilder
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress, Status
from results.bench.fleet.nodes import RayNodes

LEVEL = "x86-64-v3"
"""The level that seats with one core count as: they are no longer the target of the whole machine."""
NEAR = 0.01
"""A plan is as good as that of the end when its confirmed latency is within so much of it."""
_PINNED = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
square, count = np.ones((256, 256), np.float32), 0
print(flush=True)
sys.stdin.readline()
end = time.monotonic() + 1.0
while time.monotonic() < end:
    count += 1
    square @ square
    sum(range(10_000))
print(count)
"""
"""Products of matrices in the caches and loops of Python on one core, for a second: as many as there is time for."""
_PAIRS = 5
_CONVOLUTIONS = ((3, 1), (3, 2), (3, 1), (5, 1))
"""The sizes and strides of the convolutions of the model."""


@dataclass
class Confirmed(Progress):
    """Notes when the confirmed latency, over that of the default, became what."""

    begun: float = field(default_factory=time.monotonic)
    steps: list[tuple[float, float]] = field(default_factory=list)
    busy_s: float = 0.0
    """Seconds in which the seats have measured."""
    computed_s: float = 0.0
    """Seconds of processors that the searching process and its builders have used."""
    _status: Status | None = None

    def started(self, status: Status) -> None:
        """Begin to count: the seats are there."""
        self.begun, self._status = time.monotonic(), status
        self.busy_s, self.computed_s = self._used()

    def _used(self) -> tuple[float, float]:
        """Return the seconds that seats have measured, and those of processors that this process and its builders have
        used."""
        assert self._status is not None
        me = psutil.Process()
        builders = [child for child in me.children() if "autotune.tuning.measure.worker" in child.cmdline()]
        times = [process.cpu_times() for process in (me, *builders)]
        seats = [node["busy_s"] for node in self._status.nodes()]
        return sum(seats), sum(each.user + each.system for each in times)

    def phase(self, status: Status) -> None:
        """Note what is confirmed."""
        ratio = 1.0 if status.confirmed is None else status.confirmed.median
        if not self.steps or self.steps[-1][1] != ratio:
            self.steps.append((time.monotonic() - self.begun, ratio))

    def finished(self, report: Report) -> None:
        """Note the end."""
        self.steps.append((time.monotonic() - self.begun, self.steps[-1][1] if self.steps else 1.0))
        busy_s, computed_s = self._used()
        self.busy_s, self.computed_s = busy_s - self.busy_s, computed_s - self.computed_s

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
    say("two processes, each pinned to a core")
    slower = _slower_together()
    yield [{"of": "pair", "slower": slower}]
    for seed in range(jobs):
        with scratch_folder("autotune-bench-") as folder:
            model = names[0] if names else _depthwise(folder / "depthwise.onnx")
            order = (1, 2) if seed % 2 == 0 else (2, 1)
            found = {seats: _job(model, folder / str(seats), seats, seed, trials, say) for seats in order}
        target = max(one.ratio for one in found.values()) * (1 + NEAR)
        yield [
            {
                "of": "job",
                "job": seed + 1,
                "seats": seats,
                "end_s": one.end_s,
                "busy_s": one.busy_s,
                "computed_s": one.computed_s,
                "slower": slower,
                "plan_s": one.reached_s(target),
                "ratio": one.ratio,
            }
            for seats, one in sorted(found.items())
        ]


def _depthwise(path: Path) -> str:
    """Write a model of depthwise convolutions of [1, 32, 112, 112], a transpose before them: tuned it takes less than
    half of its time at the level."""
    model = ModelBuilder("depthwise")
    value = model.input("x", (1, 32, 112, 112))
    for n, (size, stride) in enumerate(_CONVOLUTIONS):
        weights = model.constant(f"w{n}", model.rng.random((32, 1, size, size), np.float32))
        given = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4, "group": 32}
        value = model.node("Relu", [model.node("Conv", [value, weights], f"c{n}", **given)], f"r{n}")
    onnx.save(model.finish([value]), path)
    return str(path)


def _slower_together() -> float:
    """Return by how much two processes, each pinned to a core, slow each other: the work a second of one alone over
    that of one beside another."""
    alone = [_counts(1)[0] for _ in range(_PAIRS)]
    both = [sum(_counts(2)) / 2 for _ in range(_PAIRS)]
    return median(alone) / median(both)


def _counts(cores: int) -> list[int]:
    command = [sys.executable, "-c", _PINNED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*command, str(core)], **pipes) for core in range(cores)]  # type: ignore[call-overload]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [int(process.communicate()[0]) for process in processes]


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


def _least(rows: FrameRows) -> float | None:
    """Return the least that two cores can make of the time of one seat: what that seat and the searching process do,
    divided by two and slowed as two processes slow each other, over the time of the job."""
    one = rows.where(seats=1)
    if not one.get("end_s"):
        return None
    work = one.get("busy_s") + one.get("computed_s")
    return float(work / 2 * one.get("slower") / one.get("end_s"))


ABOUT = (
    "The same job on one seat and on two, of a model of four depthwise convolutions unless another one is named: nodes "
    "of a Ray cluster on this machine, each pinned to a core of its own. The searching process and its builders run on "
    "the same two cores, also where there is one seat. The time begins with the first candidate; a plan is confirmed "
    "when its latency is within 1 % of the worse one of both ends. What the only seat measured and what the searching "
    "process computed, divided by two, is the least that two cores can take for the same work, times what two "
    "processes slow each other by: the last column."
)

EXPERIMENT = Experiment(
    title="A job on one seat and on two",
    about=ABOUT,
    summary="Time jobs on one seat and on two, each pinned to a core; NAME is another model.",
    example="--jobs 5 -o results/fleet-seats.md",
    options=(
        options.words(),
        options.number("--jobs", 5, "Jobs, each on one seat and on two."),
        options.number("--trials", 40, "Candidates of each."),
    ),
    measure=measure,
    views=(
        TableView(
            "Two processes, each pinned to a core",
            ("of",),
            (Column("time of one beside another ÷ alone", "slower", ratio),),
            of="pair",
        ),
        TableView(
            "Until the plan is confirmed",
            ("job",),
            (
                Column("job", "job"),
                _seconds("plan_s", 1),
                _seconds("plan_s", 2),
                _over("plan_s"),
                Column("confirmed, 1 seat", at("ratio", seats=1), ratio),
                Column("confirmed, 2 seats", at("ratio", seats=2), ratio),
            ),
            of="job",
        ),
        TableView(
            "Until the end of the job",
            ("job",),
            (
                Column("job", "job"),
                _seconds("end_s", 1),
                _seconds("end_s", 2),
                _over("end_s"),
                Column("seat measures, of 1", at("busy_s", seats=1), number(1, " s", 1.0)),
                Column("seats measure, of 2", at("busy_s", seats=2), number(1, " s", 1.0)),
                Column("searching process computes, of 1", at("computed_s", seats=1), number(1, " s", 1.0)),
                Column("of 2", at("computed_s", seats=2), number(1, " s", 1.0)),
                Column("least ÷", _least, ratio),
            ),
            of="job",
        ),
    ),
)

__all__ = ["EXPERIMENT"]
