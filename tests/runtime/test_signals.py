"""Ctrl-C at any moment leaves a module that answers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Runs until it was interrupted often enough. The signal raises only inside of `interrupted`, once in each.
CHILD = """
import faulthandler, itertools, os, signal, sys, threading
import numpy as np
from autotune.runtime.module import Module
from autotune.runtime.pool import pool_of
from tests.runtime.kernels import chain

faulthandler.dump_traceback_later(300, exit=True)
armed, count = False, 0

def handler(number, frame):
    global armed, count
    if armed:
        armed = False
        count += 1
        raise KeyboardInterrupt

def interrupted(function, *arguments):
    global armed
    try:
        armed = True
        function(*arguments)
        armed = False
    except (KeyboardInterrupt, RuntimeError) as error:
        # The standard library's threads are started under its own locks: "cannot release un-acquired lock".
        assert isinstance(error, KeyboardInterrupt) or "lock" in str(error), error

X = np.arange(64, dtype=np.int64)
WIDE = np.arange(128, dtype=np.int64)[::2]
OUT = np.zeros(64, np.int64)

def right(module):
    assert module(X)[0].tolist() == (X + 3).tolist()

signal.signal(signal.SIGINT, handler)
image = chain(3, 64)
modules = [Module(image, threads) for threads in (1, 2, 3)]
calls = [
    lambda m: m(X),
    lambda m: m(X, out=[OUT]),
    lambda m: m(WIDE),
    lambda m: m.run({"x": X}),
    lambda m: m.time([X], repeat=3),
    lambda m: m.timeline([X]),
    lambda m: m.submit(X),
    lambda m: m.submit_all([(X,), (X,)]),
    lambda m: m.submit(X).result(60),
]
print("ready", flush=True)
for turn, call in enumerate(itertools.cycle(calls)):
    if count >= int(sys.argv[1]):
        break
    module = modules[turn // 50 % 3]
    interrupted(lambda: [call(module) for _ in range(10)])
    right(module)
    if turn % 100 == 0:
        interrupted(pool_of(module.threads).stop)  # and is started while signals come in
    if turn % 40 == 0:
        other = Module(image, module.threads)
        interrupted(other.close)
        other.close()
        thread = threading.Thread(target=right, args=(module,))
        thread.start()
        thread.join()
for module in modules:
    right(module)
print("answers after", count, flush=True)
# A thread whose start was interrupted never begins (CPython leaves its lock taken): the end would wait for it.
os._exit(0)
"""


def hammered(signals: int) -> int:
    """How many signals a child counted inside of calls that runs until there were so many; it gets more outside
    of them."""
    command = [sys.executable, "-c", CHILD, str(signals)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            time.sleep(random.random() * 4e-4)
        answer, _, count = child.stdout.read().rpartition(" ")
        assert answer == "answers after"
        return int(count)


# What is on its way when a process forks, is interrupted, and ends.
WAYS_TO_END = """
import faulthandler, os, signal, threading, time
import numpy as np
from autotune.runtime.module import Module
from tests.runtime.kernels import chain

faulthandler.dump_traceback_later(60, exit=True)
ONE = np.ones(1, np.int64)
module = Module(chain(2, 1, body="await"), 2, streams=2)
inputs = [np.zeros(1, np.int64) for _ in range(5)]
requests = module.submit_all([(x,) for x in inputs])
thread = threading.Thread(target=module, args=(inputs[4],))
thread.start()
while sum(request.running() for request in requests) < 2:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    assert module(ONE)[0][0] == 1
    assert [r.result(60)[0][0] for r in module.submit_all([(ONE,)] * 4)] == [1] * 4
    os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    requests[0].result(60)
except KeyboardInterrupt:
    print("interrupted", requests[0].done(), flush=True)

for x in inputs:
    x[0] = 5
thread.join()
print([r.result(60)[0][0].item() for r in requests], flush=True)
unending = np.zeros(1, np.int64)
threading.Timer(0.5, unending.__setitem__, [0, 1]).start()
last = [module.submit(unending), module.submit(ONE)]
for request in last:
    request.add_done_callback(lambda r: print("ended", r.result()[0][0].item(), flush=True))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forks_is_interrupted_and_ends_with_requests_on_their_way() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAYS_TO_END],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[:3] == ["child 7", "interrupted False", "[5, 5, 5, 5, 5]"]
    assert sorted(lines[3:]) == ["ended 1", "ended 1"]


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_module_answers_after_thousands_of_signals() -> None:
    assert hammered(3000) >= 3000  # a turn may count up to three
