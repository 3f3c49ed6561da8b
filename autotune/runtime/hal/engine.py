"""The interface that a driver implements, and the common part of drivers: commands one by one, copies
between devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.errors import DeviceError
from autotune.runtime.cpu.check_rows import failed_check
from autotune.runtime.hal.allocator import Storage
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer
from autotune.runtime.hal.command_buffer import (
    BarrierCommand,
    CheckIndices,
    Command,
    CopyCommand,
    DispatchCommand,
    Fill,
    failed,
    resolved,
)
from autotune.runtime.hal.executable import Code, Executable

Stopped = Callable[[], bool]
"""Says whether the submission was cancelled: asked between commands."""


class Engine(Storage, Protocol):
    """The functions of one device.

    ``run`` is called in the thread of a queue, for one submission after another; several queues of a device call it
    at the same time. All of it is done when it returns. An error of the device itself (not of one command) is a
    DeviceLostError: the device then takes no more work.
    """

    formats: tuple[str, ...]
    """Formats of code that :meth:`load` takes."""
    times_kernels: bool
    """True if :meth:`run` takes :class:`autotune.runtime.hal.timed.Timed` commands, too."""

    @property
    def pinned(self) -> Storage | None:
        """Memory of this process from and to which the device copies by itself; None where any is as good."""

    def load(self, code: Code) -> Any:
        """Return code that is ready to run: the handle of an executable. Raises BuildError."""

    def prepare(self, commands: Sequence[Command], slots: int) -> Any:
        """Prepare recorded commands for :meth:`run`, once for all submissions of them."""

    def run(self, name: str, prepared: Any, table: Sequence[Buffer], stopped: Stopped) -> bool:
        """Run prepared commands with the buffers of a submission; False when they were stopped before the last.

        An error of a command is raised as :func:`~autotune.runtime.hal.command_buffer.failed` makes it.
        """

    def enter_thread(self) -> None:
        """Prepare a thread of a queue; called first in each."""

    def close(self) -> None:
        """Free code, threads and contexts; nothing runs any more."""


class CommandEngine(Engine, Protocol):
    """The functions of a device whose engine runs commands one by one: see :func:`run_each`."""

    def dispatch(self, command: DispatchCommand, bindings: Sequence[Buffer]) -> None:
        """Run a kernel; it may go on after the return, until :meth:`barrier`."""

    def copy_within(self, source: Buffer, target: Buffer) -> None:
        """Copy between buffers of this device."""

    def read(self, source: Buffer, target: NDArray[np.uint8]) -> None:
        """Copy from this device to this process; done at the return."""

    def write(self, source: NDArray[np.uint8], target: Buffer) -> None:
        """Copy from this process to this device; done at the return, or ``source`` is kept."""

    def fill(self, target: Buffer, pattern: bytes) -> None:
        """Repeat a pattern."""

    def barrier(self) -> None:
        """Let all commands that follow wait for all before."""

    def finish(self, name: str) -> None:
        """Return when all commands of submission ``name`` are done; raises DeviceError for one that failed."""


def run_each(
    engine: CommandEngine,
    space: str,
    device: str,
    name: str,
    commands: Sequence[Command],
    table: Sequence[Buffer],
    stopped: Stopped,
) -> bool:
    """Run commands one by one, each behind the one before; False when they were stopped."""
    for index, command in enumerate(commands):
        if stopped():
            engine.finish(name)
            return False
        try:
            _run(engine, space, command, table)
        except Exception as error:
            with suppress(DeviceError):  # what was begun uses memory; the first error counts
                engine.finish(name)
            raise failed(device, name, index, command, error) from error
    engine.finish(name)
    return True


def _run(engine: CommandEngine, space: str, command: Command, table: Sequence[Buffer]) -> None:
    match command:
        case DispatchCommand():
            bindings = [resolved(each, table) for each in command.bindings]
            engine.dispatch(command, bindings)
        case CheckIndices():
            engine.barrier()
            indices = resolved(command.indices, table)
            values = np.empty(indices.nbytes, np.uint8)
            engine.read(indices, values)
            check_indices(command, values)
        case CopyCommand():
            copy_between(engine, space, resolved(command.source, table), resolved(command.target, table))
        case Fill():
            engine.fill(resolved(command.target, table), command.pattern)
        case BarrierCommand():
            engine.barrier()


def copy_between(engine: CommandEngine, space: str, source: Buffer, target: Buffer) -> None:
    """Copy from, to or within a device. Raises DeviceError where neither side is of it nor of this process."""
    if source.space == target.space == space:
        engine.copy_within(source, target)
    elif source.space == space and target.space == HOST_SPACE:
        engine.barrier()
        engine.read(source, target.host())
    elif source.space == HOST_SPACE and target.space == space:
        engine.write(source.host(), target)
    elif source.space == target.space == HOST_SPACE:
        np.copyto(target.host(), source.host())
    else:
        raise DeviceError(f"no way from {source} to {target} in one copy: go through a host buffer")


def check_indices(check: CheckIndices, memory: NDArray[np.uint8]) -> None:
    """Raise InputError for the first index out of range."""
    dtype = np.dtype(f"i{check.width}")
    strides = (check.stride, check.width)
    indices: NDArray[Any] = np.ndarray((check.runs, check.count), dtype, memory.data, 0, strides)
    wrong = (indices < -check.extent) | (indices >= check.extent)
    if wrong.any():
        raise failed_check(int(indices[wrong][0]), check.width, check.message)


__all__ = [
    "Code",
    "CommandEngine",
    "Engine",
    "Executable",
    "Stopped",
    "check_indices",
    "copy_between",
    "run_each",
]
