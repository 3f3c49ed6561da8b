"""Programs: kernel calls recorded once, replayed many times by the native executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import HOST_MEMORY, Memory, address_of, allocate
from autotune.runtime.cpu.rows import (
    Argument,
    Border,
    Guards,
    MovingPointer,
    Pointer,
    Row,
    RowsOfWorker,
    Waiting,
)

_UNITS_A_WORKER = 16
_SMALL_BYTES = 1 << 16
"""A single tile that touches less takes about a microsecond, and to share it costs as much (1.2 of tiny_cnn's time)."""
_MANY_TIMES = 1 << 16


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
        self._rows: list[Row] = []
        self._open: list[tuple[int, int]] = []
        """The number of each repeat that has begun, and of the row before its commands."""
        self._repeats = 0

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
        after = len(self._rows) if after is None else after
        small = touched is not None and touched < _SMALL_BYTES
        self._rows.append(
            Row(kernel, tuple(table), tiles, scratch_bytes, after, small, guards, self._around())
        )

    def begin_repeat(self) -> None:
        """Repeat what is recorded from here to :meth:`end_repeat`; that is a row of its own, which waits for all."""
        self._open.append((self._repeats, len(self._rows)))
        self._repeats += 1
        self._rows.append(self._border(0, 0, behind=False))

    def end_repeat(self, times: int, guards: Guards = ()) -> None:
        """Have all since :meth:`begin_repeat` run so many times, or as long as all guards say so; a row like that."""
        begin, length = self._open[-1][1], len(self._rows) - self._open[-1][1]
        self._rows[begin] = replace(
            self._rows[begin], border=self._border(times, length, behind=False).border
        )
        self._rows.append(replace(self._border(times, length, behind=True), guards=guards))
        self._open.pop()

    def _around(self) -> tuple[int, ...]:
        return tuple(repeat for repeat, _ in self._open)

    def _border(self, times: int, length: int, *, behind: bool) -> Row:
        border = Border(self._open[-1][0], times, length, behind, len(self._open) > 1)
        return Row(0, (), 0, 0, len(self._rows), False, (), self._around(), border)

    def finish(self, checks: NDArray[np.int64] | None = None) -> Program:
        """Lay everything out in one piece of memory, but the check rows; raises nothing, records no more."""
        rows, workers = self._rows, self._workers
        scratch, stride = self._memory.shares(max((r.scratch_bytes for r in rows), default=0), workers)
        at = layout.HEADER_SLOTS + self._repeats
        own = list[RowsOfWorker]()
        for _ in range(workers if self._repeats else 1):
            own.append(RowsOfWorker(rows, at, layout.HEADER_SLOTS))
            at = own[-1].end
        patches = len(own) * sum(isinstance(each, Argument) for _, each, _ in own[0].firsts)
        arguments_at = at + patches * layout.PATCH_SLOTS
        memory = allocate(8 * (arguments_at + self._arguments)).view(np.int64)
        memory.fill(0)
        base = address_of(memory)

        memory[layout.COMMANDS] = base + 8 * own[0].at
        memory[layout.ROWS_STRIDE] = 8 * (own[1].at - own[0].at) if len(own) > 1 else 0
        memory[layout.COUNT] = len(rows)
        memory[layout.SCRATCH] = address_of(scratch)
        memory[layout.SCRATCH_STRIDE] = stride
        memory[layout.PATCHES] = base + 8 * at
        memory[layout.PATCH_COUNT] = patches
        memory[layout.ADDRESSES] = base + 8 * arguments_at
        waits = self._waits()
        memory[layout.PARALLEL] = not all(waits.alone)
        memory[layout.SHARED] = waits.shared
        memory[layout.SHARED_TILES] = sum(r.tiles * self._times(r) for r in rows if r.tiles > 1)
        sample = np.zeros(len(rows) * workers * layout.EVENT_SLOTS, np.int64)
        memory[layout.SAMPLE] = address_of(sample)
        memory[layout.TEAM] = workers
        memory[layout.STATE] = self._state
        memory[layout.REQUEST] = base + 8 * layout.NO_REQUEST
        if checks is not None:
            memory[layout.CHECKS], memory[layout.CHECKED] = address_of(checks), len(checks)
        waiting = self._waiting(waits)
        for each in own:
            each.write(memory, base, waiting)
        for slot, argument in (patch for each in own for patch in each.patches):
            memory[at + layout.PATCH_SLOT] = base + 8 * slot
            memory[at + layout.PATCH_SOURCE] = argument.index
            memory[at + layout.PATCH_OFFSET] = argument.offset
            at += layout.PATCH_SLOTS
        return Program(base, memory.data, (memory, scratch, sample))

    def _times(self, row: Row) -> int:
        """Return about how many times a row is gone through in a run."""
        times = {each.border.repeat: each.border.times for each in self._rows if each.border is not None}
        return min(prod(times[repeat] for repeat in row.around), _MANY_TIMES)

    def _waits(self) -> _Waits:
        """Return the worker of each command and what it waits for.

        Worker 0 runs those of one tile that can run beside nothing else, or are small: it has done those before when it
        comes to the next, and no atomic operation is needed among them. Others of one tile go to whoever comes first.
        What worker 0 alone repeats is its own in all.
        """
        rows = self._rows
        after = list(accumulate((r.after for r in rows), max))
        beside = [position > done for position, done in enumerate(after)]
        alone = [
            r.tiles <= 1 and (r.small or not (beside[i] or (i + 1 < len(rows) and beside[i + 1])))
            for i, r in enumerate(rows)
        ]
        shared = {repeat for r, own in zip(rows, alone, strict=True) if not own for repeat in r.around}
        for i, r in enumerate(rows):
            if r.border is not None:
                alone[i] = r.border.repeat not in shared
        shared_before = [0, *accumulate((0 if a else i + 1 for i, a in enumerate(alone)), max)]
        awaited = [
            shared_before[d] if a else max(d, i + 1 - layout.RING)
            for i, (d, a) in enumerate(zip(after, alone, strict=True))
        ]
        return _Waits(alone, awaited, shared_before[-1])

    def _waiting(self, waits: _Waits) -> list[Waiting]:
        arriving, between = waits.arriving, waits.between
        return [
            Waiting(
                max(1, row.tiles // (self._workers * _UNITS_A_WORKER)),
                waits.awaited[index],
                waits.alone[index],
                index in (arriving if waits.alone[index] else between),
            )
            for index, row in enumerate(self._rows)
        ]


__all__ = ["Argument", "Guards", "MovingPointer", "Pointer", "Program", "ProgramBuilder"]
