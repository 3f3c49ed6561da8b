"""Queues: submissions that wait for points on timelines, run recorded commands, and signal other points.

Submissions of a queue run one at a time, by default in the order of submission. Nothing blocks while one waits: what
is submitted is counted down by the timelines, and goes to the queue's thread when all it waits for is there. A
submission that fails, or waits for something that fails, lets its own points fail and nothing else; its successors on
the queue that do not wait for those run as if it had not been.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from autotune.errors import (
    CancelledWorkError,
    DeviceClosedError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    UsageError,
)
from autotune.runtime.hal.buffer import Buffer
from autotune.runtime.hal.command_buffer import CommandBuffer
from autotune.runtime.hal.errors import without_frames
from autotune.runtime.hal.semaphore import Point, Timeline
from autotune.runtime.requests.queue import Requests

if TYPE_CHECKING:
    from autotune.runtime.hal.device import Device

_WAITING: Final = 0
_READY: Final = 1  # all it waits for is there; not begun
_RUNNING: Final = 2
_DONE: Final = 3

_LOG = logging.getLogger("autotune.runtime.hal")
_numbers = itertools.count(1)


class Submission:
    """Commands on their way through a queue. ``begin_ns`` and ``end_ns`` are of ``time.monotonic_ns``, 0 before."""

    def __init__(
        self,
        queue: Queue,
        commands: CommandBuffer,
        table: tuple[Buffer, ...],
        signals: tuple[Point, ...],
        deadline_ns: int = 0,
    ) -> None:
        self.number = next(_numbers)
        self.name = commands.name
        self.begin_ns = self.end_ns = 0
        self._finished = Timeline(f"{self.name} on {queue.name}")
        self._queue = queue
        self._work: tuple[CommandBuffer, tuple[Buffer, ...]] | None = (commands, table)
        self._signals = signals
        self._used = (*commands.allocations, *(buffer.allocation for buffer in table))
        for allocation in self._used:
            allocation.retain()
        self._awaited: list[tuple[Timeline, int]] = []
        self._state = _WAITING
        self._missing = 1
        self._turn = True
        """True if all submissions before it on a queue in order are over."""
        self._next: Submission | None = None
        self._cancelled = False
        self._deadline_ns = deadline_ns

    def __lt__(self, other: Submission) -> bool:
        """Return whether it was submitted before another one."""
        return self.number < other.number

    @property
    def done(self) -> bool:
        """Return whether it is over, in whatever way."""
        return self._state == _DONE

    @property
    def error(self) -> BaseException | None:
        """Return the error that it failed with."""
        return self._finished.error

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is over; raises its error, or DeviceTimeoutError."""
        self._finished.wait(1, timeout)

    def cancel(self) -> bool:
        """Do not begin it, or end it before its next command; what waits for it fails with CancelledWorkError.

        False where it was over already. Kernels that run are not interrupted.
        """
        return self._queue._cancel(self)

    def stopped(self) -> bool:
        """Return whether it is to end before its next command."""
        return self._cancelled or self._late()

    def _late(self) -> bool:
        return bool(self._deadline_ns) and time.monotonic_ns() > self._deadline_ns


class Queue:
    """A queue of a device with a thread of its own while it has work; any thread may submit.

    ``limit`` submissions may be under way; a further one waits for room. Without ``in_order`` submissions run as soon
    as what they wait for is there; where several could, the one that was submitted first, so that of requests in flight
    the oldest ends first.
    """

    def __init__(self, device: Device, name: str, *, in_order: bool = True, limit: int = 1024) -> None:
        if limit < 1:
            raise UsageError(f"a queue has room for 1 submission or more, got {limit}")
        self.name = f"{device.name} {name}"
        self.busy_ns = 0
        """Time spent running commands."""
        self.completed = 0
        """Submissions that ran to their end."""
        self._device = device
        self._in_order = in_order
        self._limit = limit
        self._lock = threading.Lock()
        self._requests = Requests(device.engine.enter_thread)
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit):
            self._room.put(None)
        self._open: dict[int, Submission] = {}
        self._ready: list[Submission] = []
        """A heap of those that can run: one for each call of :meth:`_run_first` to come."""
        self._tail: Submission | None = None
        self._closed = False

    @property
    def pending(self) -> int:
        """Return the number of submissions that are not over."""
        return len(self._open)

    def submit(
        self,
        commands: CommandBuffer,
        table: Sequence[Buffer] = (),
        *,
        wait: Sequence[Point] = (),
        signal: Sequence[Point] = (),
        new: bool = True,
        timeout: float | None = None,
        deadline_ns: int = 0,
    ) -> Submission:
        """Run commands with the buffers of their slots once all points of ``wait`` are reached; then signal others.

        Work that is ``new`` is held back while the device's memory is above its watermark; further submissions of
        a request that was let in are not ``new``. ``timeout`` seconds are the most it is held back for that or for room
        in the queue. What has not ended by ``deadline_ns`` of ``time.monotonic_ns`` (0: never) fails when it would
        begin, or before its next command, with DeviceTimeoutError. Raises UsageError for commands of another device and
        buffers that do not fit, DeviceTimeoutError, DeviceClosedError and DeviceLostError. What goes wrong later the
        points of ``signal`` tell, and :meth:`Submission.wait`.
        """
        if commands.device is not self._device:
            raise UsageError(
                f"{commands.name} was recorded for {commands.device.name}: {self.name} cannot run it"
            )
        self._check_open()
        commands.check_table(table)
        if new:
            self._device.allocator.admit(timeout)
        for timeline, value in signal:
            if value <= timeline.query():
                raise UsageError(
                    f"{timeline.name} stands at {timeline.query()}: {commands.name} cannot signal {value}"
                )
        self._take_room(timeout)
        submission = Submission(self, commands, tuple(table), tuple(signal), deadline_ns)
        try:
            self._enqueue(submission, len(wait))
            for timeline, value in wait:
                self._await(submission, timeline, value)
        except BaseException:
            self._fail(submission, self._cancellation(submission))
            raise
        self._arrived(submission, None)
        return submission

    def close(self, timeout: float | None = None) -> bool:
        """Take no more; what waits fails with DeviceClosedError, what runs is waited for, at most ``timeout`` seconds.

        False where that still runs.
        """
        with self._lock:
            self._closed = True
            waiting = list(self._open.values())
        self._room.put(None)
        for submission in waiting:
            self._fail(
                submission, DeviceClosedError(f"{self.name} was closed before it ran {submission.name}")
            )
        # Its thread runs one after another: what comes behind all others finds them over.
        last = self._requests.submit(lambda: None)
        try:
            last.result(timeout)
        except TimeoutError:
            return False
        return True

    def abandon(self, error: DeviceLostError) -> None:
        """Let all that is under way fail, that which runs too."""
        with self._lock:
            submissions = list(self._open.values())
        self._room.put(None)
        for submission in submissions:
            self._fail(submission, error, running=True)

    def _check_open(self) -> None:
        self._device.check()
        if self._closed:
            raise DeviceClosedError(f"{self.name} is closed")

    def _take_room(self, timeout: float | None) -> None:
        try:
            self._room.get(timeout=timeout)
        except Empty:
            raise DeviceTimeoutError(
                f"{self.name} had no room within {timeout:g} s: {self.pending} submissions are under way, of "
                f"{self._limit} at most"
            ) from None
        try:
            self._check_open()
        except DeviceError:
            self._room.put(None)  # the next one that waits for room must not, either
            raise

    def _enqueue(self, submission: Submission, points: int) -> None:
        with self._lock:
            self._check_open()
            submission._missing += points
            self._open[submission.number] = submission
            before, self._tail = self._tail, submission
            if self._in_order and before is not None and not (before._turn and before.done):
                submission._turn = False
                before._next = submission

    def _await(self, submission: Submission, timeline: Timeline, value: int) -> None:
        def arrival(error: BaseException | None) -> None:
            self._arrived(submission, error)

        key = timeline.when(value, arrival)
        submission._awaited.append((timeline, key))
        if submission.done:  # it failed meanwhile, and forgot only those before
            timeline.forget(key)

    def _arrived(self, submission: Submission, error: BaseException | None) -> None:
        """Note that one of the things that it waits for is there, or never will be."""
        if error is not None:
            self._fail(submission, error)
        with self._lock:
            submission._missing -= 1
            ready = self._begin(submission)
        if ready:
            self._requests.submit(self._run_first)

    def _begin(self, submission: Submission) -> bool:
        """Return whether it can go to the thread now, where it then waits for its turn; the lock is held."""
        ready = submission._state == _WAITING and submission._turn and not submission._missing
        if ready:
            submission._state = _READY
            heapq.heappush(self._ready, submission)
        return ready

    def _run_first(self) -> None:
        """Run the one of those that can which was submitted first."""
        with self._lock:
            submission = heapq.heappop(self._ready)
            work = submission._work
            if submission._state != _READY or work is None:
                return
            submission._state = _RUNNING
        submission.begin_ns = time.monotonic_ns()
        error = self._outcome(submission, *work)
        submission.end_ns = time.monotonic_ns()
        self.busy_ns += submission.end_ns - submission.begin_ns
        self.completed += error is None
        if isinstance(error, DeviceLostError):
            self._device.lose(error)
        self._leave(submission)
        self._finish(submission, error, _RUNNING)

    def _outcome(
        self, submission: Submission, commands: CommandBuffer, table: tuple[Buffer, ...]
    ) -> BaseException | None:
        stopped, run = submission.stopped, self._device.engine.run
        try:
            complete = not stopped() and run(commands.name, commands.prepared, table, stopped)
        except BaseException as error:  # noqa: BLE001 - it travels to those who wait
            return without_frames(error)
        if complete:
            return None
        if submission._cancelled:
            return self._cancellation(submission)
        return DeviceTimeoutError(f"{submission.name} did not end by its deadline\n  on {self.name}")

    def _cancel(self, submission: Submission) -> bool:
        submission._cancelled = True
        self._fail(submission, self._cancellation(submission))
        return not submission.done or isinstance(submission.error, CancelledWorkError)

    def _cancellation(self, submission: Submission) -> CancelledWorkError:
        return CancelledWorkError(f"{submission.name} was cancelled\n  on {self.name}")

    def _fail(self, submission: Submission, error: BaseException, *, running: bool = False) -> None:
        """End one that does not run; or one that does, whose memory stays its own until it returns."""
        if self._finish(submission, error, _RUNNING if running else _READY) != _RUNNING:
            self._leave(submission)

    def _finish(self, submission: Submission, error: BaseException | None, latest: int) -> int:
        """Finish it, unless it is in a later state than ``latest``: signal, and let the next begin.

        Returns the state that it was in.
        """
        with self._lock:
            found = submission._state
            if found > latest:
                return _RUNNING  # somebody else sees to it
            submission._state = _DONE
            self._open.pop(submission.number, None)
        for timeline, value in submission._signals:
            _signal(timeline, value, error)
        _signal(submission._finished, 1, error)
        self._pass_turn(submission)
        return found

    def _leave(self, submission: Submission) -> None:
        """Give back what it holds."""
        for timeline, key in submission._awaited:
            timeline.forget(key)
        for allocation in submission._used:
            allocation.release()
        submission._awaited, submission._used = [], ()
        submission._work = None
        self._room.put(None)

    def _pass_turn(self, submission: Submission) -> None:
        """Let those begin that only waited for their turn."""
        ready = 0
        with self._lock:
            at: Submission | None = submission
            while at is not None and at.done and at._turn:
                following, at._next = at._next, None
                if self._tail is at:
                    self._tail = None
                if following is not None:
                    following._turn = True
                    if self._begin(following):
                        ready += 1
                at = following
        for _ in range(ready):
            self._requests.submit(self._run_first)


def _signal(timeline: Timeline, value: int, error: BaseException | None) -> None:
    try:
        if error is None:
            timeline.signal(value)
        else:
            timeline.fail(error)
    except UsageError as wrong:  # two submissions signal the same value
        _LOG.error("%s", wrong)
        timeline.fail(wrong)


__all__ = ["Queue", "Submission"]
