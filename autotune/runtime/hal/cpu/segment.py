"""Kernels of a command buffer that follow each other, as one program of the native executor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout
from autotune.runtime.cpu.call_record import CallRecord
from autotune.runtime.cpu.calls import RAN, UNATTENDED, WRONG
from autotune.runtime.cpu.check_rows import CheckRows, failed_check
from autotune.runtime.cpu.device import address_of
from autotune.runtime.cpu.native import executor
from autotune.runtime.cpu.pool import ThreadPool
from autotune.runtime.cpu.program import Argument, Pointer, ProgramBuilder
from autotune.runtime.hal.buffer import Buffer
from autotune.runtime.hal.command_buffer import CheckIndices, DispatchCommand, Reference, Slot, failed
from autotune.runtime.image import TensorSpec


class Segment:
    """Dispatches and checks of indices; a run of it is one native call, and its runs follow each other."""

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool
        self._commands: list[tuple[int, DispatchCommand | CheckIndices]] = []
        self._after: list[int] = []
        """For each command how many are before the last barrier: it waits for those."""
        self._fence = 0
        self._slots: dict[int, int] = {}
        """The argument of the program for each slot that is used."""
        self._events: NDArray[np.int64] | None = None

    @property
    def commands(self) -> tuple[DispatchCommand | CheckIndices, ...]:
        """Return the commands that it runs, in order."""
        return tuple(command for _, command in self._commands)

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of a dispatch's tiles that each worker begins with."""
        return self._pool.shares

    def watch(self) -> NDArray[np.int64]:
        """Return the event rows [commands, workers, EVENT_SLOTS] that each run from now on writes anew."""
        self._events = np.zeros((len(self._commands), self._pool.workers, layout.EVENT_SLOTS), np.int64)
        return self._events

    def add(self, index: int, command: DispatchCommand | CheckIndices) -> None:
        """Add the next command, which is number ``index`` of all."""
        self._commands.append((index, command))
        self._after.append(self._fence)
        references = command.bindings if isinstance(command, DispatchCommand) else (command.indices,)
        for each in references:
            if isinstance(each, Slot):
                self._slots.setdefault(each.index, len(self._slots))

    def barrier(self) -> None:
        """Let what is added from now on wait for all that is there."""
        self._fence = len(self._commands)

    def finish(self) -> None:
        """Lay out the program; no more commands then."""
        self._checks = [(i, each) for i, each in self._commands if isinstance(each, CheckIndices)]
        self._rows = CheckRows([check for _, check in self._checks])
        builder = ProgramBuilder(self._pool.workers, self._pool.address, len(self._slots))
        number = 0
        for (_, command), after in zip(self._commands, self._after, strict=True):
            if isinstance(command, DispatchCommand):
                kernel = command.executable.handle.addresses[command.entry]
                bindings = [self._pointer(each) for each in command.bindings]
                touched = sum(each.nbytes for each in command.bindings)
                scratch = command.kernel.scratch_bytes
                builder.dispatch(kernel, bindings, command.tiles, scratch, after=after, touched=touched)
            else:
                touched = command.indices.nbytes
                table: list[Pointer] = [self._pointer(command.indices), self._rows.address(number)]
                builder.dispatch(
                    executor().check, table, self._rows.tiles(number), 0, after=after, touched=touched
                )
                number += 1
        self._program = builder.finish(self._rows.memory)
        arguments = [TensorSpec(f"slot {slot}", (), "uint8") for slot in self._slots]
        self._record = CallRecord(self._program.address, arguments, ())

    def run(self, name: str, device: str, table: Sequence[Buffer]) -> None:
        """Run it with the buffers of a submission; raises InputError for a wrong index, as a failed command."""
        addresses = [_address(table[slot]) for slot in self._slots]
        events = 0 if self._events is None else address_of(self._events)
        outcome, index = self._record.run(addresses, 1, 0, events)
        while outcome == UNATTENDED:
            self._pool.start()
            outcome, index = self._record.run(addresses, 1, 0, events)
        if outcome >= WRONG:
            command, check = self._checks[outcome - WRONG]
            raise failed(device, name, command, check, failed_check(index, check.width, check.message))
        assert outcome == RAN

    def _pointer(self, reference: Reference) -> Pointer:
        if isinstance(reference, Slot):
            return Argument(self._slots[reference.index], reference.offset)
        return _address(reference)


def _address(buffer: Buffer) -> int:
    view = buffer.allocation.view
    assert view is not None
    return address_of(view) + buffer.offset


__all__ = ["Segment"]
