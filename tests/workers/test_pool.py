import os
import sys
import time
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import psutil
import pytest

from autotune.errors import BuildError
from autotune.workers.pool import WorkerPool
from autotune.workers.process import Died, WorkerProcess
from tests.patience import PATIENCE_S

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


def fake_worker() -> WorkerProcess:
    """It finds modules where this process does."""
    return WorkerProcess(FAKE, {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})


def work(worker: WorkerProcess, **request: object) -> int:
    return int(worker.call({"do": "work", **request}, PATIENCE_S, "working")["by"])


def test_jobs_go_to_whoever_of_the_role_is_free(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with WorkerPool() as pool:
        for _ in range(2):
            pool.add("many", fake_worker())
        pool.add("one", fake_worker())
        pool.kill("none")
        assert pool.has("many")
        assert not pool.has("none")
        long = pool.submit("many", partial(work, until=str(done)))
        short = {pool.submit("many", work).result() for _ in range(3)}
        assert not long.done()
        done.touch()
        single = pool.call("one", {"do": "work"}, PATIENCE_S, "working")["by"]
        (other,) = short
        assert len({other, single, long.result()}) == 3
    assert not any(map(psutil.pid_exists, (other, single, long.result())))


def test_a_worker_that_died_is_started_again_and_a_killed_one_too() -> None:
    with WorkerPool() as pool:
        pool.add("one", fake_worker())
        first = pool.submit("one", work).result()
        with pytest.raises(Died, match="SIGKILL"):
            pool.call("one", {"do": "work", "dies": True}, PATIENCE_S, "working")
        second = pool.submit("one", work).result()
        pool.kill("one")
        third = pool.submit("one", work).result()
    assert len({first, second, third}) == 3


def test_a_worker_that_is_not_ready_takes_nothing() -> None:
    with WorkerPool() as pool:
        pool.add("picky", fake_worker(), ready=lambda worker: work(worker) == 0)
        pool.add("broken", WorkerProcess([sys.executable, "-c", "1 / 0"], error=BuildError), ready=work)
        waiting = [pool.submit(role, work) for role in ("picky", "broken")]
        pool.add("broken", fake_worker())
        assert waiting[1].result()
        assert waiting[0].cancel()
        for _ in range(1000):  # its thread may hear of it after the other one has done its job
            time.sleep(0.01 * (pool.broken is None))
        assert isinstance(pool.broken, BuildError)


def test_results_come_in_order_and_a_failure_drops_what_waits() -> None:
    with WorkerPool() as pool:
        for _ in range(2):
            pool.add("many", fake_worker())
        seconds = (0.3, 0.0, 0.1)
        jobs = [partial(lambda worker, s: (work(worker, seconds=s), s)[1], s=s) for s in seconds]
        assert pool.map("many", jobs) == list(seconds)
        done: list[int] = []
        rest = [lambda worker: done.append(work(worker, seconds=0.2))] * 20
        with pytest.raises(Died):
            pool.map("many", [partial(work, dies=True), *rest])
        pool.map("many", [work])
    assert len(done) < 20


def test_closing_ends_jobs_in_progress_and_cancels_those_that_wait() -> None:
    pool = WorkerPool()
    pool.add("one", fake_worker())
    pool.submit("one", work).result()
    running = pool.submit("one", partial(work, seconds=60.0))
    waiting = pool.submit("one", work)
    while not running.running():
        pass
    pool.close()
    assert isinstance(running.exception(), Died)
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(RuntimeError, match="the one workers were ended"):
        pool.submit("one", work)  # nobody would do it, and whoever waited for it would wait for ever


def test_dropping_cancels_those_that_wait_alone() -> None:
    with WorkerPool() as pool:
        pool.add("one", fake_worker())
        pool.submit("one", work).result()
        running = pool.submit("one", partial(work, seconds=60.0))
        waiting = [pool.submit("one", work) for _ in range(3)]
        while not running.running():
            pass
        pool.drop("one")
        assert all(future.cancelled() for future in waiting)
        pool.kill("one")
        assert isinstance(running.exception(), Died)
        assert pool.submit("one", work).result()
