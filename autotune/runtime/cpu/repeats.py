"""Commands that run again and again: a worker's way through the rows around them.

A repeat has a row before its commands and one behind them. Each worker goes through with rows and pointer tables of its
own, where it moves what lies elsewhere each time (``motions``): nobody else reads them, so a worker that comes late is
no danger. At both rows everybody waits for all that came before.

How often is known, or worker 0 says so when it comes to the row behind: the booleans that decide may be others by the
time that somebody else comes there. It notes the number of the command at which it ended. Numbers grow, so a later one
says that it went on here; unless the repeat is inside of another, where it may as well have ended here and later once
more. Whoever comes so late leaves the run.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.addresses import at
from autotune.runtime.cpu.atomics import load, load_acquire, store, store_release
from autotune.runtime.cpu.layout import (
    ENDED,
    GONE,
    INSIDE_ANOTHER,
    MOTION_COUNT,
    MOTION_FIRST,
    MOTION_SLOT,
    MOTION_SLOTS,
    MOTION_STEP,
    MOTIONS,
    TIMES,
)
from autotune.runtime.cpu.translate.functions import native

ENDS: Final = 0
GOES_ON: Final = 1
IS_LATE: Final = 2


@native
def begin_repeat(repeat: int) -> None:
    """Put everything where it is the first time."""
    store(at(repeat, GONE), 0)
    motion = load(at(repeat, MOTIONS))
    for _ in range(load(at(repeat, MOTION_COUNT))):
        store(load(at(motion, MOTION_SLOT)), load(at(motion, MOTION_FIRST)))
        motion = at(motion, MOTION_SLOTS)


@native
def move_on(repeat: int) -> int:
    """Move everything to where it is the next time; returns how often it has gone on."""
    gone = load(at(repeat, GONE)) + 1
    store(at(repeat, GONE), gone)
    motion = load(at(repeat, MOTIONS))
    for _ in range(load(at(repeat, MOTION_COUNT))):
        slot = load(at(motion, MOTION_SLOT))
        store(slot, load(slot) + load(at(motion, MOTION_STEP)))
        motion = at(motion, MOTION_SLOTS)
    return gone


@native
def times_left(repeat: int) -> bool:
    """Return whether it may go on."""
    return load(at(repeat, GONE)) + 1 < load(at(repeat, TIMES))


@native
def note_end(repeat: int, number: int) -> None:
    """Say to the other workers that it ended at a command."""
    store_release(load(at(repeat, ENDED)), number)


@native
def way_of_others(repeat: int, number: int) -> int:
    """Return what worker 0 decided at a command, which it is through with."""
    ended = load_acquire(load(at(repeat, ENDED)))
    if ended == number:
        return ENDS
    if ended > number and load(at(repeat, INSIDE_ANOTHER)):
        return IS_LATE
    return GOES_ON


__all__ = [
    "ENDS",
    "GOES_ON",
    "IS_LATE",
    "begin_repeat",
    "move_on",
    "note_end",
    "times_left",
    "way_of_others",
]
