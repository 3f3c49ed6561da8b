"""Faults as users of a compiled model see them: each is one error to its caller, with its origin.

Each fault is made at each place (:mod:`tests.faults.places`), by users that call, call from several threads, or
have several requests in flight. Beside them a module of this process answers all the time. Afterwards the model has to
answer again, where it can, and no memory of a device may be in use once the model was closed.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from tests.faults import devices as fault_devices
from tests.faults import requests as fault_requests
from tests.faults.case import ASKED, WAYS, Case, asked
from tests.faults.places import PATIENCE_S, Kind, compiled, place, question, right


@dataclass(frozen=True)
class Outcome:
    """The effect of a fault: the error of its caller, how many others got right answers of how many that were to.

    ``beside`` counts right answers of another module meanwhile; ``problems`` is what must not have happened.
    """

    fault: str
    where: str
    way: str
    error: str
    good: int
    others: int
    beside: int
    live_bytes: int
    problems: tuple[str, ...]


Fault = Callable[[Case, Module], None]

_EVERYWHERE: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "no memory": (fault_requests.no_memory, WAYS),
    "an error in the first stage": (fault_requests.wrong_index, WAYS),
    "a request past its deadline": (fault_requests.late, WAYS[2:]),
    "a cancelled request": (fault_requests.cancelled, WAYS[2:]),
    "Ctrl-C in a waiting thread": (fault_requests.killed_waiter, WAYS[2:]),
    "processes killed beside it": (fault_requests.killed_process, WAYS[2:]),
    "no room for a request": (fault_requests.full_room, WAYS[2:]),
    "the model closed": (fault_requests.closed_module, WAYS),
}
"""Faults that any model may meet, and in which ways."""

_ON_DEVICES: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "an error in the second stage": (fault_devices.failed_stage, WAYS),
    "a device above its watermark": (fault_devices.watermark, WAYS),
    "a device closed": (fault_devices.closed_device, WAYS),
    "a device that disappears": (fault_devices.lost_device, WAYS),
}
"""Those that only models on devices may."""


def faults_of(kind: Kind) -> dict[str, tuple[Fault, tuple[str, ...]]]:
    """Return the faults of a place, and the ways in which each is tried."""
    return {**_EVERYWHERE, **_ON_DEVICES} if kind.devices else dict(_EVERYWHERE)


def of_devices(name: str) -> bool:
    """Return whether only models on devices may meet a fault."""
    return name in _ON_DEVICES


def try_fault(name: str, kind: Kind, way: str) -> Outcome:
    """Make a fault and look what happens."""
    fault, _ = faults_of(kind)[name]
    with place(kind) as at, _beside() as beside:
        case, model = Case(at, way), at.open()
        try:
            fault(case, model)
        except Exception as error:  # noqa: BLE001 - a finding like any other
            case.problems.append(f"{type(error).__name__}: {error}")
        at.control.release()
        before = beside.count
        if not fault_ends(fault):
            case.answered(dict(enumerate(asked(model, way, [question(n) for n in range(3)]))))
        model.close()
        gc.collect()
        live = at.live_bytes
        case.check(not live, f"{live} bytes of devices are in use after the model was closed")
        beside.await_more(before)
    case.check(not beside.wrong, f"a module beside it gave {beside.wrong} wrong answers")
    return Outcome(
        name, kind.name, way, case.error, case.good, case.others, beside.count, live, tuple(case.problems)
    )


def fault_ends(fault: Fault) -> bool:
    """Return whether the model cannot answer any more afterwards."""
    return fault in (fault_requests.closed_module, fault_devices.closed_device, fault_devices.lost_device)


class _Beside:
    """Another module of this process that answers all the time, in a thread of its own."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beside")
        self.count = self.wrong = 0

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.count % ASKED
            good = right(number, self._module(*question(number)))
            self.count += good
            self.wrong += not good
            time.sleep(1e-3)

    def await_more(self, count: int) -> None:
        """Return once it has answered more often than that."""
        deadline = time.monotonic() + PATIENCE_S
        while self.count <= count and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(1e-3)


@contextmanager
def _beside() -> Iterator[_Beside]:
    image = compiled(())
    assert isinstance(image, ModuleImage)
    with Module(image, 1) as module:
        found = _Beside(module)
        found._thread.start()
        try:
            yield found
        finally:
            found._stop.set()
            found._thread.join()


__all__ = ["WAYS", "Outcome", "fault_ends", "faults_of", "of_devices", "try_fault"]
