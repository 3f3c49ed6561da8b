"""Jobs of one machine take turns: each is a process of its own, and says what it waits for."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest

from autotune.machine_lock import Measuring
from tests.patience import PATIENCE_S

JOB = """
import sys
from autotune.machine_lock import Measuring

def say(text):
    print(text, flush=True)

with Measuring(sys.argv[1], say) as machine:
    say("has it")
    for line in sys.stdin:
        machine.offer()
        say("has it again")
say("ends")
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))
    return tmp_path


class Job:
    """A process that measures until it is told to offer the machine or to end."""

    def __init__(self, name: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests: IO[str] = self.process.stdin
        self.said: IO[str] = self.process.stdout

    def line(self) -> str:
        return self.said.readline().rstrip("\n")

    def offer(self) -> None:
        self.requests.write("\n")
        self.requests.flush()

    def waits_for(self, other: Job, name: str) -> bool:
        return self.line() == (
            f"another job measures on this machine (process {other.process.pid}: {name}): "
            "waiting for its turn to end"
        )

    def end(self) -> None:
        self.requests.close()
        assert self.line() == "ends"
        assert self.process.wait() == 0
        self.said.close()


def until_one_is_next(folder: Path) -> None:
    """Wait until a job is in line behind the one that measures."""
    with open(folder / "autotune-next.lock", "rb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.01)


def test_jobs_take_turns_and_say_for_whom_they_wait(locks: Path) -> None:
    first = Job("tune a")
    assert first.line() == "has it"
    first.offer()  # nobody waits
    assert first.line() == "has it again"
    second = Job("tune b")
    assert second.waits_for(first, "tune a")
    until_one_is_next(locks)
    first.offer()
    assert second.line() == "has it"
    assert first.waits_for(second, "tune b")
    for _ in range(3):
        until_one_is_next(locks)
        second.offer()
        assert first.line() == "has it again"
        until_one_is_next(locks)
        first.offer()
        assert second.line() == "has it again"
    until_one_is_next(locks)
    second.end()
    assert first.line() == "has it again"
    first.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_is_killed_holds_nobody_up(number: signal.Signals) -> None:
    first, second = Job("tune a"), None
    try:
        assert first.line() == "has it"
        second = Job("tune b")
        assert second.waits_for(first, "tune a")
        first.process.send_signal(number)
        assert second.line() == "has it"
    finally:
        first.process.kill()
        first.process.communicate()
        if second is not None:
            second.end()


def test_one_thread_waits_for_no_lock_of_its_own() -> None:
    said: list[str] = []
    with Measuring("a", said.append) as outer, Measuring("b", said.append) as inner:
        inner.offer()
        outer.offer()
    assert said == []


def test_threads_wait_for_one_another() -> None:
    said: list[str] = []
    waits, went_on = threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waits.set()

    def other() -> None:
        with Measuring("the other", say):
            went_on.set()

    with Measuring("one", said.append):
        thread = threading.Thread(target=other)
        thread.start()
        assert waits.wait(PATIENCE_S)
        assert not went_on.is_set()
    thread.join(PATIENCE_S)
    assert went_on.is_set()
    assert said == [
        f"another job measures on this machine (process {os.getpid()}: one): waiting for its turn to end"
    ]


def test_without_a_folder_for_locks_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCKS", "/proc/nowhere")
    said: list[str] = []
    with Measuring("a", said.append) as machine:
        machine.offer()
    assert said == [
        "jobs beside this one may disturb it: no lock of this machine (No such file or directory)"
    ]


def test_what_others_write_reaches_no_terminal_as_it_is(locks: Path) -> None:
    said: list[str] = []
    done = threading.Event()

    def other() -> None:
        with Measuring("b", lambda text: (said.append(text), done.set())):
            pass

    with Measuring("\x1b[2J" + "x" * 500, said.append):
        thread = threading.Thread(target=other)
        thread.start()
        assert done.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert "\x1b" not in said[0]
    assert "?[2Jxxx" in said[0]
    assert len(said[0]) < 250
