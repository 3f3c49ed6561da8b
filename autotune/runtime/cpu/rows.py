"""The rows of a program for one worker: commands, pointer tables, guards, and repeats with what moves in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout


@dataclass(frozen=True)
class Argument:
    """A pointer-table entry that each call sets: its argument ``index``, plus ``offset`` bytes."""

    index: int
    offset: int


@dataclass(frozen=True)
class MovingPointer:
    """An entry that is so many bytes further each time that a repeat around goes on, the outermost first."""

    first: int | Argument
    advances: tuple[int, ...]


Pointer = int | Argument | MovingPointer
Guards = Sequence[tuple[Pointer, int]]
"""Booleans of one byte and what each must be, 0 or 1, for a call to be made."""


@dataclass(frozen=True)
class Border:
    """The row before the commands of a repeat, or ``behind`` them; of this one are the guards that decide."""

    repeat: int
    times: int
    length: int
    behind: bool
    nested: bool


@dataclass(frozen=True)
class Row:
    """A command: the call of a kernel, or the border of a repeat. ``around`` are the repeats that it is in."""

    kernel: int
    table: tuple[Pointer, ...]
    tiles: int
    scratch_bytes: int
    after: int
    small: bool
    guards: Guards
    around: tuple[int, ...] = ()
    border: Border | None = None


@dataclass(frozen=True)
class Waiting:
    """The part of a command's row that says who runs it, and when."""

    unit: int
    awaited: int
    alone: bool
    says: bool
    """ARRIVE of one that is alone, LEAVE of others."""


@dataclass
class _Motion:
    """A motion row, and its slot."""

    step: int
    at: int = 0


@dataclass
class RowsOfWorker:
    """The rows of one worker in the memory of a program, from slot ``at`` on; ``ended`` is the slot of the first
    repeat's word for all workers. Where several workers have rows of their own, each writes them anew."""

    rows: Sequence[Row]
    at: int
    ended: int
    patches: list[tuple[int, Argument]] = field(default_factory=list)
    """Slots that each call sets."""

    def __post_init__(self) -> None:
        rows = self.rows
        self.repeats = {r.border.repeat: r.border for r in rows if r.border is not None}
        self.tables_at = self.at + len(rows) * layout.COMMAND_SLOTS
        self.guards_at = self.tables_at + sum(len(r.table) for r in rows)
        self.repeats_at = self.guards_at + layout.GUARD_SLOTS * sum(len(r.guards) for r in rows)
        self.motions_at = self.repeats_at + layout.REPEAT_SLOTS * len(self.repeats)
        self.motions: dict[int, list[_Motion]] = {repeat: [] for repeat in sorted(self.repeats)}
        self.firsts = [(slot, *self._moved(row, pointer)) for slot, row, pointer in self._entries()]
        motions = [each for of in self.motions.values() for each in of]
        for number, motion in enumerate(motions):
            motion.at = self.motions_at + number * layout.MOTION_SLOTS
        self.end = self.motions_at + len(motions) * layout.MOTION_SLOTS

    def write(self, memory: NDArray[np.int64], base: int, waiting: Sequence[Waiting]) -> None:
        """Write all rows; the memory begins at address ``base``."""
        self._write_commands(memory, base, waiting)
        self._write_guards(memory, base)
        self._write_repeats(memory, base)
        self._write_entries(memory, base)

    def _entries(self) -> Iterator[tuple[int, Row, Pointer]]:
        """Yield the slot of each entry of a pointer table and of each guard's place, its row and what it points to."""
        slot = self.tables_at
        for row in self.rows:
            for pointer in row.table:
                yield slot, row, pointer
                slot += 1
        slot = self.guards_at
        for row in self.rows:
            for place, _ in row.guards:
                yield slot + layout.GUARD_PLACE, row, place
                slot += layout.GUARD_SLOTS

    def _moved(self, row: Row, pointer: Pointer) -> tuple[int | Argument, list[_Motion]]:
        """Return what an entry is at first, and its motions, the outermost first."""
        if not isinstance(pointer, MovingPointer):
            return pointer, []
        found = list[_Motion]()
        for repeat, step in zip(row.around, pointer.advances, strict=False):
            if step:
                found.append(_Motion(step))
                self.motions[repeat].append(found[-1])
        return pointer.first, found

    def _write_commands(self, memory: NDArray[np.int64], base: int, waiting: Sequence[Waiting]) -> None:
        table, guard = base + 8 * self.tables_at, base + 8 * self.guards_at
        for index, (row, wait) in enumerate(zip(self.rows, waiting, strict=True)):
            slots = memory[self.at + index * layout.COMMAND_SLOTS :]
            slots[layout.KERNEL] = row.kernel
            slots[layout.TABLE] = table
            slots[layout.TILES] = row.tiles
            slots[layout.UNIT] = wait.unit
            slots[layout.AWAIT] = wait.awaited
            slots[layout.ALONE] = wait.alone
            slots[layout.ARRIVE if wait.alone else layout.LEAVE] = wait.says
            slots[layout.GUARD] = guard if row.guards else 0
            if row.border is not None:
                slots[layout.REPEAT] = base + 8 * self._repeat_at(row.border.repeat)
                slots[layout.BEHIND] = row.border.behind
            table += 8 * len(row.table)
            guard += 8 * layout.GUARD_SLOTS * len(row.guards)

    def _repeat_at(self, repeat: int) -> int:
        return self.repeats_at + layout.REPEAT_SLOTS * list(self.motions).index(repeat)

    def _write_guards(self, memory: NDArray[np.int64], base: int) -> None:
        """Write the guard rows, those of a command one after another."""
        at = self.guards_at
        for row in self.rows:
            for left, (_, wanted) in zip(range(len(row.guards))[::-1], row.guards, strict=True):
                memory[at + layout.GUARD_WANTED] = wanted
                memory[at + layout.GUARD_NEXT] = base + 8 * (at + layout.GUARD_SLOTS) if left else 0
                at += layout.GUARD_SLOTS

    def _write_repeats(self, memory: NDArray[np.int64], base: int) -> None:
        decided = {r.border.repeat for r in self.rows if r.border is not None and r.guards}
        for number, (repeat, motions) in enumerate(self.motions.items()):
            border, slots = self.repeats[repeat], memory[self._repeat_at(repeat) :]
            slots[layout.TIMES], slots[layout.LENGTH] = border.times, border.length
            slots[layout.MOTIONS] = base + 8 * motions[0].at if motions else 0
            slots[layout.MOTION_COUNT] = len(motions)
            slots[layout.DECIDED], slots[layout.INSIDE_ANOTHER] = repeat in decided, border.nested
            slots[layout.ENDED] = base + 8 * (self.ended + number)

    def _write_entries(self, memory: NDArray[np.int64], base: int) -> None:
        """Write what pointer tables and guards point to, and how that moves."""
        for slot, pointer, motions in self.firsts:
            place = slot
            for motion in reversed(motions):
                memory[motion.at + layout.MOTION_SLOT] = base + 8 * place
                memory[motion.at + layout.MOTION_STEP] = motion.step
                place = motion.at + layout.MOTION_FIRST
            if isinstance(pointer, Argument):
                self.patches.append((place, pointer))
            else:
                memory[place] = pointer


__all__ = ["Argument", "Border", "Guards", "MovingPointer", "Pointer", "Row", "RowsOfWorker", "Waiting"]
