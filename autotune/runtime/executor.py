"""The executor: replays a program of kernel calls on a pool of workers, without Python.

Every worker walks the same command list. The tiles of a command are split into one range a worker,
so that a worker meets the same part of a tensor from one command to the next; a worker claims chunks
of its own range, and when that is empty, of its neighbours' (work stealing; one shared counter a range
does for the deque of Blumofe and Leiserson, because tiles are known in advance). Ranges are as large as the
workers are fast (``balance``).

A command row says how many commands of the program must be done before it starts (``AWAIT``): the last
that it depends on, and all before that. A worker that finds nothing left of a command says so
(``waiting``) and goes on; it waits where it comes to a command that depends on what others are still at.
Arriving and waiting apart are the "fuzzy barrier" of Gupta (ASPLOS 1989): where a command depends on the one before
it they are a barrier, and where it does not, nobody waits for the others' last tiles. All workers go in the
same order, so that one counter a worker does for the dependency counts of a graph.

Commands ``ALONE`` run on worker 0: single tiles that depend on one another. Worker 0 is the thread that calls.

Written in the subset of Python that ``translate`` turns into LLVM IR; ``native`` compiles it.
"""

from __future__ import annotations

from autotune.runtime.addresses import at, shares_of, worker_at
from autotune.runtime.atomics import (
    call_kernel,
    clock_ns,
    compare_exchange,
    fetch_add,
    load,
    load_acquire,
    load_relaxed,
    store,
    store_release,
    unpark,
    yield_processor,
)
from autotune.runtime.balance import first_tile, learn, sample_due, share_of
from autotune.runtime.layout import (
    ADDRESSES,
    ALONE,
    ARRIVE,
    ARRIVED,
    AWAIT,
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
from autotune.runtime.mutex import lock, try_lock, unlock
from autotune.runtime.translate.functions import native
from autotune.runtime.waiting import EVERYBODY, arrive, await_arrivals, await_run, begin_run


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
    """Whether what has not begun is left out: the request was cancelled, or is late.

    Workers may see it at different tiles: they go on from barrier to barrier all the same.
    """
    deadline = load(at(request, DEADLINE_NS))
    if deadline and clock_ns() > deadline:
        store_release(at(request, CANCELLED), LATE)
    return load_relaxed(at(request, CANCELLED)) != 0


@native
def _run_alone(program: int, workers: int, events: int) -> None:
    """All commands on this thread: no atomics, no barriers."""
    command = load(at(program, COMMANDS))
    scratch, request = load(at(program, SCRATCH)), load(at(program, REQUEST))
    for _ in range(load(at(program, COUNT))):
        if events:
            store(at(events, BEGIN), clock_ns())
        tiles = load(at(command, TILES))
        if not _stopped(request):
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
def _units(left: int, mine: int, theirs: int, leave: int) -> int:
    """How many of the units left in a range to claim at a time; ``theirs`` is 0 where the range is one's own.

    Of another's, half of what thief and owner are done with at the same time, where the owner has half a unit to
    finish first. That may be none, where the owner alone is done sooner, if tiles may be left to it.
    """
    if theirs:
        return max(((2 * left + 3) * mine // (2 * (mine + theirs)) + 1) // 2, 1 - leave)
    return (left + 2) // 3


@native
def _claim_range(
    counter: int, claims: int, begin: int, end: int, mine: int, theirs: int, command: int, scratch: int
) -> int:
    """Run chunks of one worker's range until nothing is left to claim; returns how many tiles.

    Chunks become smaller towards the end (guided self-scheduling, Polychronopoulos and Kuck 1987). ``mine`` and
    ``theirs`` are the shares of thief and owner, ``theirs`` 0 for the owner itself.

    ``claims`` is what the counter says while nothing of the range is claimed. It may say less: then nobody was here
    yet. Or it says more than the range has units: then somebody is at a later command, as nothing is left of this.
    """
    kernel = load(at(command, KERNEL))
    table = load(at(command, TABLE))
    unit, leave = load(at(command, UNIT)), load(at(command, LEAVE))
    units = (end - begin + unit - 1) // unit
    done = 0
    seen = load_relaxed(counter)
    claimed = max(seen, claims) - claims
    while claimed < units:
        wanted = _units(units - claimed, mine, theirs, leave)
        if wanted == 0:
            break
        before = compare_exchange(counter, seen, claims + claimed + wanted)
        if before == seen:
            first, last = begin + claimed * unit, min(begin + (claimed + wanted) * unit, end)
            call_kernel(kernel, table, first, last, scratch)
            done += last - first
            before = load_relaxed(counter)
        seen = before
        claimed = max(seen, claims) - claims
    return done


@native
def _run_tiles(
    state: int, worker: int, workers: int, claims: int, command: int, scratch: int, event: int
) -> None:
    """This worker's part of one command: its own range first, then its neighbours'."""
    shares = shares_of(state, workers)
    tiles, mine = load(at(command, TILES)), share_of(shares, worker)
    total = 0
    for distance in range(workers):
        owner = worker + distance
        if owner >= workers:
            owner -= workers
        counter = at(worker_at(state, owner), CLAIMED)
        begin, end = first_tile(shares, tiles, owner), first_tile(shares, tiles, owner + 1)
        theirs = share_of(shares, owner) if distance else 0
        done = _claim_range(counter, claims, begin, end, mine, theirs, command, scratch)
        total += done
        if event and distance:
            store(at(event, TILES_STOLEN), load(at(event, TILES_STOLEN)) + done)
    if event:
        store(at(event, TILES_RUN), total)


@native
def _run_on_caller(command: int, scratch: int, event: int) -> None:
    """All of a command that only worker 0 runs."""
    tiles = load(at(command, TILES))
    call_kernel(load(at(command, KERNEL)), load(at(command, TABLE)), 0, tiles, scratch)
    if event:
        store(at(event, TILES_RUN), tiles)


@native
def _say_met(events: int, workers: int, first: int, last: int) -> None:
    """The caller knows these commands done."""
    now = clock_ns()
    for step in range(first, last):
        store(at(events, step * workers * EVENT_SLOTS + MET), now)


@native
def run_share(state: int, worker: int, workers: int) -> None:
    """One worker's walk over the commands of the pool's current program.

    Once all have arrived for the last time, the caller may return and free the program: the others must
    not touch program or events after that.
    """
    program = load(at(state, PROGRAM))
    events = load(at(state, EVENTS))
    before = load(at(worker_at(state, worker), ARRIVED))
    command = load(at(program, COMMANDS))
    scratch = load(at(program, SCRATCH)) + worker * load(at(program, SCRATCH_STRIDE))
    event = at(events, worker * EVENT_SLOTS) if events else 0
    request = load(at(program, REQUEST))
    shared, met = load(at(program, SHARED)), 0
    count = shared if worker else load(at(program, COUNT))
    for step in range(count):
        number = before + step + 1
        alone, arriving = load(at(command, ALONE)), load(at(command, ARRIVE))
        if worker == 0 or not alone:
            wait = load(at(command, AWAIT))
            if wait > met:
                await_arrivals(state, worker, workers, before + wait)
                if event and worker == 0:
                    _say_met(events, workers, met, wait)
                met = wait
            if event:
                store(at(event, BEGIN), clock_ns())
                store(at(event, TILES_RUN), 0)
                store(at(event, TILES_STOLEN), 0)
            if _stopped(request):
                pass
            elif alone:
                _run_on_caller(command, scratch, event)
            else:
                _run_tiles(state, worker, workers, number * CLAIMS, command, scratch, event)
            if event:
                store(at(event, END), clock_ns())
        if event:
            event = at(event, workers * EVENT_SLOTS)
        command = at(command, COMMAND_SLOTS)
        if arriving:
            arrive(state, worker, workers, number)
    if worker == 0:
        if shared > met:
            await_arrivals(state, worker, workers, before + shared)
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
def serve(state: int, worker: int, workers: int) -> None:
    """Body of a worker thread: take part in every run until the pool stops.

    It ends at once where another thread is this worker already: a start that was interrupted is made again.
    """
    own = worker_at(state, worker)
    if compare_exchange(at(own, SERVED), 0, 1):
        return
    # No run begins before all workers are counted: none is missed after this.
    seen = load_acquire(at(state, GENERATION))
    fetch_add(at(state, SERVING), 1)
    while True:
        seen += 1
        await_run(state, worker, seen)
        if load(at(state, STOP)):
            break
        run_share(state, worker, workers)
    store_release(at(own, SERVED), 0)
    fetch_add(at(state, SERVING), -1)


@native
def _events_of(program: int, workers: int, run: int, events: int) -> int:
    """The event rows of one of several runs; 0 where there are none."""
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
                rows = load(at(program, SAMPLE))
            _fork(state, program, rows)
            run_share(state, 0, workers)
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
    store(at(state, STOP), 1)
    while load_acquire(at(state, SERVING)):
        fetch_add(at(state, GENERATION), 1)  # once more for whoever came in between
        unpark(at(state, GENERATION), EVERYBODY)
        yield_processor()
    store(at(state, STOP), 0)
    unlock(at(state, TURN))


__all__ = ["execute", "run_share", "serve", "stop"]
