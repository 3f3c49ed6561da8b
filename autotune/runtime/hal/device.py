"""A device: its memory, its queues and its code, whatever driver it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.errors import DeviceClosedError, DeviceError, DeviceLostError, UsageError
from autotune.hardware import usable_memory
from autotune.runtime.hal.allocator import Allocator
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer, host_buffer
from autotune.runtime.hal.command_buffer import Recorder
from autotune.runtime.hal.engine import Engine
from autotune.runtime.hal.errors import again
from autotune.runtime.hal.executable import Code, Executable
from autotune.runtime.hal.queue import Queue
from autotune.target import Target

_LOST_S = 1.0
"""So long a lost device is waited for when it is closed."""
_PINNED_SHARE = 4
"""The system cannot page pinned memory out: a quarter of all at most."""


@dataclass(frozen=True)
class DeviceInfo:
    """The facts of a device that need no opening; sizes in bytes.

    ``space`` is its memory space: devices of one space use each other's buffers without a copy. ``cores`` are workers
    of a CPU device or compute units; ``core_ids`` on which cores of this machine it runs, if it has no processors
    of its own; ``caches`` are sizes by level; ``find_target`` tells what to compile for it, which may load a compiler.
    """

    name: str
    driver: str
    kind: str
    description: str
    cores: int
    memory_bytes: int
    space: str
    caches: Mapping[int, int] = field(default_factory=dict)
    core_ids: tuple[int, ...] = ()
    find_target: Callable[[], Target] | None = field(default=None, compare=False)

    @cached_property
    def target(self) -> Target | None:
        """Return the target to compile for it; None where nothing can be. A model that is compiled already
        runs without it."""
        return None if self.find_target is None else self.find_target()


class Device:
    """An open device. ``compute`` runs kernels and ``transfers`` copies, at the same time; :meth:`queue` makes more.

    ``host_allocator`` gives memory of this process that copies to and from the device are fastest with (pinned); None
    where any memory of this process is as good.
    Any thread may use it. It does not survive a fork.
    """

    def __init__(self, info: DeviceInfo, engine: Engine) -> None:
        self.info = info
        self.name = info.name
        self.space = info.space
        self.engine = engine
        self.allocator = Allocator(info.name, info.space, engine, info.memory_bytes)
        pinned, most = engine.pinned, usable_memory() // _PINNED_SHARE
        self.host_allocator = (
            None if pinned is None else Allocator(f"{info.name} pinned", HOST_SPACE, pinned, most)
        )
        self._closed = False
        self._lost: DeviceLostError | None = None
        self._queues: list[Queue] = []
        self.compute = self.queue("compute")
        self.transfers = self.queue("transfers")

    @property
    def closed(self) -> bool:
        """Return whether it takes no more work because it was closed."""
        return self._closed

    def queue(self, name: str, *, in_order: bool = True, limit: int = 1024) -> Queue:
        """Return a further queue: see :class:`Queue`."""
        made = Queue(self, name, in_order=in_order, limit=limit)
        self._queues.append(made)
        return made

    def close_queue(self, queue: Queue) -> None:
        """Close a further queue, and forget it; nothing happens to one that is closed already."""
        queue.close()
        with suppress(ValueError):
            self._queues.remove(queue)

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        """Return the uninitialised memory; raises DeviceMemoryError, and as :meth:`check` does."""
        self.check()
        try:
            return self.allocator.allocate(nbytes, label)
        except DeviceLostError as error:
            self.lose(error)
            raise

    def load(self, code: Code) -> Executable:
        """Return code that can be dispatched. Raises UsageError for code of another format, BuildError."""
        self.check()
        if code.format not in self.engine.formats:
            raise UsageError(
                f"{self.name} runs code of format {', '.join(self.engine.formats)}, got {code.format}"
            )
        return Executable(self.name, code.entries, self.engine.load(code))

    def record(self, name: str = "commands") -> Recorder:
        """Record commands for it."""
        return Recorder(self, name)

    def upload(self, array: NDArray[Any], label: str = "") -> Buffer:
        """Return a buffer with the bytes of an array, after they have come there."""
        source = host_buffer(np.ascontiguousarray(array))
        buffer = self.allocate(source.nbytes, label)
        self._copy(source, buffer)
        return buffer

    def download(self, buffer: Buffer, dtype: DTypeLike, shape: Sequence[int]) -> NDArray[Any]:
        """Return a new array of the bytes of a buffer."""
        array = np.empty(shape, dtype)
        self._copy(buffer, host_buffer(array))
        return array

    def _copy(self, source: Buffer, target: Buffer) -> None:
        recorder = self.record("a copy")
        recorder.copy(source, target)
        self.transfers.submit(recorder.finish(), new=False).wait()

    def check(self) -> None:
        """Raise DeviceClosedError or DeviceLostError where it takes no work."""
        if self._lost is not None:
            raise again(self._lost)
        if self._closed:
            raise DeviceClosedError(f"{self.name} is closed")

    def lose(self, error: DeviceLostError) -> None:
        """Take no more work, and let all that is under way fail: it does not answer any more."""
        self._lost = self._lost or error
        self.allocator.refuse(self._lost)
        for queue in self._queues:
            queue.abandon(error)

    def close(self) -> None:
        """Let what waits fail, wait for what runs, and free the device's threads and code.

        A device that was lost may never end what it runs: then, after a second, its threads and code are left to it.
        """
        if self._closed:
            return
        self._closed = True
        self.allocator.refuse(DeviceClosedError(f"{self.name} is closed"))
        timeout = None if self._lost is None else _LOST_S
        idle = [queue.close(timeout) for queue in self._queues]
        with nullcontext() if self._lost is None else suppress(DeviceError):  # it may refuse even that
            self.allocator.trim()
            if self.host_allocator is not None:
                self.host_allocator.trim()
            if all(idle):
                self.engine.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", lost" if self._lost else ", closed" if self._closed else ""
        return f"<Device {self.name}: {self.info.description}{state}>"


__all__ = ["Device", "DeviceInfo"]
