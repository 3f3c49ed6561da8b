"""Shares: the part of a command's tiles that each worker begins with, by how fast the workers were before.

Workers are not alike: a core is of the smaller kind, runs at a lower clock, or has another process on it. What a slow
worker leaves, others steal; but it holds its last tiles until it is done with them, what was stolen is in another
core's caches, and for as few tiles as most commands have, who runs one more decides.

So one run in several is sampled: its workers note when they began and ended each command and how many tiles they ran,
in event rows as a profile does. No other run has a clock in it. In a command of which every worker ran some tiles,
tiles over time say how fast each was; the mean over commands, weighted by their work, moves the estimates of the
workers' parts of the speed (an exponential moving average). A sample without such a command moves them towards equal
parts: who was given nothing must be able to come back.

The shares stay as they are until an estimate is a sixteenth of an equal share away, and they are equal, exactly, unless
one is three times that away from equal: for less, stealing alone does as well. So they come to rest, and
a worker keeps the same part of a tensor from one run to the next.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.addresses import at, shares_of
from autotune.runtime.cpu.atomics import load, store
from autotune.runtime.cpu.layout import (
    BUSY,
    COMMAND_SLOTS,
    COMMANDS,
    COUNT,
    EVENT_SLOTS,
    SEEN,
    SHARED_TILES,
    SHARES,
    TILES,
    TILES_RUN,
    WHOLE,
    WINDOW,
)
from autotune.runtime.cpu.translate.functions import native

TILES_OF_A_WINDOW: Final = 4096
_SMOOTHING: Final = 4
_BAND: Final = 16  # of an equal share: estimates nearer than this to the shares do not move them
_EVEN: Final = 3  # shares are equal unless an estimate is so many bands away from that
_LEAST: Final = 4  # no share is smaller than this part of an equal one
_FINE: Final = 1 << 16  # parts of a speed, and of a nanosecond
_MOST: Final = (
    1 << 46
)  # the longest time of a tile, a second, in such parts: what it is multiplied with has room


@native
def first_tile(shares: int, tiles: int, worker: int) -> int:
    """Return the first tile of a worker's own range of a command; that of the worker after the last is where all end.

    Of two workers, each gets a tile more only if it is done with it before the other one would be (the method of
    d'Hondt): the slower one's number is (tiles + 1) times its share, rounded down.
    """
    return min(tiles, (tiles + 1) * load(at(shares, SHARES + worker)) // WHOLE)


@native
def share_of(shares: int, worker: int) -> int:
    """Return a worker's part of ``WHOLE``."""
    return load(at(shares, SHARES + worker + 1)) - load(at(shares, SHARES + worker))


@native
def sample_due(state: int, program: int, workers: int) -> bool:
    """Return whether a run is to be sampled, which is about to begin."""
    shares = shares_of(state, workers)
    window, seen = load(at(shares, WINDOW)), load(at(shares, SEEN)) + load(at(program, SHARED_TILES))
    due = window > 0 and seen >= window
    store(at(shares, SEEN), 0 if due else seen)
    return due


@native
def _estimate_at(shares: int, workers: int, worker: int) -> int:
    """Return the address of a worker's part of the speed as estimated, in parts of ``WHOLE``."""
    return at(shares, SHARES + workers + 1 + worker)


@native
def _sum_at(shares: int, workers: int, worker: int) -> int:
    """Return the address of a worker's sum of a sample."""
    return at(shares, SHARES + 2 * workers + 1 + worker)


@native
def _tile_time(rows: int, worker: int) -> int:
    """Return the time of a tile of a command for a worker, in ns and parts of ``_FINE``; 0 where it ran none."""
    row = at(rows, worker * EVENT_SLOTS)
    tiles = load(at(row, TILES_RUN))
    taken = load(at(row, BUSY))
    return max(1, min(taken // tiles * _FINE + taken % tiles * _FINE // tiles, _MOST)) if tiles else 0


@native
def _least_tile_time(rows: int, workers: int) -> int:
    """Return the time of the fastest worker; 0 where a worker ran none."""
    least = _tile_time(rows, 0)
    for worker in range(1, workers):
        least = min(least, _tile_time(rows, worker))
    return least


@native
def _add_command(shares: int, workers: int, tiles: int, rows: int) -> int:
    """Add what the event rows of one command say to the sums; returns its weight, 0 where they say nothing."""
    least = _least_tile_time(rows, workers)
    if least == 0:
        return 0
    weight, total = max(1, tiles * least // _FINE), 0
    for worker in range(workers):
        total += _FINE * least // _tile_time(rows, worker)
    for worker in range(workers):
        place = _sum_at(shares, workers, worker)
        speed = _FINE * least // _tile_time(rows, worker)
        store(place, load(place) + weight * (_FINE * speed // total))
    return weight


@native
def _set_shares(shares: int, workers: int, even: bool) -> None:
    """Set shares that are equal, or as estimated."""
    total = 0
    for worker in range(workers):
        total += 1 if even else load(_estimate_at(shares, workers, worker))
    bound = 0
    for worker in range(workers):
        store(at(shares, SHARES + worker), WHOLE * bound // total)
        bound += 1 if even else load(_estimate_at(shares, workers, worker))
    store(at(shares, SHARES + workers), WHOLE)


@native
def _away(value: int, other: int) -> int:
    """Return the distance of two numbers."""
    return max(value - other, other - value)


@native
def _follow(shares: int, workers: int, weight: int) -> None:
    """Let estimates and shares follow a sample of commands of that weight together."""
    equal = WHOLE // workers
    band, moved, uneven = equal // _BAND, 0, 0
    for worker in range(workers):
        place = _estimate_at(shares, workers, worker)
        part = load(_sum_at(shares, workers, worker)) // weight * (WHOLE // _FINE) if weight else equal
        estimate = load(place) + (part - load(place)) // _SMOOTHING
        estimate = max(estimate, equal // _LEAST)
        store(place, estimate)
        moved = max(moved, _away(estimate, share_of(shares, worker)))
        uneven = max(uneven, _away(estimate, equal))
    if moved > band:
        _set_shares(shares, workers, uneven < _EVEN * band)


@native
def learn(state: int, program: int, workers: int, events: int) -> None:
    """Let the shares follow a run that was sampled in these event rows; no run is in progress."""
    shares = shares_of(state, workers)
    for worker in range(workers):
        store(_sum_at(shares, workers, worker), 0)
    weight = 0
    command = load(at(program, COMMANDS))
    for _ in range(load(at(program, COUNT))):
        tiles = load(at(command, TILES))
        if tiles > 1:
            weight += _add_command(shares, workers, tiles, events)
        events = at(events, workers * EVENT_SLOTS)
        command = at(command, COMMAND_SLOTS)
    _follow(shares, workers, weight)


__all__ = ["TILES_OF_A_WINDOW", "first_tile", "learn", "sample_due", "share_of"]
