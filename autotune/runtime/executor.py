"""The executor: replays a program of kernel calls on a pool of workers, without Python.

Every worker walks the same command list. The tiles of a command are split into one range a worker,
so that a worker meets the same part of a tensor from one command to the next; a worker claims chunks
of its own range with an atomic addition, and when that is empty, of its neighbours' (work stealing;
one shared counter a range does for the deque of Blumofe and Leiserson, because tiles are known in
advance). Between commands the workers meet in a barrier (``waiting``). Single-tile commands run on
worker 0 and need no barrier among themselves. Worker 0 is the thread that calls.

Written in the subset of Python that ``translate`` turns into LLVM IR; ``native`` compiles it.
"""

from __future__ import annotations

from autotune.runtime.addresses import at, worker_at
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
from autotune.runtime.layout import (
    ADDRESSES,
    ARRIVED,
    BARRIER,
    BEGIN,
    CANCELLED,
    CHUNK,
    CLAIMED,
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
    MET,
    PARALLEL,
    PATCH_COUNT,
    PATCH_OFFSET,
    PATCH_SLOT,
    PATCH_SLOTS,
    PATCH_SOURCE,
    PATCHES,
    PHASE,
    PROGRAM,
    REQUEST,
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
def _claim_range(counter: int, begin: int, end: int, chunk: int, command: int, scratch: int) -> int:
    """Run chunks of one worker's range until nothing is left to claim; returns how many tiles."""
    kernel = load(at(command, KERNEL))
    table = load(at(command, TABLE))
    done = 0
    while load_relaxed(counter) < end - begin:
        first = begin + fetch_add(counter, chunk)
        if first >= end:
            break
        last = min(first + chunk, end)
        call_kernel(kernel, table, first, last, scratch)
        done += last - first
    return done


@native
def _run_tiles(
    state: int, worker: int, workers: int, phase: int, command: int, scratch: int, event: int
) -> None:
    """This worker's part of one command: its own range first, then its neighbours'."""
    tiles = load(at(command, TILES))
    chunk = load(at(command, CHUNK))
    total = 0
    for distance in range(workers):
        owner = worker + distance
        if owner >= workers:
            owner -= workers
        counter = at(worker_at(state, owner), CLAIMED + phase)
        begin, end = tiles * owner // workers, tiles * (owner + 1) // workers
        done = _claim_range(counter, begin, end, chunk, command, scratch)
        total += done
        if event and distance:
            store(at(event, TILES_STOLEN), load(at(event, TILES_STOLEN)) + done)
    if event:
        store(at(event, TILES_RUN), total)


@native
def run_share(state: int, worker: int, workers: int) -> None:
    """One worker's walk over the commands of the pool's current program.

    Once all have reached the last barrier, the caller may return and free the program: the others must
    not touch program or events after it.
    """
    program = load(at(state, PROGRAM))
    events = load(at(state, EVENTS))
    own = worker_at(state, worker)
    arrival, phase = load(at(own, ARRIVED)), load(at(own, PHASE))
    command = load(at(program, COMMANDS))
    scratch = load(at(program, SCRATCH)) + worker * load(at(program, SCRATCH_STRIDE))
    event = at(events, worker * EVENT_SLOTS) if events else 0
    count = load(at(program, SHARED)) if worker else load(at(program, COUNT))
    request = load(at(program, REQUEST))
    for step in range(count):
        if event:
            store(at(event, BEGIN), clock_ns())
            store(at(event, TILES_RUN), 0)
            store(at(event, TILES_STOLEN), 0)
        if load(at(command, TILES)) > 1:
            # Nobody reads the other counter now: all passed the barrier of the command that used it.
            store(at(own, CLAIMED + 1 - phase), 0)
            if not _stopped(request):
                _run_tiles(state, worker, workers, phase, command, scratch, event)
            phase = 1 - phase
        elif worker == 0 and not _stopped(request):
            kernel, table = load(at(command, KERNEL)), load(at(command, TABLE))
            call_kernel(kernel, table, 0, 1, scratch)
            if event:
                store(at(event, TILES_RUN), 1)
        if event:
            store(at(event, END), clock_ns())
        if load(at(command, BARRIER)):
            arrival += 1
            arrive(state, worker, workers, arrival)
            # Only the caller waits in the last one: the others wait for the next run, which begins after it.
            if worker == 0 or step + 1 < count:
                await_arrivals(state, worker, workers, arrival)
        if event:
            if worker == 0:
                store(at(event, MET), clock_ns())
            event = at(event, workers * EVENT_SLOTS)
        command = at(command, COMMAND_SLOTS)
    store(at(own, PHASE), phase)


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
            _fork(state, program, _events_of(program, workers, run, events))
            run_share(state, 0, workers)
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
