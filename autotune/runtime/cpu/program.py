"""Programs: kernel calls recorded once, replayed many times by the native executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import HOST_MEMORY, Memory, address_of, allocate

_UNITS_A_WORKER = 16
_SMALL_BYTES = 1 << 16
"""A single tile that touches less takes about a microsecond, and to share it costs as much (1.2 of tiny_cnn's time)."""


@dataclass(frozen=True)
class Argument:
    """A pointer-table entry that each call sets: its argument ``index``, plus ``offset`` bytes."""

    index: int
    offset: int


Pointer = int | Argument
Guards = Sequence[tuple[Pointer, int]]
"""Booleans of one byte and what each must be, 0 or 1, for a call to be made."""


@dataclass(frozen=True)
class _Waits:
    """For each command whether worker 0 runs it ``alone``, and how many commands are ``awaited`` before it.

    The first ``shared`` commands are up to the last one that is not alone. ``between`` are those of them that all
    workers wait before, for all shared ones, and behind, before the next shared one.
    """

    alone: Sequence[bool]
    awaited: Sequence[int]
    shared: int

    @property
    def arriving(self) -> frozenset[int]:
        """Those that worker 0 runs alone and that others wait for: the last before each command that these share."""
        awaited = {wait for wait, alone in zip(self.awaited, self.alone, strict=True) if not alone}
        before = ([number for number in range(wait) if self.alone[number]][-1:] for wait in awaited)
        return frozenset(number for last in before for number in last)

    @property
    def between(self) -> frozenset[int]:
        numbers = [number for number, alone in enumerate(self.alone) if not alone]
        awaited = [*(self.awaited[number] for number in numbers), self.shared]
        waits = [wait > before for wait, before in zip(awaited, [-1, *numbers], strict=True)]
        return frozenset(
            n for n, (before, behind) in zip(numbers, pairwise(waits), strict=True) if before and behind
        )


@dataclass(frozen=True)
class _Dispatch:
    kernel: int
    table: tuple[Pointer, ...]
    tiles: int
    scratch_bytes: int
    after: int
    small: bool
    guards: Guards

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        return (*self.table, *(place for place, _ in self.guards))


@dataclass(frozen=True, eq=False)
class Program:
    """Recorded kernel calls, in the layout of :mod:`autotune.runtime.cpu.layout`.

    ``header`` starts with the slots of the same name there.
    """

    address: int
    header: memoryview
    memory: tuple[NDArray[np.int64] | NDArray[np.uint8], ...]


class ProgramBuilder:
    """Records dispatches for the workers of a pool and a number of call arguments.

    ``state`` is the address of the pool's state (0 for one worker); ``memory`` gives the scratch memory.
    """

    def __init__(self, workers: int, state: int, arguments: int, memory: Memory = HOST_MEMORY) -> None:
        self._memory = memory
        self._workers = workers
        self._state = state
        self._arguments = arguments
        self._dispatches: list[_Dispatch] = []

    def dispatch(
        self,
        kernel: int,
        table: Sequence[Pointer],
        tiles: int,
        scratch_bytes: int,
        *,
        after: int | None = None,
        touched: int | None = None,
        guards: Guards = (),
    ) -> None:
        """Record a call of the kernel at an address; it starts when the first ``after`` calls are done (None: all).

        Those from there on may be running meanwhile, whatever they were recorded to wait for. ``touched`` is how many
        bytes it reads and writes, where that is known: a single tile of few stays with the caller. It is made only if
        all its ``guards`` say so.
        """
        after = len(self._dispatches) if after is None else after
        small = touched is not None and touched < _SMALL_BYTES
        self._dispatches.append(_Dispatch(kernel, tuple(table), tiles, scratch_bytes, after, small, guards))

    def finish(self, checks: NDArray[np.int64] | None = None) -> Program:
        """Lay everything out in one piece of memory, but the check rows; raises nothing, records no more."""
        dispatches = self._dispatches
        largest = max((d.scratch_bytes for d in dispatches), default=0)
        scratch, stride = self._memory.shares(largest, self._workers)
        rows_at = layout.HEADER_SLOTS
        tables_at = rows_at + len(dispatches) * layout.COMMAND_SLOTS
        guards_at = tables_at + sum(len(d.table) for d in dispatches)
        patches_at = guards_at + layout.GUARD_SLOTS * sum(len(d.guards) for d in dispatches)
        patches = sum(isinstance(p, Argument) for d in dispatches for p in d.pointers)
        arguments_at = patches_at + patches * layout.PATCH_SLOTS
        slots = arguments_at + self._arguments
        memory = allocate(8 * slots).view(np.int64)
        memory.fill(0)
        base = address_of(memory)

        memory[layout.COMMANDS] = base + 8 * rows_at
        memory[layout.COUNT] = len(dispatches)
        memory[layout.SCRATCH] = address_of(scratch)
        memory[layout.SCRATCH_STRIDE] = stride
        memory[layout.PATCHES] = base + 8 * patches_at
        memory[layout.PATCH_COUNT] = patches
        memory[layout.ADDRESSES] = base + 8 * arguments_at
        waits = self._waits()
        memory[layout.PARALLEL] = not all(waits.alone)
        memory[layout.SHARED] = waits.shared
        memory[layout.SHARED_TILES] = sum(d.tiles for d in dispatches if d.tiles > 1)
        sample = np.zeros(len(dispatches) * self._workers * layout.EVENT_SLOTS, np.int64)
        memory[layout.SAMPLE] = address_of(sample)
        memory[layout.TEAM] = self._workers
        memory[layout.STATE] = self._state
        memory[layout.REQUEST] = base + 8 * layout.NO_REQUEST
        if checks is not None:
            memory[layout.CHECKS], memory[layout.CHECKED] = address_of(checks), len(checks)
        self._write_rows(memory, rows_at, base + 8 * tables_at, base + 8 * guards_at, waits)
        self._write_guards(memory, guards_at)
        self._write_pointers(memory, tables_at, guards_at, patches_at)
        return Program(base, memory.data, (memory, scratch, sample))

    def _waits(self) -> _Waits:
        """Return the worker of each command and what it waits for.

        Worker 0 runs those of one tile that can run beside nothing else, or are small: it has done those before when it
        comes to the next, and no atomic operation is needed among them. Others of one tile go to whoever comes first.
        """
        count = len(self._dispatches)
        after = list(accumulate((d.after for d in self._dispatches), max))
        beside = [position > done for position, done in enumerate(after)]
        alone = [
            d.tiles <= 1 and (d.small or not (beside[i] or (i + 1 < count and beside[i + 1])))
            for i, d in enumerate(self._dispatches)
        ]
        shared_before = [0, *accumulate((0 if a else i + 1 for i, a in enumerate(alone)), max)]
        awaited = [
            shared_before[d] if a else max(d, i + 1 - layout.RING)
            for i, (d, a) in enumerate(zip(after, alone, strict=True))
        ]
        return _Waits(alone, awaited, shared_before[-1])

    def _write_rows(self, memory: NDArray[np.int64], at: int, table: int, guard: int, waits: _Waits) -> None:
        """Write one row a command."""
        arriving, between = waits.arriving, waits.between
        for index, dispatch in enumerate(self._dispatches):
            row = memory[at + index * layout.COMMAND_SLOTS :]
            row[layout.KERNEL] = dispatch.kernel
            row[layout.TABLE] = table
            row[layout.TILES] = dispatch.tiles
            row[layout.UNIT] = max(1, dispatch.tiles // (self._workers * _UNITS_A_WORKER))
            row[layout.AWAIT] = waits.awaited[index]
            row[layout.ALONE] = waits.alone[index]
            if waits.alone[index]:
                row[layout.ARRIVE] = index in arriving
            else:
                row[layout.LEAVE] = index in between
            row[layout.GUARD] = guard if dispatch.guards else 0
            table += 8 * len(dispatch.table)
            guard += 8 * layout.GUARD_SLOTS * len(dispatch.guards)

    def _write_guards(self, memory: NDArray[np.int64], at: int) -> None:
        """Write the guard rows, those of a command one after another."""
        base = address_of(memory)
        for dispatch in self._dispatches:
            for left, (_, wanted) in zip(range(len(dispatch.guards))[::-1], dispatch.guards, strict=True):
                memory[at + layout.GUARD_WANTED] = wanted
                memory[at + layout.GUARD_NEXT] = base + 8 * (at + layout.GUARD_SLOTS) if left else 0
                at += layout.GUARD_SLOTS

    def _slots(self, tables_at: int, guards_at: int) -> Iterator[tuple[int, Pointer]]:
        """Yield the slot of each entry of a pointer table and of each guard's place, with what it points to."""
        entries = (pointer for dispatch in self._dispatches for pointer in dispatch.table)
        yield from enumerate(entries, start=tables_at)
        places = (place for dispatch in self._dispatches for place, _ in dispatch.guards)
        for number, place in enumerate(places):
            yield guards_at + number * layout.GUARD_SLOTS + layout.GUARD_PLACE, place

    def _write_pointers(
        self, memory: NDArray[np.int64], tables_at: int, guards_at: int, patch_at: int
    ) -> None:
        """Write what pointer tables and guards point to, and a patch for each that a call sets."""
        base = address_of(memory)
        for slot, pointer in self._slots(tables_at, guards_at):
            if isinstance(pointer, Argument):
                patch = memory[patch_at:]
                patch[layout.PATCH_SLOT] = base + 8 * slot
                patch[layout.PATCH_SOURCE] = pointer.index
                patch[layout.PATCH_OFFSET] = pointer.offset
                patch_at += layout.PATCH_SLOTS
            else:
                memory[slot] = pointer


__all__ = ["Argument", "Guards", "Pointer", "Program", "ProgramBuilder"]
