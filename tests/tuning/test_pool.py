"""The measuring pool: crashes, hangs, greed and noise cost one record and nothing else."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from autotune.database import Outcome
from autotune.errors import DeviceMemoryError, DeviceTimeoutError, MeasureError, NoReferenceError
from autotune.tuning.measure.interface import BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement, of_exception
from autotune.tuning.measure.pool import Limits, ProcessPool
from tests.hangs import only_hangs_take_time
from tests.patience import PATIENCE_S, wait_until

HERE = Path(__file__).parent
RUN = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"
FAKE = (sys.executable, "-c", RUN, str(HERE.parents[1]), str(HERE / "fake_worker.py"))
LIMITS = Limits(
    build_s=PATIENCE_S, prepare_s=PATIENCE_S, run_s=PATIENCE_S, memory_bytes=4 << 30, room_bytes=1 << 30
)


@pytest.fixture(scope="module", autouse=True)
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with only_hangs_take_time(tmp_path_factory.mktemp("hanging")):
        yield


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


def test_a_pool_that_rested_goes_on(pool: ProcessPool) -> None:
    pool.rest()
    assert end_of(pool, ns=7).latency_ns == 7


@pytest.mark.parametrize(
    ("config", "outcome", "words"),
    [
        ({"build": "illegal"}, Outcome.ILLEGAL, "no such loop"),
        ({"build": "segfault"}, Outcome.CRASHED, "the worker died (SIGSEGV): about to fail"),
        ({"build": "hang"}, Outcome.TIMEOUT, "building took longer than 1 s"),
        ({"run": "segfault"}, Outcome.CRASHED, "the worker died (SIGSEGV): about to fail"),
        ({"run": "exit"}, Outcome.CRASHED, "the worker died (exit code 3)"),
        ({"run": "hang"}, Outcome.TIMEOUT, "running took longer than 0.5 s"),
        ({"run": "abort"}, Outcome.CRASHED, "the worker died (SIGABRT)"),
        ({"run": "reserves, hang"}, Outcome.TIMEOUT, "running took longer than 0.5 s"),
        ({"run": "reserves, abort"}, Outcome.CRASHED, "the worker died (SIGABRT)"),
        ({"run": "greedy"}, Outcome.OUT_OF_MEMORY, "out of memory"),
        ({"run": "wrong"}, Outcome.WRONG_RESULT, "relative error 0.5"),
    ],
)
def test_a_bad_candidate_costs_one_record(
    pool: ProcessPool, config: dict[str, str], outcome: Outcome, words: str
) -> None:
    if outcome is Outcome.TIMEOUT:
        short = {"build_s": 1.0} if "build" in config else {"run_s": 0.5}
        pool.limits = dataclasses.replace(LIMITS, **short)
    measurement = end_of(pool, **config)
    pool.limits = LIMITS
    assert (measurement.outcome, measurement.latency) == (outcome, None)
    assert measurement.message == words
    assert end_of(pool, ns=7).latency_ns == 7


@pytest.mark.parametrize(
    ("how", "room"), [("takes more until it hangs", 8 << 30), ("dies of want", 300 << 20)]
)
def test_who_takes_all_memory_and_then_hangs_or_crashes_was_out_of_memory(how: str, room: int) -> None:
    limits = dataclasses.replace(LIMITS, memory_bytes=2 << 30, room_bytes=room)
    with closing(ProcessPool(1, limits, FAKE)) as pool:
        if how != "dies of want":
            pool.limits = dataclasses.replace(limits, run_s=3.0)
        measurement = end_of(pool, run=how)
        pool.limits = limits
        assert measurement.outcome is Outcome.OUT_OF_MEMORY, measurement
        assert "GiB of the " in measurement.message
        assert end_of(pool, ns=7).latency_ns == 7


@pytest.mark.parametrize("how", ["segfault", "hang"])
def test_the_start_of_a_worker_is_no_candidates_time(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_START_LOOKS", "5")
    with closing(ProcessPool(1, dataclasses.replace(LIMITS, build_s=2.0, run_s=2.0), FAKE)) as pool:
        assert end_of(pool, run="ok", ns=6).latency_ns == 6
        assert end_of(pool, run=how).latency is None
        assert end_of(pool, run="ok", ns=7).latency_ns == 7
        assert end_of(pool, build=how).latency is None
        assert end_of(pool, build="ok", ns=8).latency_ns == 8


def test_a_worker_that_does_not_get_ready_is_no_candidates_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_START_FAILS", "1")
    with (
        closing(ProcessPool(1, LIMITS, FAKE)) as pool,
        pytest.raises(MeasureError, match=r"cannot start the measuring worker: .*no such instruction"),
    ):
        pool.build([candidate()])
    monkeypatch.delenv("FAKE_START_FAILS")
    monkeypatch.setenv("FAKE_START_LOOKS", "1000")
    with (
        closing(ProcessPool(1, dataclasses.replace(LIMITS, start_s=0.6), FAKE)) as pool,
        pytest.raises(
            MeasureError,
            match=r"^cannot start the measuring worker: getting ready took longer than 0.6 s$",
        ),
    ):
        pool.build([candidate()])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("hang", "computing the reference took longer than 1 s"),
        ("segfault", r"the worker died \(SIGSEGV\): about to fail"),
    ],
)
def test_a_reference_that_fails_is_no_outcome_of_a_candidate(how: str, words: str) -> None:
    limits = dataclasses.replace(LIMITS, prepare_s=1.0) if how == "hang" else LIMITS
    with closing(ProcessPool(1, limits, FAKE)) as pool:
        (built,) = pool.build([Candidate(how, "target", {})])
        with pytest.raises(NoReferenceError, match=f"^its candidates cannot be checked: {words}$"):
            pool.measure(built, float("inf"))
        with pytest.raises(NoReferenceError, match=words):
            pool.check(BuiltOption(how, "target", 0, "direct", {}))
        pool.limits = LIMITS
        assert end_of(pool, ns=7).latency_ns == 7


def workers() -> set[int]:
    """The processes of this module's pools; other tests may have left some of their own behind."""
    children = psutil.Process().children()
    return {c.pid for c in children if c.status() != psutil.STATUS_ZOMBIE and FAKE[-1] in c.cmdline()}


def test_a_runner_that_was_harmed_is_replaced() -> None:
    with closing(ProcessPool(1, LIMITS, FAKE)) as pool:  # of several builders one may start only now
        assert end_of(pool, ns=7).latency_ns == 7
        before = workers()
        assert end_of(pool, run="wrong").outcome is Outcome.WRONG_RESULT
        assert end_of(pool, ns=8).latency_ns == 8
        after = workers()
        assert (len(after - before), len(before - after)) == (1, 1)


@pytest.mark.parametrize("moment_s", [0.0, 0.01, 0.03, 0.1, 0.3, 0.6])
def test_a_worker_that_still_imports_ends_with_its_parent(moment_s: float) -> None:
    code = (
        "import sys, time\n"
        "from autotune.tuning.measure.pool import ProcessPool\n"
        "pool = ProcessPool(2)\n"
        "pool.warm_up()\n"
        "print('started', flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    wait_until(psutil.Process(parent.pid).children, "a worker is started")
    time.sleep(moment_s)
    children = psutil.Process(parent.pid).children()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []


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
    wait_until(lambda: len(psutil.Process(parent.pid).children()) >= 2, "both workers are started")
    children = psutil.Process(parent.pid).children()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(DeviceTimeoutError("late"), Outcome.TIMEOUT), (DeviceMemoryError("full"), Outcome.OUT_OF_MEMORY)],
)
def test_what_a_device_says_is_the_outcome(error: Exception, outcome: Outcome) -> None:
    assert of_exception(error, running=True) == Measurement(outcome, message=str(error))
