"""Ctrl-C at any moment leaves a module that answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed, wait
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.graph.text import parse_graph
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.module import Module
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.requests.request import Request
from tests.patience import PATIENCE_S
from tests.runtime.interrupts import PLACED, ROOT, X, hammered
from tests.runtime.kernels import chain

# What is on its way when a process forks, is interrupted, and ends.
WAYS_TO_END = """
import faulthandler, os, signal, threading, time
import numpy as np
from autotune.runtime.module import Module
from tests.runtime.kernels import chain

faulthandler.dump_traceback_later(300, exit=True)
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
    assert [r.result(300)[0][0] for r in module.submit_all([(ONE,)] * 4)] == [1] * 4
    os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
try:
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    requests[0].result(300)
except KeyboardInterrupt:
    print("interrupted", requests[0].done(), flush=True)

for x in inputs:
    x[0] = 5
thread.join()
print([r.result(300)[0][0].item() for r in requests], flush=True)
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
        timeout=PATIENCE_S,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[:3] == ["child 7", "interrupted False", "[5, 5, 5, 5, 5]"]
    assert sorted(lines[3:]) == ["ended 1", "ended 1"]


MANY = pytest.mark.parametrize("signals", [600, pytest.param(3000, marks=pytest.mark.slow)])


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@MANY
def test_a_module_answers_after_many_signals(signals: int) -> None:
    assert hammered(signals) >= signals  # a turn may count up to three


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")
@MANY
def test_a_placed_module_answers_after_many_signals(signals: int) -> None:
    assert hammered(signals, "cpu") >= signals


def interrupted(step: int, call: Callable[[], object]) -> bool:
    """Return whether a call came to an operation of that number; it was interrupted there.

    Unless it was one of a callback, of the collector or a weak reference, from which Python raises nothing.
    """
    passed = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal passed
        frame.f_trace_opcodes = True
        passed += event == "opcode"
        if passed == step:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return passed >= step


SUM = {"x": ["n"], "y": None}
WAITS: dict[str, Callable[[Request[Any]], object]] = {
    "result": lambda request: request.result(0),
    "exception": lambda request: request.exception(0),
    "done": Request.done,
    "callback": lambda request: request.add_done_callback(Request.done),
    "cancel": Request.cancel,
    "wait": lambda request: wait([request], 0),
    "as_completed": lambda request: next(as_completed([request], 0)),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_that_is_interrupted_anywhere_holds_up_nobody(name: str) -> None:
    with Module(chain(1, 1, body="await"), 1, streams=1) as module:
        step, more = 1, True
        while more:
            x = np.zeros(1, np.int64)
            request = module.submit(x)
            while not request.running():
                pass
            try:
                more = interrupted(step, partial(WAITS[name], request))
            except TimeoutError:
                more = False
            except RuntimeError as error:  # of an event of the standard library, interrupted twice
                if "lock" not in str(error):
                    raise
            finally:
                x[0] = 5
            # Nobody looks at the first again: what it left taken stays so.
            assert module.submit(np.ones(1, np.int64)).result(PATIENCE_S)[0][0] == 1, step
            step += 1
    assert step > 2


INTERRUPTED_BY_OPCODES = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Also where Python calls back and swallows what is raised, as weak references do."""


@pytest.fixture(scope="module")
def placed() -> DeviceProgram:
    if len(core_ids()) < 2:
        pytest.skip("one core is no two devices")
    with autotune.compile(parse_graph(PLACED.replace("OTHER", "cpu:1"))) as made:
        return made.compiled.cases[0].program


@pytest.fixture(params=["whole", "placed"])
def narrow(request: pytest.FixtureRequest) -> Iterator[Module]:
    """A module with room for one request: what is lost of that is missed at once."""
    made: Module
    if request.param == "whole":
        made = Module(chain(1, 64), 1, streams=1, room=1)
    else:
        made = Module(request.getfixturevalue("placed"), room=1)
    with made:
        yield made


@pytest.mark.parametrize("used", [False, True], ids=["first", "later"])
def test_a_submission_that_is_interrupted_anywhere_holds_up_nobody(narrow: Module, used: bool) -> None:
    if used:
        narrow(X)
    step = 1
    while interrupted(step, lambda: narrow.submit(X)):
        assert narrow.submit(X, timeout=PATIENCE_S).result(PATIENCE_S)[0].shape == X.shape, step
        step += 1
    assert step > 100


@pytest.mark.parametrize("while_it_runs", [False, True])
def test_a_cancellation_of_a_placed_request_that_is_interrupted_holds_up_nobody(
    placed: DeviceProgram, while_it_runs: bool
) -> None:
    with Module(placed, room=2) as module:
        step, more = 1, True
        while more:
            request = module.submit(X, timeout=PATIENCE_S)
            while while_it_runs and not (request.running() or request.done()):
                pass
            more = interrupted(step, request.cancel)
            assert module.submit(X, timeout=PATIENCE_S).result(PATIENCE_S)[0].tolist() == (-2 * X).tolist(), (
                step
            )
            step += 1
    assert step > 2


@INTERRUPTED_BY_OPCODES
@pytest.mark.parametrize("stride", [41, pytest.param(7, marks=pytest.mark.slow)])
def test_placed_modules_that_are_interrupted_when_opened_and_closed_leave_their_devices_as_they_are(
    placed: DeviceProgram, stride: int
) -> None:
    step, opening, closing = 1, True, True
    with Module(placed) as other:
        while opening or closing:
            opening = opening and interrupted(step, lambda: Module(placed).close())
            module = Module(placed)
            closing = closing and interrupted(step, module.close)
            module.close()
            assert other(X)[0].tolist() == (-2 * X).tolist(), step
            step += stride  # a step takes milliseconds
    assert step > 100


def test_a_request_of_open_sizes_that_is_interrupted_anywhere_leaves_zeros_behind_the_next() -> None:
    node = helper.make_node("ReduceSum", ["x", "axis"], ["y"])  # what is behind a request counts
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in SUM.items())
    axis = numpy_helper.from_array(np.array([0]), "axis")
    graph = helper.make_graph([node], "open", [x], [y], [axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with autotune.compile_for_sizes(model, {"n": "1..64:64"}) as module:
        step, long, short = 1, np.arange(61), np.arange(3)
        assert module(short)[0] == 3
        while interrupted(step, lambda: module(long)):
            assert module(short)[0] == 3, step
            step += 1
    assert step > 30
