import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.build import workers as build_workers
from autotune.compiler.build.workers import BuildWorkers, builders
from autotune.compiler.request import CompileRequest
from autotune.errors import BuildError, InternalError, UsageError
from autotune.graph.build import GraphBuilder

FAKE = (sys.executable, str(Path(__file__).with_name("fake_build_worker.py")))


@dataclass(frozen=True)
class Job:
    """A build worker does as ``how`` says."""

    how: str = "ok"
    what = "a test"

    def run(self):
        if self.how != "ok":
            raise AssertionError("a build worker should have done it")
        return os.getpid()

    def request(self):
        return {"do": "work", "how": self.how} if self.how != "here" else None

    def result(self, answer):
        return answer["by"]


@dataclass(frozen=True)
class Patient(Job):
    """Only this process can do it, and waits for what ``until`` says."""

    until: Callable[[], bool] = bool

    def run(self):
        while not self.until():
            time.sleep(0.01)
        return os.getpid()

    def request(self):
        return None


def run_together(workers, *jobs):
    """Return this process's answers, which waits until the build workers have ended all jobs, and theirs."""
    work = workers.begin([Patient(until=lambda: all(future.done() for future in work.futures[1:])), *jobs])
    return workers.finish(work)


def test_without_workers_this_process_works_alone():
    assert BuildWorkers().run([Job(), Job()]) == [os.getpid()] * 2


def test_results_come_in_order_whoever_works():
    with BuildWorkers(1, FAKE) as together:
        found = run_together(together, Job(), Job())
        again = run_together(together, Job())
    assert found[0] == again[0] == os.getpid()
    assert found[1] == found[2] == again[1] != os.getpid()
    assert not psutil.pid_exists(found[1])


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("refused", BuildError, "^no code for this\n  try another$"),
        ("bug", InternalError, "ZeroDivisionError: division by zero"),
        ("killed", BuildError, r"^a build worker did not finish a test: the worker died \(SIGKILL\)\n"),
    ],
)
def test_what_fails_in_a_worker_is_raised_here(how, kind, words):
    before = psutil.Process().children()
    with pytest.raises(kind, match=words), BuildWorkers(1, FAKE) as together:
        run_together(together, Job(how))
    assert {*psutil.Process().children()} <= {*before}


def test_a_worker_that_cannot_start_is_an_error_with_the_way_out():
    broken = [sys.executable, "-c", "import nothing_like_it"]
    words = r"(?s)^cannot start the build worker.*nothing_like_it.*\n  AUTOTUNE_BUILDERS=1"
    with pytest.raises(BuildError, match=words), BuildWorkers(1, broken) as together:
        together.run([Patient(until=lambda: "autotune-build" not in {t.name for t in threading.enumerate()})])


def test_a_worker_finds_modules_where_this_process_does(monkeypatch, tmp_path):
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = f"import only_here, runpy; runpy.run_path({FAKE[1]!r}, run_name='__main__')"
    with BuildWorkers(1, (FAKE[0], "-c", code)) as together:
        here, there = run_together(together, Job())
    assert here != there


def test_the_number_of_processes_is_a_setting(monkeypatch):
    monkeypatch.setenv("AUTOTUNE_BUILDERS", "3")
    assert builders() == 3
    monkeypatch.setenv("AUTOTUNE_BUILDERS", "none")
    with pytest.raises(
        UsageError, match=r"^AUTOTUNE_BUILDERS is 'none'; allowed: a number of processes, from 1$"
    ):
        builders()


def model():
    b = GraphBuilder("model")
    value = b.input("x", (1, 8, 20, 20))
    for number in range(3):
        weights = b.constant(f"w{number}", np.ones((8 + number, 8 + max(0, number - 1), 3, 3), np.float32))
        value = b.node("Conv", value, weights)
    return b.graph(b.node("Relu", value, name="y"))


def test_a_worker_changes_nothing_of_a_model(monkeypatch):
    alone = compile_in_detail(CompileRequest(model()))
    monkeypatch.setattr(build_workers, "WORTH", 1)
    monkeypatch.setenv("AUTOTUNE_BUILDERS", "2")
    together = compile_in_detail(CompileRequest(model()))
    assert together.image.objects == alone.image.objects
    assert together.image.dispatches == alone.image.dispatches
    assert str(together.coverage) == str(alone.coverage)
