"""A campaign of Ctrl-C: a process that calls a module in every way gets signals at random moments.

    python -m tests.runtime.interrupts 20000

After each the module must still answer rightly; a call that does not come to an end in a minute is a hang. Prints how
many signals came in the middle of a call.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import as_completed, wait
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from autotune.runtime.module import Module
from autotune.runtime.pool import pool_of
from autotune.runtime.request import Request
from tests.runtime.kernels import chain

ROOT = Path(__file__).parents[2]
HANG_S = 60
X = np.arange(64, dtype=np.int64)
WIDE = np.arange(128, dtype=np.int64)[::2]
OUT = np.zeros(64, np.int64)


def _given_up(request: Request[Any]) -> None:
    request.cancel()
    request.add_done_callback(Request.done)


def _of_the_standard_library(waits: Callable[[], object]) -> None:
    """Wait in an event of Python's: interrupted between two of its locks it may end with "release unlocked lock"."""
    try:
        waits()
    except RuntimeError as error:
        if "lock" not in str(error):
            raise
        raise KeyboardInterrupt from error


CALLS: list[Callable[[Module], object]] = [
    lambda m: m.submit(X).result(),
    lambda m: m.submit(X).result(HANG_S),
    lambda m: [request.result() for request in m.submit_all([(X,), (X,)])],
    lambda m: m(X),
    lambda m: m(X, out=[OUT]),
    lambda m: m(WIDE),
    lambda m: m.run({"x": X}),
    lambda m: m.time([X], repeat=3),
    lambda m: m.timeline([X]),
    lambda m: m.submit(X).exception(),
    lambda m: _given_up(m.submit(X)),
    lambda m: m.submit(X),
    lambda m: _of_the_standard_library(lambda: wait(m.submit_all([(X,), (X,)]))),
    lambda m: _of_the_standard_library(lambda: list(as_completed([m.submit(X)]))),
]


class Interrupts:
    """Signals that raise KeyboardInterrupt, one in each call of :meth:`within`."""

    def __init__(self) -> None:
        self.count = 0
        self._armed = False
        signal.signal(signal.SIGINT, self._handle)

    def within(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function, which may be interrupted."""
        try:
            self._armed = True
            function(*arguments)
            self._armed = False
        except KeyboardInterrupt:
            pass

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            self.count += 1
            raise KeyboardInterrupt


def _right(module: Module) -> None:
    """Fail unless a module answers in every way, within a minute."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    assert module(X)[0].tolist() == (X + 3).tolist()
    assert module.submit(X).result(HANG_S)[0].tolist() == (X + 3).tolist()
    faulthandler.cancel_dump_traceback_later()


def _interrupted(signals: int) -> None:
    """Call modules until so many signals came in the middle of calls."""
    interrupts = Interrupts()
    image = chain(3, 64)
    modules = [Module(image, threads) for threads in (1, 2, 3)]
    print("ready", flush=True)
    for turn, call in enumerate(itertools.cycle(CALLS)):
        if interrupts.count >= signals:
            break
        module = modules[turn // 50 % 3]
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        interrupts.within(_ten_times, call, module)
        _right(module)
        if turn % 100 == 0:
            interrupts.within(pool_of(module.threads).stop)  # and is started while signals come in
        if turn % 40 == 0:
            _opened_and_closed(interrupts, Module(image, module.threads))
            _in_a_thread(_right, module)
    for module in modules:
        _right(module)
    print("answers after", interrupts.count, flush=True)


def _ten_times(call: Callable[[Module], object], module: Module) -> None:
    for _ in range(10):
        call(module)


def _opened_and_closed(interrupts: Interrupts, module: Module) -> None:
    interrupts.within(module.close)
    module.close()


def _in_a_thread(function: Callable[[Module], None], module: Module) -> None:
    thread = threading.Thread(target=function, args=(module,))
    thread.start()
    thread.join()


def hammered(signals: int) -> int:
    """Return how many signals a child counted in the middle of calls, at least so many; it gets more outside of them.

    Raises AssertionError where it hangs, answers wrongly or does not end.
    """
    command = [sys.executable, "-m", "tests.runtime.interrupts", "--within", str(signals)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            time.sleep(random.random() * 4e-4)
        answer, _, count = child.stdout.read().rpartition(" ")
        assert (answer, child.returncode) == ("answers after", 0), f"it ended with {child.returncode}"
        return int(count)


def main(arguments: Iterable[str]) -> None:
    """Run the campaign, or be its child."""
    match [*arguments]:
        case ["--within", signals]:
            _interrupted(int(signals))
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter's own end is not the subject
        case [signals]:
            print(f"{hammered(int(signals))} signals in the middle of calls, 0 hangs, 0 wrong answers")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__" and os.name == "posix":
    main(sys.argv[1:])
