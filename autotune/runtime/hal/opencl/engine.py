"""The engine of OpenCL devices: a command queue a thread, memory of the device, and copies there and back."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import DeviceError, DeviceLostError
from autotune.opencl import pyopencl
from autotune.runtime.cpu.device import allocate_pages
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer
from autotune.runtime.hal.command_buffer import Command, DispatchCommand
from autotune.runtime.hal.engine import Stopped, run_each
from autotune.runtime.hal.executable import Code
from autotune.runtime.hal.opencl import code as opencl_code
from autotune.runtime.hal.opencl.errors import driver_errors
from autotune.runtime.hal.opencl.pinned import OpenclPinnedMemory
from autotune.runtime.hal.opencl.shared import context_of, wrapped
from autotune.runtime.hal.slowdown import slowed
from autotune.runtime.hal.timed import Span, Timed


class OpenclEngine:
    """A device of pyopencl's. Commands of a thread go to a queue in order, so that barriers cost nothing.

    For tests, all that runs may be made to take ``slowdown`` times as long.
    """

    formats: tuple[str, ...] = ("opencl-c",)
    times_kernels = True

    def __init__(self, name: str, space: str, device: Any, slowdown: float = 1.0) -> None:
        self._name = name
        self._space = space
        self._slowdown = slowdown
        self._cl = pyopencl()
        self._device = device
        self._context = context_of(device)
        self._shared = space == HOST_SPACE
        self.pinned = None if self._shared else OpenclPinnedMemory(name, self._context)
        self._threads = threading.local()

    # -- memory ----------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Any:
        """Return a buffer, or memory of this process; raises MemoryError, BuildError."""
        if nbytes > self._device.max_mem_alloc_size:
            raise MemoryError(f"{self._name} gives {self._device.max_mem_alloc_size} bytes at once at most")
        if self._shared:
            return allocate_pages(nbytes)
        try:
            with driver_errors(self._name):
                return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(nbytes, 1))
        except DeviceLostError:
            raise
        except DeviceError as error:
            raise MemoryError(str(error)) from error

    def release(self, storage: Any) -> None:
        """Free a buffer; raises DeviceError. This process's memory goes back with its last reference."""
        if self._shared:
            return
        with driver_errors(self._name):
            storage.release()

    def host_view(self, storage: Any) -> NDArray[np.uint8] | None:
        """Return all of it, where it is this process's memory; else this process cannot reach it."""
        found: NDArray[np.uint8] | None = storage if self._shared else None
        return found

    def _handle(self, buffer: Buffer) -> Any:
        """Return the driver's object for a buffer of this device."""
        return wrapped(self._context, buffer.allocation) if self._shared else buffer.allocation.storage

    # -- commands --------------------------------------------------------------------------------------------

    def load(self, code: Code) -> list[opencl_code.OpenclKernel]:
        """Load kernels; raises BuildError."""
        return opencl_code.load(self._context, code)

    def compile(
        self, kernels: Sequence[opencl_code.OpenclKernel], tiles: Sequence[int], binding: Buffer
    ) -> None:
        """Have the driver make machine code for so many tiles of each kernel; raises DeviceError.

        Drivers that keep it do not make it again, in other processes neither.
        """
        for kernel, count in zip(kernels, tiles, strict=True):
            kernel.compile(self._queue, self._handle(binding), max(count, 1))
        self.finish("compiling")

    def prepare(self, commands: Sequence[Command], slots: int) -> tuple[Command, ...]:
        """Return the commands as they are."""
        return tuple(commands)

    def run(self, name: str, prepared: Any, table: Sequence[Buffer], stopped: Stopped) -> bool:
        """Put all of them into the thread's queue, and wait for it."""
        return slowed(self._slowdown, lambda: self._run(name, prepared, table, stopped))

    def _run(self, name: str, prepared: Any, table: Sequence[Buffer], stopped: Stopped) -> bool:
        if isinstance(prepared, Timed):
            return self._run_timed(name, prepared, table, stopped)
        return run_each(self, self._space, self._name, name, prepared, table, stopped)

    def _run_timed(self, name: str, prepared: Timed, table: Sequence[Buffer], stopped: Stopped) -> bool:
        """Return the same in a queue that keeps the times of its kernels."""
        plain = self._queue
        self._threads.queue = self._timing_queue
        self._threads.started = started = list[Any]()
        try:
            whole = self._run(name, prepared.commands, table, stopped)
            prepared.spans = _spans(started)
            return whole
        finally:
            self._threads.queue, self._threads.started = plain, None

    def dispatch(self, command: DispatchCommand, bindings: Sequence[Buffer]) -> None:
        """Start a kernel."""
        kernel: opencl_code.OpenclKernel = command.executable.handle[command.entry]
        with driver_errors(self._name):
            places = [(self._handle(each), each.offset) for each in bindings]
            event = kernel.start(self._queue, places, command.tiles)
        if (started := getattr(self._threads, "started", None)) is not None:
            started.append(event)

    def copy_within(self, source: Buffer, target: Buffer) -> None:
        """Copy between buffers."""
        if source.nbytes:
            places = {"src_offset": source.offset, "dst_offset": target.offset, "byte_count": source.nbytes}
            with driver_errors(self._name):
                self._cl.enqueue_copy(self._queue, self._handle(target), self._handle(source), **places)

    def read(self, source: Buffer, target: NDArray[np.uint8]) -> None:
        """Copy to this process, after what is before in the queue."""
        if source.nbytes:
            with driver_errors(self._name):
                storage, offset = self._handle(source), source.offset
                self._cl.enqueue_copy(self._queue, target, storage, src_offset=offset, is_blocking=True)

    def write(self, source: NDArray[np.uint8], target: Buffer) -> None:
        """Copy from this process."""
        if target.nbytes:
            with driver_errors(self._name):
                storage, offset = self._handle(target), target.offset
                self._cl.enqueue_copy(self._queue, storage, source, dst_offset=offset, is_blocking=True)

    def fill(self, target: Buffer, pattern: bytes) -> None:
        """Repeat a pattern."""
        if target.nbytes:
            kind = np.frombuffer(pattern, np.uint8)
            with driver_errors(self._name):
                storage = self._handle(target)
                self._cl.enqueue_fill_buffer(self._queue, storage, kind, target.offset, target.nbytes)

    def barrier(self) -> None:
        """Do nothing: commands of a queue run one after another."""

    def finish(self, name: str) -> None:
        """Wait for the thread's queue; raises DeviceError."""
        with driver_errors(f"{name} failed on {self._name}"):
            self._queue.finish()

    def enter_thread(self) -> None:
        """Do nothing: a thread gets its queue with its first command."""

    def close(self) -> None:
        """Do nothing: the context stays with the device, for others that opened it."""

    @property
    def _queue(self) -> Any:
        """The calling thread's queue."""
        queue = getattr(self._threads, "queue", None)
        if queue is None:
            queue = self._threads.queue = self._cl.CommandQueue(self._context)
        return queue

    @property
    def _timing_queue(self) -> Any:
        """The calling thread's queue that keeps times, which costs others a little."""
        queue = getattr(self._threads, "timing_queue", None)
        if queue is None:
            keeping = self._cl.command_queue_properties.PROFILING_ENABLE
            queue = self._threads.timing_queue = self._cl.CommandQueue(self._context, properties=keeping)
        return queue


def _spans(events: Sequence[Any]) -> list[Span]:
    """Begin and end of kernels that are over, on this process's clock; None is over where the one before is.

    The device has a clock of its own: what ended last is taken to have ended now.
    """
    known = [(event.profile.start, event.profile.end) for event in events if event is not None]
    at, shift = (known[0][0], time.monotonic_ns() - known[-1][1]) if known else (0, time.monotonic_ns())
    found, rest = list[Span](), iter(known)
    for event in events:
        begin, at = (at, at) if event is None else next(rest)
        found.append((begin + shift, at + shift))
    return found


__all__ = ["OpenclEngine"]
