"""Requests of a program of several devices that are in flight together, each with memory of its own.

While a device works on one request, the devices before it work on those that follow: a pipeline (the picture is that
of Huang et al., "GPipe", 2019). For that the steps of the next request are submitted before this one is over; the
queues of the devices run whatever is ready.

Ctrl-C is raised in the main thread, between any two steps of Python. So whoever submits, cancels or closes does single
operations that are atomic. What takes locks and permits (of devices, queues, timelines and memory) runs in threads of
ours, where no signal is handled.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from autotune.errors import DeviceMemoryError, DeviceTimeoutError, UsageError
from autotune.runtime.counted import from_metadata, parts
from autotune.runtime.hal.errors import again
from autotune.runtime.programs.program_request import Arrays, LoadedProgram, RequestMemory, Submitted
from autotune.runtime.requests.queue import Requests, apart
from autotune.runtime.requests.request import Request, check_timeout
from autotune.runtime.requests.room import Room

Answer = list[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A request that has not begun; ``submitted`` receives what is submitted for its steps."""

    request: Request[Answer]
    inputs: Arrays
    outputs: Callable[[], Answer]
    submitted: Submitted


class InFlight:
    """At most ``most`` requests that have begun, and ``room`` that are not over; any thread may submit.

    They are taken up in the order of submission. Memory for one more beside others is made only where each device is
    below its watermark and has that much; else requests use the memory that there is one after another.
    """

    def __init__(self, loaded: LoadedProgram, most: int, room: int) -> None:
        if most < 1 or room < 1:
            raise UsageError(f"requests in flight and room for requests are 1 or more, got {most} and {room}")
        self._loaded = loaded
        self._name = f"module {loaded.program.name!r}"
        self._counted = from_metadata(loaded.program.metadata)
        self._most = most
        self._waiting: deque[_Waiting] = deque()
        self._running: list[None] = []  # its length counts
        self._starter = Requests()
        """Begins requests, one thread at a time."""
        self._room = Room(self._name, room, self._counts, self._look)
        self._closed = False
        self._forget()
        _all.add(self)

    def reset(self) -> None:
        """Forget the requests and their memory: in the child of a fork the devices are lost."""
        self._waiting.clear()
        self._running.clear()
        self._room.reset()
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()  # taken by threads of ours only
        self._free: list[RequestMemory] = []
        self._made = 0

    @property
    def closed(self) -> bool:
        """Return whether it takes no more."""
        return self._closed

    @property
    def memories(self) -> int:
        """For how many requests at once there is memory now."""
        return self._made

    def submit(
        self,
        inputs: Arrays,
        outputs: Callable[[], Answer],
        timeout: float | None = None,
        submitted: Submitted | None = None,
        deadline: float | None = None,
    ) -> Request[Answer]:
        """Run a request; ``outputs`` makes its arrays when it begins, ``submitted`` receives its steps' submissions.

        It waits for room, at most ``timeout`` seconds; where no request has memory yet also for devices above their
        watermarks, as long for each. Raises UsageError when closed and for a ``deadline`` that is not in the future,
        DeviceTimeoutError.
        """
        if self._closed:
            raise self.too_late()
        check_timeout(timeout)
        request: Request[Answer] = Request(self._name, deadline)
        if not self._made:
            for device in self._loaded.devices.values():
                device.allocator.admit(timeout)
        self._room.wait(timeout)
        self._waiting.append(_Waiting(request, inputs, outputs, [] if submitted is None else submitted))
        if len(self._running) < self._most:  # else one of those looks when it is over
            self._look()
        return request

    def close(self) -> None:
        """Take no more. Requests that wait fail with UsageError; of those that run fails what has not begun."""
        self._closed = True
        apart(self._close)

    def _close(self) -> None:
        self._loaded.close()
        self._advance()
        with self._lock:
            memories, self._free = self._free, []
        for memory in memories:
            self._drop(memory)

    def too_late(self) -> UsageError:
        """Return the error of a request that comes too late."""
        return UsageError(f"{self._name} is closed")

    def _counts(self) -> tuple[int, int]:
        """Return how many run, and how many wait that were not cancelled."""
        return len(self._running), sum(not each.request.done() for each in list(self._waiting))

    def _look(self) -> None:
        self._starter.submit(self._advance)

    def _advance(self) -> None:
        """Begin the requests that can."""
        crowded = False
        while (found := self._next(crowded)) is not None:
            waiting, memory = found
            try:
                memory = self._new_memory() if memory is None else memory
            except DeviceMemoryError as error:
                if not self._made:
                    self._refuse(waiting, None, error)
                    continue
                self._waiting.appendleft(waiting)
                self._ended()
                crowded = True  # until one of the others is over
            except BaseException as error:  # noqa: BLE001 - it is that of the request
                self._refuse(waiting, None, error)
            else:
                self._begin(waiting, memory)

    def _next(self, crowded: bool) -> tuple[_Waiting, RequestMemory | None] | None:
        """Return a request that can begin, with the memory of one that is over; without any it is given new one."""
        with self._lock:
            if not self._waiting:
                return None
            memory = self._free.pop() if self._free and not self._closed else None
            if memory is None:
                more = not self._made or (not crowded and self._made < self._most and not self._full())
                if not more and not self._closed:
                    return None
                self._made += 1
            self._running.append(None)
            return self._waiting.popleft(), memory

    def _full(self) -> bool:
        """Return whether a device is to have no new work for now."""
        return any(device.allocator.full for device in self._loaded.devices.values())

    def _new_memory(self) -> RequestMemory:
        """Return memory that was counted already."""
        try:
            if self._closed:
                raise self.too_late()
            return RequestMemory(self._loaded)
        except BaseException:
            with self._lock:
                self._made -= 1
            raise

    def _begin(self, waiting: _Waiting, memory: RequestMemory) -> None:
        request = waiting.request
        if not request.set_running_or_notify_cancel():
            self._give_back(memory)
            self._ended()
            return
        try:
            request.check()
            outputs = waiting.outputs()
        except BaseException as error:  # noqa: BLE001 - it is that of the request
            self._refuse(waiting, memory, error)
            return

        def done(error: BaseException | None) -> None:
            self._give_back(memory)
            self._ended()
            if self._waiting:
                self._look()
            if error is None:
                request.set_result(parts(outputs, self._counted) if self._counted else outputs)
            else:
                # A copy: others have the same error, and the frames of who raises it would keep their memory.
                request.set_exception(_late(request) or again(error))

        def stop() -> None:
            for _, submission in list(waiting.submitted):
                submission.cancel()

        memory.start(waiting.inputs, outputs, done, waiting.submitted, request.deadline_ns)
        request.when_cancelled(lambda: self._starter.submit(stop))

    def _refuse(self, waiting: _Waiting, memory: RequestMemory | None, error: BaseException) -> None:
        """End a request that could not begin."""
        if memory is not None:
            self._give_back(memory)
        request = waiting.request
        if request.running() or request.set_running_or_notify_cancel():
            request.set_exception(error)
        self._ended()

    def _ended(self) -> None:
        """Note that one ended."""
        self._running.pop()
        self._room.tell()

    def _give_back(self, memory: RequestMemory) -> None:
        """Keep it for the next request, or give it to others that need it more."""
        with self._lock:
            keep = not self._closed and (self._made == 1 or not self._full())
            if keep:
                self._free.append(memory)
        if not keep:
            self._drop(memory)

    def _drop(self, memory: RequestMemory) -> None:
        memory.free()
        with self._lock:
            self._made -= 1


def _late(request: Request[Answer]) -> DeviceTimeoutError | None:
    """Return the error of a request behind its deadline: its steps know only that they were not to begin."""
    try:
        request.check()
    except DeviceTimeoutError as error:
        return error
    except CancelledError:
        pass
    return None


_all: weakref.WeakSet[InFlight] = weakref.WeakSet()


def _reset_all() -> None:
    for each in list(_all):
        each.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)

__all__ = ["Answer", "InFlight"]
