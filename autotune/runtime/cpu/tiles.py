"""The tiles of a command: claimed, run, and noted in its event row.

The tiles are split into one range a worker. A worker claims chunks of its own range, and when that is empty, of its
neighbours' (work stealing). Of a command that is not chosen, or a request that was stopped, all tiles are claimed and
none is run.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.addresses import at, shares_of, worker_at
from autotune.runtime.cpu.atomics import (
    call_kernel,
    clock_ns,
    compare_exchange,
    load,
    load_boolean,
    load_relaxed,
    store,
    store_release,
)
from autotune.runtime.cpu.balance import first_tile, share_of
from autotune.runtime.cpu.layout import (
    ALONE,
    BEGIN,
    BUSY,
    CANCELLED,
    CLAIMED,
    CLAIMS,
    DEADLINE_NS,
    END,
    GUARD,
    GUARD_NEXT,
    GUARD_PLACE,
    GUARD_WANTED,
    KERNEL,
    LATE,
    LEAVE,
    PROGRAM,
    REQUEST,
    TABLE,
    TILES,
    TILES_RUN,
    TILES_STOLEN,
    UNIT,
)
from autotune.runtime.cpu.translate.functions import native
from autotune.runtime.cpu.waiting import add_done, leave

LAST: Final = 1
REST: Final = 2
"""Ways to take tiles."""


@native
def stopped(request: int) -> bool:
    """Return whether what has not begun is left out: the request was cancelled, or is late.

    Workers may see it at different tiles: they claim all tiles and go on from barrier to barrier all the same.
    """
    deadline = load(at(request, DEADLINE_NS))
    if deadline and clock_ns() > deadline:
        store_release(at(request, CANCELLED), LATE)
    return load_relaxed(at(request, CANCELLED)) != 0


@native
def chosen(command: int) -> bool:
    """Return whether all guards of a command say that it runs."""
    guard = load(at(command, GUARD))
    while guard:
        if load_boolean(load(at(guard, GUARD_PLACE))) != load(at(guard, GUARD_WANTED)):
            return False
        guard = load(at(guard, GUARD_NEXT))
    return True


@native
def begin_row(event: int, again: int) -> None:
    """Begin a command in its row, which has been there before where it runs again."""
    now = clock_ns()
    if not again:
        store(at(event, TILES_RUN), 0)
        store(at(event, TILES_STOLEN), 0)
        store(at(event, BUSY), 0)
        store(at(event, BEGIN), now)
    store(at(event, END), now)


@native
def _note_end(event: int) -> None:
    """Note that a worker was busy with a command up to now."""
    now = clock_ns()
    store(at(event, BUSY), load(at(event, BUSY)) + now - load(at(event, END)))
    store(at(event, END), now)


@native
def _count_tiles(event: int, tiles: int, stolen: int) -> None:
    """Note tiles that were run."""
    store(at(event, TILES_RUN), load(at(event, TILES_RUN)) + tiles)
    if stolen:
        store(at(event, TILES_STOLEN), load(at(event, TILES_STOLEN)) + tiles)
    _note_end(event)


@native
def _wanted(left: int, mine: int, theirs: int, leaves: int) -> int:
    """Return the number of units left in a range to claim at a time; ``theirs`` is 0 where the range is one's own.

    Of another's, half of what thief and owner are done with at the same time, where the owner has half a unit to
    finish first. That may be none, where the owner alone is done sooner, if tiles may be left to it.
    """
    if theirs:
        return max(((2 * left + 3) * mine // (2 * (mine + theirs)) + 1) // 2, 1 - leaves)
    return (left + 2) // 3


@native
def _units_between(begin: int, end: int, unit: int) -> int:
    """Return the number of units in which a range is claimed."""
    return (end - begin + unit - 1) // unit


@native
def units_of(state: int, workers: int, command: int) -> int:
    """Return the number of units in which a command is claimed; 0 where worker 0 runs it alone."""
    shares, tiles, unit = shares_of(state, workers), load(at(command, TILES)), load(at(command, UNIT))
    if load(at(command, ALONE)):
        return 0
    if unit == 1:
        return tiles
    units = 0
    for owner in range(workers):
        units += _units_between(first_tile(shares, tiles, owner), first_tile(shares, tiles, owner + 1), unit)
    return units


@native
def _claim(counter: int, claims: int, units: int, mine: int, theirs: int, leaves: int, whole: bool) -> int:
    """Claim units of a worker's range; returns their number plus :data:`CLAIMS` times how many come before them, and 0
    where nothing is left to claim.

    Chunks become smaller towards the end (guided self-scheduling, Polychronopoulos and Kuck 1987). ``mine`` and
    ``theirs`` are the shares of thief and owner, ``theirs`` 0 for the owner itself. Of tiles that are not run the
    ``whole`` range is claimed at once.

    ``claims`` is what the counter says while nothing of the range is claimed. It may say less: then nobody was here
    yet, and nothing is left to an owner that may be anywhere. Or it says more than the range has units: then somebody
    is at a later command, as nothing is left of this.
    """
    seen = load_relaxed(counter)
    claimed = max(seen, claims) - claims
    while claimed < units:
        wanted = units - claimed
        if not whole:
            wanted = _wanted(wanted, mine, theirs, leaves if seen >= claims else 0)
        if wanted == 0:
            break
        before = compare_exchange(counter, seen, claims + claimed + wanted)
        if before == seen:
            return claimed * CLAIMS + wanted
        seen = before
        claimed = max(seen, claims) - claims
    return 0


@native
def take_tiles(
    state: int, worker: int, workers: int, number: int, command: int, scratch: int, event: int, mode: int
) -> None:
    """Run this worker's part of one command: its own range first, then its neighbours'.

    The program is not touched after others were told, where ``mode`` is ``LAST``: the worker leaves the run. ``REST``
    leaves no tiles to others. Tiles of a request that was stopped, or of a command that is not chosen, are claimed and
    not run.
    """
    shares, units = shares_of(state, workers), units_of(state, workers, command)
    tiles, unit, table = load(at(command, TILES)), load(at(command, UNIT)), load(at(command, TABLE))
    mine = share_of(shares, worker)
    request = load(at(load(at(state, PROGRAM)), REQUEST))
    kernel = load(at(command, KERNEL)) if not stopped(request) and chosen(command) else 0
    leaves = 0 if mode == REST else load(at(command, LEAVE))
    ran = 0
    for distance in range(workers):
        owner = worker + distance
        if owner >= workers:
            owner -= workers
        counter = at(worker_at(state, owner), CLAIMED)
        begin, end = first_tile(shares, tiles, owner), first_tile(shares, tiles, owner + 1)
        theirs = share_of(shares, owner) if distance else 0
        there = _units_between(begin, end, unit)
        while True:
            claim = _claim(counter, number * CLAIMS, there, mine, theirs, leaves, kernel == 0)
            if claim == 0:
                break
            first = begin + claim // CLAIMS * unit
            last = min(first + claim % CLAIMS * unit, end)
            if kernel:
                call_kernel(kernel, table, first, last, scratch)
            if kernel and event:
                _count_tiles(event, last - first, theirs)
            ran += claim % CLAIMS
    if mode == LAST:
        leave(state, worker)
    if ran:
        add_done(state, worker, workers, number, ran, units)


@native
def run_on_caller(command: int, request: int, scratch: int, event: int) -> None:
    """Run all of a command that only worker 0 runs."""
    tiles = load(at(command, TILES))
    if not stopped(request) and chosen(command):
        call_kernel(load(at(command, KERNEL)), load(at(command, TABLE)), 0, tiles, scratch)
        if event:
            store(at(event, TILES_RUN), load(at(event, TILES_RUN)) + tiles)
    if event:
        _note_end(event)


__all__ = ["LAST", "REST", "begin_row", "chosen", "run_on_caller", "stopped", "take_tiles", "units_of"]
