"""Programs: where the barriers are, what the tables hold."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.runtime.cpu import layout
from autotune.runtime.cpu.program import Argument, Program, ProgramBuilder


def recorded(tiles: list[int], workers: int = 2) -> Program:
    buffer = ProgramBuilder(workers, state=0, arguments=1)
    for count in tiles:
        buffer.dispatch(1000 + count, [5, Argument(0, 16)], count, scratch_bytes=count)
    return buffer.finish()


def column(program: Program, field: int) -> list[int]:
    """One field of all command rows."""
    slots = np.asarray(program.header)
    first = (int(slots[layout.COMMANDS]) - program.address) // 8
    rows = slots[first : first + int(slots[layout.COUNT]) * layout.COMMAND_SLOTS]
    return [int(v) for v in rows[field :: layout.COMMAND_SLOTS]]


@pytest.mark.parametrize(
    ("tiles", "awaited", "arriving", "shared"),
    [
        ([], [], [], 0),
        ([1, 1, 1], [0, 0, 0], [0, 0, 0], 0),
        ([8], [0], [0], 1),
        ([8, 8], [0, 1], [0, 0], 2),
        ([1, 8], [0, 1], [1, 0], 2),
        ([8, 1], [0, 1], [0, 0], 1),
        ([1, 1, 8, 1, 1, 8, 1, 1], [0, 0, 2, 3, 3, 5, 6, 6], [0, 1, 0, 0, 1, 0, 0, 0], 6),
    ],
)
def test_workers_meet_before_and_after_parallel_commands(
    tiles: list[int], awaited: list[int], arriving: list[int], shared: int
) -> None:
    program = recorded(tiles)
    assert column(program, layout.AWAIT) == awaited
    alone, said = (column(program, field) for field in (layout.ALONE, layout.ARRIVE))
    assert [a * b for a, b in zip(alone, said, strict=True)] == arriving
    assert column(program, layout.ALONE) == [count == 1 for count in tiles]
    # Workers read commands up to the last that they have a part in only: behind it the caller may free them.
    assert program.header[layout.SHARED] == shared
    assert program.header[layout.PARALLEL] == (shared > 0)


@pytest.mark.parametrize(
    ("after", "awaited", "arriving", "alone"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], [0, 0, 1, 0], [0, 0, 1, 0]),  # each depends on the one before
        ([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]),  # nobody waits before the end
        ([0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 0, 0], [0, 0, 0, 0]),  # the single tile runs beside the last
        (
            [0, 1, 0, 3],
            [0, 1, 1, 3],
            [0, 0, 0, 0],
            [0, 0, 0, 0],
        ),  # it waits for what the one before waits for
    ],
)
def test_commands_wait_for_what_they_depend_on(
    after: list[int], awaited: list[int], arriving: list[int], alone: list[int]
) -> None:
    buffer = ProgramBuilder(2, 0, 0)
    for tiles, position in zip((8, 8, 1, 8), after, strict=True):
        buffer.dispatch(0, [], tiles, 0, after=position)
    program = buffer.finish()
    assert column(program, layout.AWAIT) == awaited
    said = column(program, layout.ARRIVE)
    assert [a * b for a, b in zip(alone, said, strict=True)] == arriving
    assert column(program, layout.ALONE) == alone


def test_no_more_commands_are_in_progress_than_the_ring_has_places() -> None:
    buffer = ProgramBuilder(2, 0, 0)
    for _ in range(layout.RING + 4):
        buffer.dispatch(0, [], 8, 0, after=0)
    awaited = column(buffer.finish(), layout.AWAIT)
    assert awaited == [0] * layout.RING + [1, 2, 3, 4]


def test_tables_follow_one_another_and_patches_point_into_them() -> None:
    program = recorded([1, 2])
    slots = np.asarray(program.header)
    tables = column(program, layout.TABLE)
    assert tables[1] - tables[0] == 16
    first = (tables[0] - program.address) // 8
    assert slots[first] == slots[first + 2] == 5
    at = (int(slots[layout.PATCHES]) - program.address) // 8
    patches = slots[at : at + 2 * layout.PATCH_SLOTS].reshape(2, layout.PATCH_SLOTS)
    assert patches.tolist() == [[tables[0] + 8, 0, 16], [tables[1] + 8, 0, 16]]


def test_units_are_a_sixteenth_of_a_workers_share() -> None:
    assert column(recorded([1, 7, 8, 64, 1000], workers=2), layout.UNIT) == [1, 1, 1, 2, 31]


def test_scratch_memory_covers_the_largest_command_of_every_worker() -> None:
    program = recorded([1, 200, 3], workers=3)
    assert program.header[layout.SCRATCH_STRIDE] == 256
    assert program.header[layout.SCRATCH] % 64 == 0
    assert program.memory[1].nbytes == 3 * 256
