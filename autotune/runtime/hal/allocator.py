"""Memory of a device: pools of blocks by size class, statistics, and watermarks that hold back new work.

A block that is given back is kept for the next request of its class, as asking the system or a driver takes from
microseconds to milliseconds. Classes are four to a power of two, so at most a fifth of a block is unused.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.errors import BuildError, DeviceError, DeviceMemoryError, DeviceTimeoutError, UsageError
from autotune.rounding import round_up
from autotune.runtime.hal.buffer import Allocation, Buffer
from autotune.runtime.hal.errors import again

_LEAST = 256
"""Bytes of the smallest class."""
_SHOWN = 5


class Storage(Protocol):
    """The source of a device's blocks."""

    def allocate(self, nbytes: int) -> Any:
        """Return a block; raises MemoryError, BuildError or DeviceMemoryError where there is none."""

    def release(self, storage: Any) -> None:
        """Give a block back to the system or driver."""

    def host_view(self, storage: Any) -> NDArray[np.uint8] | None:
        """Return the bytes of a block, where this process can reach them."""


@dataclass(frozen=True)
class Statistics:
    """Bytes: in use, the most at any time, in use or kept for the next request; and counts of requests."""

    live: int
    peak: int
    reserved: int
    allocations: int
    reused: int
    failed: int
    held_back: int


def size_class(nbytes: int) -> int:
    """Return the bytes of the block that serves a request.

    >>> [size_class(n) for n in (1, 257, 1000, 1025)]
    [256, 320, 1024, 1280]
    """
    wanted = max(nbytes, _LEAST)
    step = 1 << ((wanted - 1).bit_length() - 3)
    return round_up(wanted, step)


class Allocator:
    """Memory of device ``name`` in memory space ``space``, at most ``capacity`` bytes; any thread may use it.

    ``kept`` is how many bytes of free blocks are kept at most.
    """

    def __init__(
        self, name: str, space: str, storage: Storage, capacity: int, kept: int | None = None
    ) -> None:
        self._name = name
        self._space = space
        self._storage = storage
        self._capacity = capacity
        self._kept = capacity // 4 if kept is None else kept
        self._low = self._high = sys.maxsize  # no watermark
        self._lock = threading.Lock()
        self._free: dict[int, list[Any]] = {}
        self._holders: dict[int, tuple[str, int]] = {}
        self._peak = self._allocations = self._reused = self._failed = self._held_back = 0
        self._returned: deque[Allocation] = deque()
        """Given back, perhaps by the garbage collector, which must not wait for a lock."""
        self._waiters: deque[SimpleQueue[None]] = deque()
        self._over = False
        self._refusal: DeviceError | None = None

    @property
    def capacity(self) -> int:
        """The most bytes that may be in use."""
        return self._capacity

    @property
    def full(self) -> bool:
        """Return whether new work is held back now."""
        return self._over and self._closed_gate()

    @property
    def admitted(self) -> int:
        """The most bytes with which new work may begin: the high watermark, or the capacity where there is none."""
        return min(self._capacity, self._high)

    def limit(self, *, high: int, low: int | None = None) -> None:
        """Hold back new submissions once ``high`` bytes are in use, until it is ``low`` (three quarters of it) or less.

        Raises UsageError unless 0 <= low < high <= capacity.
        """
        below = high * 3 // 4 if low is None else low
        if not 0 <= below < high <= self._capacity:
            raise UsageError(
                f"watermarks of {self._name}: 0 <= low < high <= {self._capacity} bytes, got {below} and {high}"
            )
        with self._lock:
            self._high, self._low = high, below
            self._over = self._live >= high
        self._wake()

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        """Return the uninitialised memory, aligned as the device needs it; ``label`` says for whom, in messages.

        Raises DeviceMemoryError where there is not so much, UsageError for a negative size.
        """
        if nbytes < 0:
            raise UsageError(f"a buffer has 0 bytes or more, got {nbytes}")
        block = size_class(nbytes)
        with self._lock:
            self._collect()
            self._allocations += 1
            if self._live + block > self._capacity:
                self._failed += 1
                raise self._no_memory(nbytes, label, "its capacity is " + _size(self._capacity))
            storage = self._take(block, nbytes, label)
            allocation = Allocation(
                self._space, storage, block, self._storage.host_view(storage), label, self._give_back
            )
            self._holders[allocation.number] = (label or "no label", block)
            self._peak = max(self._peak, self._live)
            self._over = self._over or self._live >= self._high
        return Buffer(allocation, 0, nbytes)

    def admit(self, timeout: float | None = None) -> None:
        """Return when new work may begin: at once, unless the high watermark was reached.

        Raises DeviceTimeoutError, which says who holds the memory, and what :meth:`refuse` was given.
        """
        if not self._over:
            return
        deadline = None if timeout is None else monotonic() + timeout
        box: SimpleQueue[None] = SimpleQueue()
        counted = False
        try:
            self._waiters.append(box)
            while self._closed_gate():
                if self._refusal is not None:
                    raise again(self._refusal)
                self._held_back += not counted
                counted = True
                box.get(timeout=None if deadline is None else max(0.0, deadline - monotonic()))
        except Empty:
            with self._lock:
                held = self._held()
            raise DeviceTimeoutError(
                f"{self._name} let no new work begin within {timeout:g} s: {_size(self._live)} are in use, and it "
                f"waits until that is {_size(self._low)} (high watermark: {_size(self._high)})\n  held by {held}"
            ) from None
        finally:
            with suppress(ValueError):
                self._waiters.remove(box)

    def refuse(self, error: DeviceError) -> None:
        """Let no work in any more: who is held back now, or would be, gets a copy of the error."""
        self._refusal = error
        self._wake()

    def trim(self) -> None:
        """Give free blocks back to the system."""
        with self._lock:
            self._collect()
            self._drop(0)

    @property
    def statistics(self) -> Statistics:
        """Return the bytes in use now, and at most."""
        with self._lock:
            self._collect()
            return Statistics(
                live=self._live,
                peak=self._peak,
                reserved=self._live + self._cached,
                allocations=self._allocations,
                reused=self._reused,
                failed=self._failed,
                held_back=self._held_back,
            )

    @property
    def _live(self) -> int:
        return sum(block for _, block in list(self._holders.values()))

    @property
    def _cached(self) -> int:
        return sum(block * len(kept) for block, kept in list(self._free.items()))

    def _closed_gate(self) -> bool:
        with self._lock:
            self._collect()
            return self._over

    def _take(self, block: int, nbytes: int, label: str) -> Any:
        """Return a block kept, or a new one; once more after giving all kept ones back."""
        free = self._free.get(block)
        if free:
            self._reused += 1
            return free.pop()
        self._drop(self._capacity - self._live - block)
        try:
            return self._storage.allocate(block)
        except (MemoryError, BuildError, DeviceMemoryError):
            self._drop(0)
        try:
            return self._storage.allocate(block)
        except (MemoryError, BuildError, DeviceMemoryError) as error:
            self._failed += 1
            raise self._no_memory(nbytes, label, str(error) or "the system has no more") from error

    def _drop(self, most: int) -> None:
        """Keep at most so many bytes of free blocks, small ones rather than large ones."""
        for block in sorted(self._free, reverse=True):
            while self._cached > most and self._free[block]:
                self._storage.release(self._free[block].pop())

    def _give_back(self, allocation: Allocation) -> None:
        self._returned.append(allocation)
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        for box in list(self._waiters):
            box.put(None)

    def _collect(self) -> None:
        """Take back what was returned; the lock is held.

        Interrupted anywhere it may lose a block that could be kept, and counts rightly.
        """
        while self._returned:
            allocation = self._returned[0]
            if (
                self._holders.pop(allocation.number, None) is not None
            ):  # not given back by two threads at once
                self._free.setdefault(allocation.nbytes, []).append(allocation.storage)
            self._returned.popleft()
        self._drop(self._kept)
        if self._live <= self._low:
            self._over = False

    def _no_memory(self, nbytes: int, label: str, reason: str) -> DeviceMemoryError:
        wanted = f" for {label}" if label else ""
        return DeviceMemoryError(
            f"{self._name} has no memory for {_size(nbytes)}{wanted}: {reason}\n  held by {self._held()}"
        )

    def _held(self) -> str:
        """Return the holders of memory, the largest first; the lock is held."""
        sums: dict[str, int] = {}
        for label, nbytes in self._holders.values():
            sums[label] = sums.get(label, 0) + nbytes
        most = sorted(sums.items(), key=lambda item: -item[1])
        parts = [f"{label} ({_size(nbytes)})" for label, nbytes in most[:_SHOWN]]
        more = [f"{len(most) - _SHOWN} more"] if len(most) > _SHOWN else []
        return ", ".join(parts + more) or "nobody"


def _size(nbytes: int) -> str:
    if nbytes < 1 << 10:
        return f"{nbytes} bytes"
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 1 << 20 else f"{nbytes / 2**10:.1f} KiB"


__all__ = ["Allocator", "Statistics", "Storage", "size_class"]
