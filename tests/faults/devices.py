"""Faults that only models on devices may meet: of drivers, watermarks, and devices that end."""

from __future__ import annotations

import threading
import time

from autotune.errors import (
    AutotuneError,
    DeviceClosedError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
)
from autotune.runtime.module import Module
from tests.faults.case import ASKED, WAIT_S, WAYS, Case, asked, one_of_them
from tests.faults.places import PATIENCE_S, question


def failed_stage(case: Case, model: Module) -> None:
    """The driver says that a command of the second stage failed."""
    case.at.control.errors.append(DeviceError(f"a launch failed\n  on {case.at.second.name}"))
    one_of_them(case, model, DeviceError, "a launch failed", case.at.second.name)


def watermark(case: Case, model: Module) -> None:
    """Somebody else holds more memory of a device than its watermark allows."""
    allocator = case.at.second.allocator
    held = case.at.second.allocate(1 << 20, "somebody else")
    allocator.limit(high=1 << 20)
    try:
        model.submit(*question(0), timeout=WAIT_S)
    except AutotuneError as error:
        case.failed(error, DeviceTimeoutError, "held by somebody else")
    else:
        case.failed(None, DeviceTimeoutError)
    soon = threading.Timer(WAIT_S, held.free)  # while the next ones wait
    soon.start()
    case.answered(dict(enumerate(asked(model, case.way, [question(n) for n in range(ASKED)]))))
    soon.join()
    allocator.limit(high=allocator.capacity)


def _all_of_them(case: Case, model: Module, kind: type[BaseException], part: str) -> None:
    """Requests that were answered before are right, all others have that error, and so has the next one."""
    answers = dict(enumerate(asked(model, case.way, [question(n) for n in range(ASKED)])))
    met = [n for n, answer in answers.items() if isinstance(answer, BaseException)]
    case.check(bool(met), "no request met the fault")
    for n in met:
        case.failed(answers.pop(n), kind, part)
    case.answered(answers)
    case.failed(asked(model, WAYS[0], [question(0)])[0], kind, part)


def closed_device(case: Case, model: Module) -> None:
    """A device is closed under a model that runs on it."""
    closing = threading.Timer(WAIT_S, case.at.second.close)
    case.answered({0: asked(model, WAYS[0], [question(0)])[0]})
    closing.start()
    deadline = time.monotonic() + PATIENCE_S
    while not case.at.second.closed and time.monotonic() < deadline:
        answers = dict(enumerate(asked(model, case.way, [question(n) for n in range(ASKED)])))
        for n in [n for n, answer in answers.items() if isinstance(answer, BaseException)]:
            case.failed(answers.pop(n), DeviceClosedError, "closed")
        case.answered(answers)
    closing.join()
    for answer in asked(model, case.way, [question(n) for n in range(ASKED)]):
        case.failed(answer, DeviceClosedError, f"{case.at.second.name} is closed")


def lost_device(case: Case, model: Module) -> None:
    """A device disappears while it runs the second stage."""
    case.answered({0: asked(model, WAYS[0], [question(0)])[0]})
    case.at.control.errors.append(DeviceLostError(f"{case.at.second.name} was unplugged"))
    _all_of_them(case, model, DeviceLostError, "was unplugged")


__all__ = ["closed_device", "failed_stage", "lost_device", "watermark"]
