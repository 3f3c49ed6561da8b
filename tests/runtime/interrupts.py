"""A campaign of Ctrl-C: a process that calls a module in every way gets signals at random moments.

    python -m tests.runtime.interrupts 20000 [whole | cpu | opencl]

After each the module must still answer rightly; a call that does not come to an end in minutes is a hang. Prints how
many signals came in the middle of a call. ``cpu`` and ``opencl`` are placed modules, on cpu:0 and cpu:1, and on cpu:0
and opencl:0.
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

import autotune
from autotune.graph.text import parse_graph
from autotune.runtime.cpu.pool import pool_of
from autotune.runtime.module import Module
from autotune.runtime.requests.request import Request
from tests.patience import PATIENCE_S
from tests.runtime.kernels import chain

ROOT = Path(__file__).parents[2]
X = np.arange(64, dtype=np.int64)
WIDE = np.arange(128, dtype=np.int64)[::2]
OUT = np.zeros(64, np.int64)
PLACED = """graph placed {
  input x: int64[64]
  a = Abs(x) : int64[64] on cpu:0
  b = Add(a, a) : int64[64] on OTHER
  y = Neg(b) : int64[64] on cpu:0
  output y
}"""
OTHERS = {"cpu": "cpu:1", "opencl": "opencl:0"}


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
    lambda m: m.submit(X).result(PATIENCE_S),
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
OF_PLACED: list[Callable[[Module], object]] = [lambda m: m.recording([X])]


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
    """Fail unless a module answers in every way, before it counts as a hang."""
    wanted = X + 3 if module.devices == ("cpu",) else -2 * X
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    assert module(X)[0].tolist() == wanted.tolist()
    assert module.submit(X).result(PATIENCE_S)[0].tolist() == wanted.tolist()
    faulthandler.cancel_dump_traceback_later()


def _modules(kind: str) -> tuple[list[Module], Callable[[int], Module]]:
    """The modules to call, in turns; and a function that makes another of that number."""
    if kind == "whole":
        image = chain(3, 64)
        return [Module(image, n + 1) for n in range(3)], lambda n: Module(image, n + 1)
    compiled = autotune.compile(parse_graph(PLACED.replace("OTHER", OTHERS[kind])))
    rooms = (1024, 2, 1)  # a permit that is lost is missed where there are few
    program = compiled.compiled.cases[0].program
    compiled.close()
    return [Module(program, room=room) for room in rooms], lambda n: Module(program)


def _interrupted(signals: int, kind: str) -> None:
    """Call modules until so many signals came in the middle of calls."""
    interrupts = Interrupts()
    modules, make = _modules(kind)
    calls = CALLS if kind == "whole" else CALLS + OF_PLACED
    for module in modules:
        _right(module)
    print("ready", flush=True)
    for turn, call in enumerate(itertools.cycle(calls)):
        if interrupts.count >= signals:
            break
        module = modules[turn // 50 % 3]
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        interrupts.within(_ten_times, call, module)
        _right(module)
        if turn % 100 == 0 and kind == "whole":
            interrupts.within(pool_of(module.threads).stop)  # and is started while signals come in
        if turn % 40 == 0 and kind != "opencl":  # the LLVM of PoCL removes the files it is writing on SIGINT
            interrupts.within(make, turn // 50 % 3)
            _opened_and_closed(interrupts, make(turn // 50 % 3))
        if turn % 40 == 0:
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


def hammered(signals: int, kind: str = "whole") -> int:
    """Return how many signals a child counted in the middle of calls, at least so many; it gets more outside of them.

    Raises AssertionError where it hangs, answers wrongly or does not end.
    """
    command = [sys.executable, "-m", "tests.runtime.interrupts", "--within", str(signals), kind]
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
        case ["--within", signals, kind]:
            _interrupted(int(signals), kind)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter's own end is not the subject
        case [signals, *kinds] if {*kinds} <= {"whole", *OTHERS}:
            for kind in kinds or ("whole",):
                count = hammered(int(signals), kind)
                print(f"{kind}: {count} signals in the middle of calls, 0 hangs, 0 wrong answers")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__" and os.name == "posix":
    main(sys.argv[1:])
