"""Faults that any model may meet: what users do to requests, and wrong values, memory and room."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import (
    AutotuneError,
    BuildError,
    DeviceClosedError,
    DeviceMemoryError,
    DeviceTimeoutError,
    InputError,
    UsageError,
)
from autotune.runtime.module import Module
from tests.faults.case import ASKED, WAIT_S, WAYS, Case, asked, one_of_them, result
from tests.faults.places import PATIENCE_S, question

_WRONG = 5


def wrong_index(case: Case, model: Module) -> None:
    """The first of two dependent stages finds a wrong index: the second never begins."""
    questions = [question(n) for n in range(ASKED)]
    x, indices = questions[_WRONG]
    questions[_WRONG] = (x, np.where(np.arange(indices.size) == 3, 999, indices))
    answers = dict(enumerate(asked(model, case.way, questions)))
    where = [f"on {case.at.kind.devices[0]}"] if case.at.devices else []
    case.failed(answers.pop(_WRONG), InputError, "index 999", *where)
    case.answered(answers)


def no_memory(case: Case, model: Module) -> None:
    """The driver has no memory for the first request; of a module of this process, for loading another."""
    if not case.at.devices:
        case.at.memory.times = 1
        try:
            case.at.open().close()
        except AutotuneError as error:
            case.failed(error, BuildError, "no memory")
        else:
            case.failed(None, BuildError)
        case.answered(dict(enumerate(asked(model, case.way, [question(n) for n in range(ASKED)]))))
        return
    engine, tries = case.at.second.engine, iter((True, True))  # once more after free blocks were given back
    allocate = engine.allocate

    def refused(nbytes: int) -> Any:
        if next(tries, False):
            raise MemoryError("refused for a test")
        return allocate(nbytes)

    engine.allocate = refused  # type: ignore[method-assign]
    one_of_them(case, model, DeviceMemoryError, f"{case.at.second.name} has no memory", "held by")


def full_room(case: Case, model: Module) -> None:
    """There is room for two requests, and both of them run."""
    with case.at.open(room=2) as bounded:
        bounded(*question(0))
        case.at.control.hold()
        requests = bounded.submit_all([question(1), question(2)])
        case.at.control.await_one()
        try:
            bounded.submit(*question(3), timeout=WAIT_S)
        except AutotuneError as error:
            case.failed(error, DeviceTimeoutError, "had no room for a request within 0.05 s")
        else:
            case.failed(None, DeviceTimeoutError)
        case.at.control.release()
        case.answered({n: result(request) for n, request in enumerate(requests, 1)})
        case.answered({4: result(bounded.submit(*question(4), timeout=PATIENCE_S))})


def late(case: Case, model: Module) -> None:
    """A request does not end by its deadline."""
    model(*question(0))
    case.at.control.hold()
    first = model.submit(*question(1))
    case.at.control.await_one()
    late, other = model.submit(*question(2), deadline=WAIT_S), model.submit(*question(3), deadline=600)
    time.sleep(2 * WAIT_S)
    case.at.control.release()
    case.failed(result(late), DeviceTimeoutError, "did not end within 0.05 s, its deadline")
    case.answered({1: result(first), 3: result(other)})


def cancelled(case: Case, model: Module) -> None:
    """A request is cancelled while another one runs."""
    model(*question(0))
    case.at.control.hold()
    requests = {n: model.submit(*question(n)) for n in range(1, 5)}
    case.at.control.await_one()
    case.check(requests[3].cancel(), "a request that had not ended could not be cancelled")
    case.at.control.release()
    answers = {n: result(request) for n, request in requests.items()}
    case.failed(answers.pop(3), CancelledError)
    case.answered(answers)


def killed_waiter(case: Case, model: Module) -> None:
    """Ctrl-C comes while the main thread waits for a result: the request goes on, and another thread has its answer."""
    model(*question(0))
    case.at.control.hold()
    first, second = (model.submit(*question(n)) for n in (1, 2))
    case.at.control.await_one()
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(WAIT_S, signal.pthread_kill, (main, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt.start()
        first.result(PATIENCE_S)
    except KeyboardInterrupt as error:
        case.failed(error, KeyboardInterrupt)
    else:
        case.failed(None, KeyboardInterrupt)
    finally:
        interrupt.join()
        signal.signal(signal.SIGINT, before)
    case.at.control.release()
    case.answered({1: result(first), 2: result(second)})


def killed_process(case: Case, model: Module) -> None:
    """Processes that load and save the same artifact are killed: it stays whole, and what runs from it goes on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.atm"
        model.save(path)
        with case.at.load(path) as mapped:
            children = [
                subprocess.Popen(
                    [sys.executable, "-m", "tests.faults.child", str(path)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
                for _ in range(2)
            ]
            for number, child in enumerate(children):
                assert child.stdout is not None
                case.check(child.stdout.readline() == b"ready\n", "a process beside this one did not begin")
                time.sleep(0.5 * WAIT_S * number)
                child.kill()
                child.stdout.close()
            ended = {child.wait(PATIENCE_S) for child in children}
            case.check(ended == {-signal.SIGKILL}, f"processes ended by themselves: {ended}")
            case.error = f"killed by signal {signal.SIGKILL.value}"
            questions = [question(n) for n in range(ASKED)]
            case.answered(dict(enumerate(asked(mapped, case.way, questions))))
        with case.at.load(path, check=True) as again:
            case.answered(dict(enumerate(asked(again, case.way, questions))))


def closed_module(case: Case, model: Module) -> None:
    """The model is closed with requests in flight: each ends, with its answer or an error that says so."""
    model(*question(0))
    case.at.control.hold()
    requests = {n: model.submit(*question(n)) for n in range(1, 7)}
    case.at.control.await_one()
    closing = threading.Thread(target=model.close)
    closing.start()
    closing.join(WAIT_S)
    case.at.control.release()
    closing.join(PATIENCE_S)
    case.check(not closing.is_alive(), "close() did not end")
    answers = {n: result(request) for n, request in requests.items()}
    for n in [n for n, answer in answers.items() if isinstance(answer, BaseException)]:
        case.failed(answers.pop(n), (UsageError, DeviceClosedError), "closed")
    case.answered(answers)
    for answer in asked(model, case.way, [question(9)]) if case.way != WAYS[2] else ():
        case.failed(answer, UsageError, "is closed")


__all__ = [
    "cancelled",
    "closed_module",
    "full_room",
    "killed_process",
    "killed_waiter",
    "late",
    "no_memory",
    "wrong_index",
]
