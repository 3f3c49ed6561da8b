"""One job that is killed again and again, at random moments, and what it leaves each time.

``python -m tests.tuning.kills [KILLS] [MODEL...]`` prints a row for each kill.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.patience import PATIENCE_S

MARK = "AUTOTUNE_TEST_KILLED"
"""A variable in the environment of the job and of all processes that it starts."""
_MOST = 80
"""So many runs of a session that waits for something to be read inside the model."""
_LAST = 40
"""So many more runs end the job, after the last kill, unless the caller says how many."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Moment:
    """When a session is killed: ``delay_s`` after the first event for which ``of`` holds; None: after its start."""

    name: str
    delay_s: float
    of: Callable[[Event], bool] | None = None


def random_moments(count: int) -> Iterator[Moment]:
    """Yield so many moments, the same ones each time."""
    rng = random.Random(0)
    return (moment(rng) for _ in range(count))


def moment(rng: random.Random) -> Moment:
    """While it starts, while it stores a run, while candidates are read inside the model, or while it compares."""
    kind = rng.choice(["start", "store", "store", "read", "compare", "compare"])
    if kind == "start":
        return Moment(kind, rng.uniform(0.0, 8.0))
    if kind == "store":  # the next run is stored some milliseconds after the last one was reported
        return stores(rng.randrange(1, 9), rng.uniform(0.0, 0.5))
    return reads(rng.uniform(0.0, 6.0)) if kind == "read" else compares(rng.uniform(0.0, 20.0))


def stores(runs: int, delay_s: float) -> Moment:
    """Return a moment after so many runs were reported."""
    return Moment("store", delay_s, _after(runs, lambda event: False))


def reads(delay_s: float) -> Moment:
    """Return a moment after candidates are begun to be measured inside the model."""
    return Moment(
        "read",
        delay_s,
        _after(_MOST, lambda event: event["event"] == "next" and event["action"] == "measure"),
    )


def compares(delay_s: float) -> Moment:
    """Return a moment after versions of the model are begun to be compared."""
    return Moment(
        "compare",
        delay_s,
        _after(_MOST, lambda event: event["event"] == "phase" and "interleaved" in event.get("note", "")),
    )


def _after(count: int, wanted: Callable[[Event], bool]) -> Callable[[Event], bool]:
    """Return whether an event is what is waited for, or so many runs were reported."""
    left = [count]

    def enough(event: Event) -> bool:
        left[0] -= event["event"] == "measured"
        return left[0] <= 0 or wanted(event)

    return enough


@dataclass(frozen=True)
class Stored:
    """Return the content of a database: runs and readings by their keys, sites with a winner."""

    runs: Counter[tuple[str, str]]
    readings: frozenset[tuple[int, float]]
    compared: frozenset[tuple[str, str, float]]
    jobs: tuple[tuple[str, str], ...]
    damage: tuple[str, ...]

    @property
    def sites(self) -> frozenset[tuple[str, str]]:
        """Those that were compared, by workload and kind."""
        return frozenset((workload, kind) for workload, kind, _ in self.compared)

    @staticmethod
    def read(path: Path) -> Stored:
        """Nothing where there is no database yet."""
        if not path.exists():
            return _nothing()
        with closing(sqlite3.connect(path)) as found:

            def rows(query: str) -> list[Any]:
                return found.execute(query).fetchall()

            integrity = [str(row) for row in rows("PRAGMA integrity_check") if row != ("ok",)]
            damage = integrity + [str(row) for row in rows("PRAGMA foreign_key_check")]
            if not rows("SELECT 1 FROM sqlite_master WHERE name = 'readings'"):
                return _nothing(damage)
            return Stored(
                Counter(rows("SELECT workload_key, trace_key FROM runs")),
                frozenset(rows("SELECT run_id, created FROM readings")),
                frozenset(rows("SELECT workload_key, site, created FROM comparisons WHERE won")),
                tuple(rows("SELECT id, state FROM jobs")),
                tuple(damage),
            )


def _nothing(damage: Iterable[str] = ()) -> Stored:
    return Stored(Counter(), frozenset(), frozenset(), (), tuple(damage))


@dataclass
class KilledJob:
    """A job of some models in ``folder``; each session continues it and is killed, the last one ends it."""

    folder: Path
    models: tuple[str, ...]
    reported: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Runs that a session said to be stored."""
    names: set[str] = field(default_factory=set)
    """Of all jobs that sessions said to be."""

    def __post_init__(self) -> None:
        self.temporary.mkdir()

    @property
    def database(self) -> Path:
        return self.folder / "tuning.db"

    @property
    def temporary(self) -> Path:
        """The only folder for temporary files."""
        return self.folder / "tmp"

    def session(self, trials: int, when: Moment | None = None) -> int:
        """Continue the job until it is killed or has so many trials; its exit status."""
        command = [
            sys.executable,
            "-m",
            "autotune.cli.main",
            "tune",
            *self.models,
            "--json",
            "--threads",
            "1",
        ]
        command += ["--trials", str(trials), "--db", str(self.database)]
        environment = {**os.environ, MARK: str(self.folder), "TMPDIR": str(self.temporary)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        timer: threading.Timer | None = None
        if when is not None and when.of is None:
            timer = _kill_after(process, when.delay_s)
        for event in _events(process):
            if event["event"] == "started":
                self.names.add(event["job"])
            if event["event"] == "measured":
                self.reported[event["workload"], event["trace"]] += 1
            if timer is None and when is not None and when.of is not None and when.of(event):
                timer = _kill_after(process, when.delay_s)
        status = process.wait()
        if timer is not None:
            timer.cancel()
        return status

    def orphans(self) -> list[str]:
        """Processes of the job that still run, after some time to end."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := list(self._processes())) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _processes(self) -> Iterator[str]:
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.folder):
                    yield " ".join(process.cmdline())
            except psutil.Error:
                continue

    def left(self) -> list[str]:
        """Temporary files and folders."""
        return sorted(path.name for path in self.temporary.iterdir())


def _kill_after(process: subprocess.Popen[str], seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    return timer


def _events(process: subprocess.Popen[str]) -> Iterator[Event]:
    """The whole lines that it wrote, also those from just before it was killed."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):
            yield json.loads(line)


def kill_often(
    job: KilledJob, moments: Iterable[Moment], say: Callable[[str], None], last: int = _LAST
) -> None:
    """Kill a job at moments, then let it end after ``last`` more runs; raises AssertionError where something was lost,
    doubled or left."""
    before, first, most = Stored.read(job.database), frozenset[tuple[str, str, float]](), 0
    for number, when in enumerate(moments, 1):
        status = job.session(1_000_000, when)
        assert status == -9, f"{when.name}: the session was not killed but ended with {status}"
        after = Stored.read(job.database)
        _check(job, before, after)
        folders = job.left()
        say(
            f"| {number} | {when.name} | {sum(job.reported.values())} | {after.runs.total()} | {len(after.readings)} | "
            f"{len(after.sites)} | {len(after.compared)} | {len(folders)} |"
        )
        first = first or after.compared
        before, most = after, max(most, len(folders))
        assert most <= 4, folders  # no more than a session has at once
    trials = before.runs.total() + last
    assert job.session(trials) == 0
    after = Stored.read(job.database)
    _check(job, before, after)
    say(
        f"| end | | {sum(job.reported.values())} | {after.runs.total()} | {len(after.readings)} | {len(after.sites)} | "
        f"{len(after.compared)} | {len(job.left())} |"
    )
    assert after.runs.total() == trials
    assert after.compared > first
    assert {state for _, state in after.jobs} == {"done"}


def _check(job: KilledJob, before: Stored, after: Stored) -> None:
    assert after.damage == ()
    assert set(after.runs.values()) <= {1}
    assert set(job.reported.values()) <= {1}
    assert job.reported.keys() <= after.runs.keys()
    assert before.runs.keys() <= after.runs.keys()
    assert before.readings <= after.readings
    assert before.compared <= after.compared
    assert len(job.names) <= len(after.jobs) <= 1
    assert job.orphans() == []


def main() -> None:
    """See the module."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    models = tuple(sys.argv[2:]) or ("zoo:squeezenet",)
    print(
        "| kill | while | reported | runs | readings | sites compared | comparisons | folders left |",
        flush=True,
    )
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        job = KilledJob(Path(folder), models)
        kill_often(job, random_moments(kills), lambda line: print(line, flush=True))
        print(f"{len(job.names)} job", flush=True)


if __name__ == "__main__":
    main()
