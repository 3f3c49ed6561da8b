"""The executor: replays a program of kernel calls on a pool of workers, without Python.

Every worker walks the same command list. The tiles of a command are split into one range a worker,
so that a worker meets the same part of a tensor from one command to the next; a worker claims chunks
of its own range, and when that is empty, of its neighbours' (work stealing; one shared counter a range
does for the deque of Blumofe and Leiserson, because tiles are known in advance). Ranges are as large as the
workers are fast (``balance``).

A command row says how many commands of the program must be done before it starts (``AWAIT``): the last
that it depends on, and all before that. A worker that finds nothing left of a command says how many of its tiles it
ran (``waiting``) and goes on; it waits where it comes to a command that depends on tiles that others are still at.
Arriving and waiting apart are the "fuzzy barrier" of Gupta (ASPLOS 1989): where a command depends on the one before
it they are a barrier, and where it does not, nobody waits for the others' last tiles. What is counted are tiles, not
workers: one that is not there, as the system gives it no core, costs nothing where its tiles are done by others. Tiles
that nobody has begun are run by those who would sleep else. A worker that comes late finds that the commands' tiles are
claimed, or the run over.

A command whose guards say that it is not chosen is gone through like any other, and its tiles are claimed and not run:
a worker that claims some was there before the command was done, when the booleans still stood.

Commands ``ALONE`` run on worker 0: single tiles that depend on one another. Worker 0 is the thread that calls.

Written in the subset of Python that ``translate`` turns into LLVM IR; ``native`` compiles it.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.addresses import at, shares_of, worker_at
from autotune.runtime.cpu.atomics import (
    call_kernel,
    clock_ns,
    compare_exchange,
    fetch_add,
    load,
    load_acquire,
    load_boolean,
    load_relaxed,
    store,
    store_release,
    unpark,
    yield_processor,
)
from autotune.runtime.cpu.balance import first_tile, learn, sample_due, share_of
from autotune.runtime.cpu.layout import (
    ADDRESSES,
    ALONE,
    ARRIVE,
    AWAIT,
    BASE,
    BEGIN,
    CANCELLED,
    CLAIMED,
    CLAIMS,
    COMMAND_SLOTS,
    COMMANDS,
    COUNT,
    DEADLINE_NS,
    END,
    EVENT_SLOTS,
    EVENTS,
    GENERATION,
    GUARD,
    GUARD_NEXT,
    GUARD_PLACE,
    GUARD_WANTED,
    KERNEL,
    LATE,
    LEAVE,
    MET,
    PARALLEL,
    PATCH_COUNT,
    PATCH_OFFSET,
    PATCH_SLOT,
    PATCH_SLOTS,
    PATCH_SOURCE,
    PATCHES,
    PROGRAM,
    REQUEST,
    SAMPLE,
    SCRATCH,
    SCRATCH_STRIDE,
    SERVED,
    SERVING,
    SHARED,
    STATE,
    STOP,
    TABLE,
    TEAM,
    TILES,
    TILES_RUN,
    TILES_STOLEN,
    TURN,
    UNIT,
)
from autotune.runtime.cpu.mutex import lock, try_lock, unlock
from autotune.runtime.cpu.translate.functions import native
from autotune.runtime.cpu.waiting import (
    EVERYBODY,
    add_done,
    arrive,
    await_run,
    begin_run,
    end_run,
    enter,
    is_done_soon,
    leave,
    sleep_until_done,
    spin_until_done,
)

_LAST: Final = 1
_REST: Final = 2
"""Ways to take tiles."""


@native
def _apply_patches(program: int) -> None:
    """Put this call's addresses into the pointer tables."""
    addresses = load(at(program, ADDRESSES))
    patch = load(at(program, PATCHES))
    for _ in range(load(at(program, PATCH_COUNT))):
        source = load(at(addresses, load(at(patch, PATCH_SOURCE))))
        store(load(at(patch, PATCH_SLOT)), source + load(at(patch, PATCH_OFFSET)))
        patch = at(patch, PATCH_SLOTS)


@native
def _stopped(request: int) -> bool:
    """Return whether what has not begun is left out: the request was cancelled, or is late.

    Workers may see it at different tiles: they claim all tiles and go on from barrier to barrier all the same.
    """
    deadline = load(at(request, DEADLINE_NS))
    if deadline and clock_ns() > deadline:
        store_release(at(request, CANCELLED), LATE)
    return load_relaxed(at(request, CANCELLED)) != 0


@native
def _chosen(command: int) -> bool:
    """Return whether all guards of a command say that it runs."""
    guard = load(at(command, GUARD))
    while guard:
        if load_boolean(load(at(guard, GUARD_PLACE))) != load(at(guard, GUARD_WANTED)):
            return False
        guard = load(at(guard, GUARD_NEXT))
    return True


@native
def _run_alone(program: int, workers: int, events: int) -> None:
    """Run all commands on this thread: no atomics, no barriers."""
    command = load(at(program, COMMANDS))
    scratch, request = load(at(program, SCRATCH)), load(at(program, REQUEST))
    for _ in range(load(at(program, COUNT))):
        if events:
            store(at(events, BEGIN), clock_ns())
        tiles = load(at(command, TILES))
        if _stopped(request) or not _chosen(command):
            tiles = 0
        if tiles:
            call_kernel(load(at(command, KERNEL)), load(at(command, TABLE)), 0, tiles, scratch)
        if events:
            now = clock_ns()
            store(at(events, END), now)
            store(at(events, MET), now)
            store(at(events, TILES_RUN), tiles)
            store(at(events, TILES_STOLEN), 0)
            events = at(events, workers * EVENT_SLOTS)
        command = at(command, COMMAND_SLOTS)


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
def _units_of(state: int, workers: int, command: int) -> int:
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
def _count_tiles(event: int, tiles: int, stolen: int) -> None:
    """Note tiles that were run."""
    store(at(event, TILES_RUN), load(at(event, TILES_RUN)) + tiles)
    if stolen:
        store(at(event, TILES_STOLEN), load(at(event, TILES_STOLEN)) + tiles)
    store(at(event, END), clock_ns())


@native
def take_tiles(
    state: int, worker: int, workers: int, number: int, command: int, scratch: int, event: int, mode: int
) -> None:
    """Run this worker's part of one command: its own range first, then its neighbours'.

    The program is not touched after others were told, where ``mode`` is ``_LAST``: the worker leaves the run. ``_REST``
    leaves no tiles to others. Tiles of a request that was stopped, or of a command that is not chosen, are claimed and
    not run.
    """
    shares, units = shares_of(state, workers), _units_of(state, workers, command)
    tiles, unit, table = load(at(command, TILES)), load(at(command, UNIT)), load(at(command, TABLE))
    mine = share_of(shares, worker)
    request = load(at(load(at(state, PROGRAM)), REQUEST))
    kernel = load(at(command, KERNEL)) if not _stopped(request) and _chosen(command) else 0
    leaves = 0 if mode == _REST else load(at(command, LEAVE))
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
    if mode == _LAST:
        leave(state, worker)
    if ran:
        add_done(state, worker, workers, number, ran, units)


@native
def _run_on_caller(command: int, request: int, scratch: int, event: int) -> None:
    """Run all of a command that only worker 0 runs."""
    tiles = load(at(command, TILES))
    if not _stopped(request) and _chosen(command):
        call_kernel(load(at(command, KERNEL)), load(at(command, TABLE)), 0, tiles, scratch)
        if event:
            store(at(event, TILES_RUN), tiles)
    if event:
        store(at(event, END), clock_ns())


@native
def _await_command(
    state: int, worker: int, workers: int, number: int, command: int, scratch: int, event: int, run: int
) -> bool:
    """Wait until a command is done; False where the run is over meanwhile, which worker 0 alone ends.

    Who waits is not inside the run. Before it sleeps it runs what is left.
    """
    units = _units_of(state, workers, command)
    if is_done_soon(state, workers, number, units):
        return True
    if worker:
        leave(state, worker)
    if not spin_until_done(state, worker, workers, number, units):
        if units:
            if worker and not enter(state, worker, run):
                return False
            take_tiles(state, worker, workers, number, command, scratch, event, _REST)
            if worker:
                leave(state, worker)
        sleep_until_done(state, workers, number, units)
    inside: bool = worker == 0 or enter(state, worker, run)
    return inside


@native
def _await_commands(
    state: int, worker: int, workers: int, first: int, last: int, scratch: int, run: int
) -> bool:
    """Wait until some commands of the program are done; False where the run is over meanwhile."""
    program = load(at(state, PROGRAM))
    base, events = load(at(state, BASE)), load(at(state, EVENTS))
    command = at(load(at(program, COMMANDS)), first * COMMAND_SLOTS)
    for step in range(first, last):
        awaited: bool = load(at(command, ALONE)) == 0 or (worker != 0 and load(at(command, ARRIVE)) != 0)
        event = at(events, (step * workers + worker) * EVENT_SLOTS) if events else 0
        if awaited and not _await_command(
            state, worker, workers, base + step + 1, command, scratch, event, run
        ):
            return False
        command = at(command, COMMAND_SLOTS)
    return True


@native
def _say_met(events: int, workers: int, first: int, last: int) -> None:
    """Say that the caller knows these commands done."""
    now = clock_ns()
    for step in range(first, last):
        store(at(events, step * workers * EVENT_SLOTS + MET), now)


@native
def run_share(state: int, worker: int, workers: int, run: int) -> None:
    """Walk over the commands of the pool's current program; all but worker 0 have entered the run.

    They leave it before they say what they ran of the last command that they share: the caller may return then and free
    the program.
    """
    program = load(at(state, PROGRAM))
    events = load(at(state, EVENTS))
    base = load(at(state, BASE))
    command = load(at(program, COMMANDS))
    scratch = load(at(program, SCRATCH)) + worker * load(at(program, SCRATCH_STRIDE))
    event = at(events, worker * EVENT_SLOTS) if events else 0
    request = load(at(program, REQUEST))
    shared, met = load(at(program, SHARED)), 0
    count = shared if worker else load(at(program, COUNT))
    for step in range(count):
        alone = load(at(command, ALONE))
        if worker == 0 or not alone:
            wait = load(at(command, AWAIT))
            if wait > met:
                if not _await_commands(state, worker, workers, met, wait, scratch, run):
                    return
                if event and worker == 0:
                    _say_met(events, workers, met, wait)
                met = wait
            if event:
                store(at(event, TILES_RUN), 0)
                store(at(event, TILES_STOLEN), 0)
                now = clock_ns()
                store(at(event, BEGIN), now)
                store(at(event, END), now)
            if alone:
                _run_on_caller(command, request, scratch, event)
                if load(at(command, ARRIVE)):
                    arrive(state, base + step + 1)
            else:
                mode = _LAST if worker and step == shared - 1 else 0
                take_tiles(state, worker, workers, base + step + 1, command, scratch, event, mode)
        if event:
            event = at(event, workers * EVENT_SLOTS)
        command = at(command, COMMAND_SLOTS)
    if worker == 0:
        _await_commands(state, worker, workers, met, shared, scratch, run)
        if events:
            _say_met(events, workers, met, count)


@native
def _fork(state: int, program: int, events: int) -> None:
    """Give the workers a program and let them go."""
    if load(at(state, PROGRAM)) != program or load(at(state, EVENTS)) != events:
        store(at(state, PROGRAM), program)
        store(at(state, EVENTS), events)
    begin_run(state)


@native
def _join(state: int, program: int, workers: int) -> None:
    """Wait until nobody else is in the run: program and events are the caller's again."""
    end_run(state, workers)
    store(at(state, BASE), load(at(state, BASE)) + load(at(program, COUNT)))


@native
def serve(state: int, worker: int, workers: int) -> None:
    """Run the body of a worker thread: take part in runs until the pool stops, in each that is there when it looks.

    It ends at once where another thread is this worker already: a start that was interrupted is made again.
    """
    own = worker_at(state, worker)
    if compare_exchange(at(own, SERVED), 0, 1):
        return
    seen = load_acquire(at(state, GENERATION))
    fetch_add(at(state, SERVING), 1)
    while True:
        seen = await_run(state, worker, seen)
        if load_acquire(at(state, STOP)):
            break
        if seen % 2 and enter(state, worker, seen):
            run_share(state, worker, workers, seen)
    store_release(at(own, SERVED), 0)
    fetch_add(at(state, SERVING), -1)


@native
def _sample_rows(program: int, workers: int) -> int:
    """Return the event rows for a run that is sampled: nobody has run tiles yet, and who does not come runs none."""
    rows = load(at(program, SAMPLE))
    for row in range(load(at(program, COUNT)) * workers):
        store(at(rows, row * EVENT_SLOTS + TILES_RUN), 0)
    return rows


@native
def _events_of(program: int, workers: int, run: int, events: int) -> int:
    """Return the event rows of one of several runs; 0 where there are none."""
    return at(events, run * load(at(program, COUNT)) * workers * EVENT_SLOTS) if events else 0


@native
def _run_together(program: int, workers: int, repeats: int, times: int, events: int) -> bool:
    """Run a program with a pool's workers, after those who have them; False where some do not serve."""
    state = load(at(program, STATE))
    lock(at(state, TURN))
    complete = load_acquire(at(state, SERVING)) == workers - 1
    if complete:
        for run in range(repeats):
            begin = clock_ns() if times else 0
            due = sample_due(state, program, workers)
            rows = _events_of(program, workers, run, events)
            if due and not rows:
                rows = _sample_rows(program, workers)
            _fork(state, program, rows)
            run_share(state, 0, workers, 0)
            _join(state, program, workers)
            if due:
                learn(state, program, workers, rows)
            if times:
                store(at(times, run), clock_ns() - begin)
    unlock(at(state, TURN))
    return complete


@native
def execute(program: int, repeats: int, times: int, events: int) -> bool:
    """Run a program several times; the calling thread is worker 0. False when nothing ran for want of workers.

    ``times`` is the address of as many int64 that receive ns a run, ``events`` that of the event rows
    [repeats, commands, workers]; both may be 0. The caller has the program for itself.
    """
    _apply_patches(program)
    workers = load(at(program, TEAM))
    if workers > 1 and load(at(program, PARALLEL)):
        return _run_together(program, workers, repeats, times, events)
    for run in range(repeats):
        begin = clock_ns() if times else 0
        _run_alone(program, workers, _events_of(program, workers, run, events))
        if times:
            store(at(times, run), clock_ns() - begin)
    return True


@native
def stop(state: int, patience_ns: int) -> None:
    """Let the worker threads end; where a run keeps them for longer than the patience, they go on."""
    deadline = clock_ns() + patience_ns
    while not try_lock(at(state, TURN)):
        if clock_ns() > deadline:
            return
        yield_processor()
    store_release(at(state, STOP), 1)
    while load_acquire(at(state, SERVING)):
        fetch_add(at(state, GENERATION), 2)  # once more for whoever came in between; it is no run
        unpark(at(state, GENERATION), EVERYBODY)
        yield_processor()
    store(at(state, STOP), 0)
    unlock(at(state, TURN))


__all__ = ["execute", "run_share", "serve", "stop", "take_tiles"]
