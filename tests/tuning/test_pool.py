"""The measuring pool: crashes, hangs, greed and noise cost one record and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autotune.database import Outcome
from autotune.tuning.measure.interface import Candidate
from autotune.tuning.measure.pool import Limits, ProcessPool
from autotune.tuning.outcome import Measurement

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
LIMITS = Limits(build_s=1.0, prepare_s=10.0, run_s=0.5, memory_bytes=4 << 30)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    pool = ProcessPool(2, LIMITS, FAKE)
    yield pool
    pool.close()


def candidate(**config: str | int) -> Candidate:
    return Candidate("workload", "target", config)


def end_of(pool: ProcessPool, **config: str | int) -> Measurement:
    (built,) = pool.build([candidate(**config)])
    return pool.measure(built, float("inf"))


def test_results_come_back_in_order(pool: ProcessPool) -> None:
    built = pool.build([candidate(ns=i) for i in range(5)])
    assert [pool.measure(b, float("inf")).latency_ns for b in built] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("config", "outcome", "words"),
    [
        ({"build": "illegal"}, Outcome.ILLEGAL, "no such loop"),
        ({"build": "segfault"}, Outcome.CRASHED, "the worker died (SIGSEGV): about to fail"),
        ({"build": "hang"}, Outcome.TIMEOUT, "building took longer than 1 s"),
        ({"run": "segfault"}, Outcome.CRASHED, "the worker died (SIGSEGV): about to fail"),
        ({"run": "exit"}, Outcome.CRASHED, "the worker died (exit code 3)"),
        ({"run": "hang"}, Outcome.TIMEOUT, "running took longer than 0.5 s"),
        ({"run": "greedy"}, Outcome.CRASHED, "out of memory"),
        ({"run": "wrong"}, Outcome.WRONG_RESULT, "relative error 0.5"),
    ],
)
def test_a_bad_candidate_costs_one_record(
    pool: ProcessPool, config: dict[str, str], outcome: Outcome, words: str
) -> None:
    measurement = end_of(pool, **config)
    assert (measurement.outcome, measurement.latency) == (outcome, None)
    assert measurement.message == words
    assert end_of(pool, ns=7).latency_ns == 7


def test_what_a_candidate_prints_does_not_disturb_the_answers(pool: ProcessPool) -> None:
    assert end_of(pool, run="noise", ns=5).latency_ns == 5


def test_a_failed_candidate_is_identified_by_its_configuration(pool: ProcessPool) -> None:
    one, two, again = pool.build([candidate(build="illegal", x=x) for x in (1, 2, 1)])
    assert one.trace_key == again.trace_key != two.trace_key


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_pool import *\n"
        "pool = ProcessPool(1, Limits(run_s=100.0), FAKE)\n"
        "built, = pool.build([candidate(run='hang')])\n"
        "pool.measure(built, 1.0) if print('built', flush=True) is None else None\n"
    )
    here = str(Path(__file__).parent)
    parent = subprocess.Popen([sys.executable, "-c", code, here], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    deadline = time.monotonic() + 20
    while len(children := psutil.Process(parent.pid).children()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
