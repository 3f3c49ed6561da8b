import errno
import itertools
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import BuildError, MeasureError
from autotune.workers import process
from autotune.workers.process import Died, WorkerProcess
from tests.patience import PATIENCE_S

SILENT = (sys.executable, "-c", "import time\nprint('{}', flush=True)\ntime.sleep(600)")


def test_a_worker_that_cannot_start_is_our_failure_not_the_candidates() -> None:
    worker = WorkerProcess([sys.executable, "-c", "import nothing_like_it"])
    with pytest.raises(MeasureError, match=r"cannot start the measuring worker.*nothing_like_it"):
        worker.call({"do": "build"}, 1.0, "building")
    closed = WorkerProcess(SILENT, name="builder", error=BuildError)
    closed.close()
    with pytest.raises(BuildError, match="the builder is closed"):
        closed.call({"do": "build"}, 1.0, "building")


ECHO = "import sys\nprint('{}', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"


def test_the_systems_count_of_kills_is_read_once_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    monkeypatch.setattr(process, "killed_for_memory", lambda: reads.append(1) or 0)
    worker = process.WorkerProcess([sys.executable, "-c", ECHO])
    for number in range(3):
        assert worker.call({"n": number}, PATIENCE_S, "echoing") == {"n": number}
    worker.close()
    assert len(reads) == 1


@pytest.mark.parametrize("wait", [0.0, 0.05, 0.5])
def test_closing_ends_a_call_that_another_thread_waits_for(wait: float) -> None:
    worker = WorkerProcess(SILENT)
    ends: list[type[BaseException]] = []

    def call() -> None:
        try:
            worker.call({}, PATIENCE_S, "waiting")
        except (Died, MeasureError) as error:
            ends.append(type(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    time.sleep(wait)
    worker.close()
    thread.join(PATIENCE_S)
    assert len(ends) == 1


DIES_AT_FIRST = """
import os, pathlib, signal, sys
attempts = pathlib.Path(sys.argv[1])
with attempts.open("a") as file:
    file.write("x")
if len(attempts.read_text()) < int(sys.argv[2]):
    if sys.argv[3] == "ready":
        print("{}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
print("{}", flush=True)
for line in sys.stdin:
    print("{}", flush=True)
"""


@pytest.mark.parametrize("moment", ["at once", "ready"])
def test_a_worker_that_is_killed_while_it_starts_is_started_again(moment: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES_AT_FIRST, str(tmp_path / "attempts"), "3", moment]
    worker = WorkerProcess(command, greeting={"do": "warm_up"}, pauses=(0.01, 0.01, 0.01))
    assert worker.call({}, PATIENCE_S, "working") == {}
    assert worker.starts == 3
    worker.close()


def test_a_worker_that_is_killed_each_time_is_a_clear_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES_AT_FIRST, str(tmp_path / "attempts"), "99", "at once"]
    worker = WorkerProcess(command, pauses=(0.01, 0.01))
    with pytest.raises(MeasureError) as caught:
        worker.call({}, PATIENCE_S, "working")
    first, second = str(caught.value).splitlines()
    assert first == "cannot start the measuring worker: the worker died (SIGKILL)"
    assert second.startswith("  3 attempts failed in ")
    assert second.endswith("then the same command goes on from here")
    assert worker.starts == 3


def test_the_system_may_have_no_room_for_a_worker_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [OSError(errno.EAGAIN, "Resource temporarily unavailable"), OSError(errno.ENOMEM, "no memory")]
    make = subprocess.Popen

    def popen(*given: Any, **more: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return make(*given, **more)

    monkeypatch.setattr(subprocess, "Popen", popen)
    worker = WorkerProcess([sys.executable, "-c", ECHO], pauses=(0.01, 0.01))
    assert worker.call({"n": 1}, PATIENCE_S, "echoing") == {"n": 1}
    worker.close()
    refusals += [OSError(errno.EMFILE, "Too many open files")] * 9
    worker = WorkerProcess([sys.executable, "-c", ECHO], pauses=(0.01, 0.01))
    with pytest.raises(
        MeasureError, match=r"^cannot start the measuring worker: Too many open files\n  3 attempts"
    ):
        worker.start()


def test_a_command_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    worker = WorkerProcess([str(tmp_path / "nothing")], pauses=(600.0,))
    with pytest.raises(MeasureError, match=r"^cannot start the measuring worker: No such file or directory$"):
        worker.start()


def test_closing_ends_a_pause(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES_AT_FIRST, str(tmp_path / "attempts"), "99", "at once"]
    worker = WorkerProcess(command, pauses=(600.0,))
    ends: list[str] = []

    def start() -> None:
        try:
            worker.start()
        except MeasureError as error:
            ends.append(str(error))

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    while not worker.starts:
        time.sleep(0.01)
    time.sleep(0.3)
    worker.close()
    thread.join(PATIENCE_S)
    assert ends == ["the measuring worker is closed"]


def test_a_standstill_of_this_process_is_no_time_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_still = itertools.accumulate(itertools.repeat(1e6))  # before each look at the clock
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=partial(next, stood_still)))
    worker = WorkerProcess([sys.executable, "-c", ECHO], greeting={"do": "warm_up"}, start_s=1e4)
    assert worker.call({"n": 1}, 1e4, "echoing") == {"n": 1}
    monkeypatch.undo()
    worker.close()
