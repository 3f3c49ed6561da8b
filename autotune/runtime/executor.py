"""The executor: replays a program of kernel calls on a pool of workers, without Python.

Every worker walks the same command list. The tiles of a command are split into one range a worker,
so that a worker meets the same part of a tensor from one command to the next; a worker claims chunks
of its own range with an atomic addition, and when that is empty, of its neighbours' (work stealing;
one shared counter a range does for the deque of Blumofe and Leiserson, because tiles are known in
advance). Between commands the workers meet in a barrier of one counter a worker: each publishes its
own and waits for all others, which costs one cache-line transfer with two workers. Single-tile
commands run on worker 0 and need no barrier among themselves. Worker 0 is the thread that calls.

Written in the subset of Python that ``translate`` turns into LLVM IR; ``native`` compiles it.
"""

from __future__ import annotations

from autotune.runtime.atomics import (
    call_kernel,
    clock_ns,
    compare_exchange,
    fetch_add,
    load,
    load_acquire,
    load_relaxed,
    park,
    pause,
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
    CHUNK,
    CLAIMED,
    COMMAND_SLOTS,
    COMMANDS,
    COUNT,
    END,
    EVENT_SLOTS,
    EVENTS,
    GENERATION,
    IDLE_NS,
    KERNEL,
    MET,
    PARALLEL,
    PARKED,
    PATCH_COUNT,
    PATCH_OFFSET,
    PATCH_SLOT,
    PATCH_SLOTS,
    PATCH_SOURCE,
    PATCHES,
    PHASE,
    PROGRAM,
    SCRATCH,
    SCRATCH_STRIDE,
    SERVED,
    SERVING,
    SHARED,
    SPIN,
    STATE,
    STOP,
    TABLE,
    TEAM,
    TILES,
    TILES_RUN,
    TILES_STOLEN,
    TURN,
    WORKER_SLOTS,
    WORKERS,
)
from autotune.runtime.mutex import lock, try_lock, unlock
from autotune.runtime.translate.functions import native

_SPINS_PER_CLOCK = 64
_EVERYBODY = 0x7FFFFFFF


@native
def _at(base: int, slot: int) -> int:
    """Address of a slot."""
    return base + 8 * slot


@native
def _worker(state: int, worker: int) -> int:
    """Address of a worker's own slots."""
    return state + 8 * (WORKERS + worker * WORKER_SLOTS)


@native
def _apply_patches(program: int) -> None:
    """Put this call's addresses into the pointer tables."""
    addresses = load(_at(program, ADDRESSES))
    patch = load(_at(program, PATCHES))
    for _ in range(load(_at(program, PATCH_COUNT))):
        source = load(_at(addresses, load(_at(patch, PATCH_SOURCE))))
        store(load(_at(patch, PATCH_SLOT)), source + load(_at(patch, PATCH_OFFSET)))
        patch = _at(patch, PATCH_SLOTS)


@native
def _run_alone(program: int, workers: int, events: int) -> None:
    """All commands on this thread: no atomics, no barriers."""
    command = load(_at(program, COMMANDS))
    scratch = load(_at(program, SCRATCH))
    for _ in range(load(_at(program, COUNT))):
        if events:
            store(_at(events, BEGIN), clock_ns())
        tiles = load(_at(command, TILES))
        call_kernel(load(_at(command, KERNEL)), load(_at(command, TABLE)), 0, tiles, scratch)
        if events:
            now = clock_ns()
            store(_at(events, END), now)
            store(_at(events, MET), now)
            store(_at(events, TILES_RUN), tiles)
            store(_at(events, TILES_STOLEN), 0)
            events = _at(events, workers * EVENT_SLOTS)
        command = _at(command, COMMAND_SLOTS)


@native
def _claim_range(counter: int, begin: int, end: int, chunk: int, command: int, scratch: int) -> int:
    """Run chunks of one worker's range until nothing is left to claim; returns how many tiles."""
    kernel = load(_at(command, KERNEL))
    table = load(_at(command, TABLE))
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
    tiles = load(_at(command, TILES))
    chunk = load(_at(command, CHUNK))
    total = 0
    for distance in range(workers):
        owner = worker + distance
        if owner >= workers:
            owner -= workers
        counter = _at(_worker(state, owner), CLAIMED + phase)
        begin, end = tiles * owner // workers, tiles * (owner + 1) // workers
        done = _claim_range(counter, begin, end, chunk, command, scratch)
        total += done
        if event and distance:
            store(_at(event, TILES_STOLEN), load(_at(event, TILES_STOLEN)) + done)
    if event:
        store(_at(event, TILES_RUN), total)


@native
def _meet(state: int, worker: int, workers: int, arrival: int) -> None:
    """Barrier: publish the arrival, then wait for everybody's."""
    store_release(_at(_worker(state, worker), ARRIVED), arrival)
    limit = load(_at(state, SPIN))
    for other in range(workers):
        theirs = _at(_worker(state, other), ARRIVED)
        spins = 0
        while load_acquire(theirs) < arrival:
            spins += 1
            if spins < limit:
                pause()
            else:
                yield_processor()


@native
def run_share(state: int, worker: int, workers: int) -> None:
    """One worker's walk over the commands of the pool's current program.

    Once a worker has passed the last barrier, the caller may return and free the program: the others
    must not touch program or events after it.
    """
    program = load(_at(state, PROGRAM))
    events = load(_at(state, EVENTS))
    own = _worker(state, worker)
    arrival, phase = load(_at(own, ARRIVED)), load(_at(own, PHASE))
    command = load(_at(program, COMMANDS))
    scratch = load(_at(program, SCRATCH)) + worker * load(_at(program, SCRATCH_STRIDE))
    event = _at(events, worker * EVENT_SLOTS) if events else 0
    count = load(_at(program, SHARED)) if worker else load(_at(program, COUNT))
    for _ in range(count):
        if event:
            store(_at(event, BEGIN), clock_ns())
            store(_at(event, TILES_RUN), 0)
            store(_at(event, TILES_STOLEN), 0)
        if load(_at(command, TILES)) > 1:
            # Nobody reads the other counter now: all passed the barrier of the command that used it.
            store(_at(own, CLAIMED + 1 - phase), 0)
            _run_tiles(state, worker, workers, phase, command, scratch, event)
            phase = 1 - phase
        elif worker == 0:
            kernel, table = load(_at(command, KERNEL)), load(_at(command, TABLE))
            call_kernel(kernel, table, 0, 1, scratch)
            if event:
                store(_at(event, TILES_RUN), 1)
        if event:
            store(_at(event, END), clock_ns())
        if load(_at(command, BARRIER)):
            arrival += 1
            _meet(state, worker, workers, arrival)
        if event:
            if worker == 0:
                store(_at(event, MET), clock_ns())
            event = _at(event, workers * EVENT_SLOTS)
        command = _at(command, COMMAND_SLOTS)
    store(_at(own, PHASE), phase)


@native
def _fork(state: int, program: int, events: int) -> None:
    """Give the workers a program and let them go."""
    if load(_at(state, PROGRAM)) != program or load(_at(state, EVENTS)) != events:
        store(_at(state, PROGRAM), program)
        store(_at(state, EVENTS), events)
    fetch_add(_at(state, GENERATION), 1)
    # An addition of nothing, because only a read-modify-write is ordered after the one above.
    if fetch_add(_at(state, PARKED), 0):
        unpark(_at(state, GENERATION), _EVERYBODY)


@native
def _await_generation(state: int, seen: int) -> None:
    """Wait until the generation is another: spin for a while, then sleep."""
    generation = _at(state, GENERATION)
    deadline = 0
    spins = 0
    while load_acquire(generation) == seen:
        pause()
        spins += 1
        if spins % _SPINS_PER_CLOCK:
            continue
        yield_processor()  # the caller may be waiting for this very core
        now = clock_ns()
        if deadline == 0:
            deadline = now + load(_at(state, IDLE_NS))
        elif now >= deadline:
            fetch_add(_at(state, PARKED), 1)
            park(generation, seen)
            fetch_add(_at(state, PARKED), -1)
            deadline = 0


@native
def serve(state: int, worker: int, workers: int) -> None:
    """Body of a worker thread: take part in every run until the pool stops.

    It ends at once where another thread is this worker already: a start that was interrupted is made again.
    """
    own = _worker(state, worker)
    if compare_exchange(_at(own, SERVED), 0, 1):
        return
    # No run begins before all workers are counted: none is missed after this.
    seen = load_acquire(_at(state, GENERATION))
    fetch_add(_at(state, SERVING), 1)
    while True:
        _await_generation(state, seen)
        seen += 1
        if load(_at(state, STOP)):
            break
        run_share(state, worker, workers)
    store_release(_at(own, SERVED), 0)
    fetch_add(_at(state, SERVING), -1)


@native
def _run_together(program: int, workers: int, repeats: int, times: int, events: int) -> bool:
    """Run a program with a pool's workers, after those who have them; False where some do not serve."""
    state = load(_at(program, STATE))
    lock(_at(state, TURN))
    complete = load_acquire(_at(state, SERVING)) == workers - 1
    if complete:
        for run in range(repeats):
            begin = clock_ns() if times else 0
            _fork(state, program, events)
            run_share(state, 0, workers)
            if times:
                store(_at(times, run), clock_ns() - begin)
    unlock(_at(state, TURN))
    return complete


@native
def execute(program: int, repeats: int, times: int, events: int) -> bool:
    """Run a program several times; the calling thread is worker 0. False when nothing ran for want of workers.

    ``times`` is the address of as many int64 that receive ns a run, ``events`` that of the event rows
    [commands, workers] of the last run; both may be 0. The caller has the program for itself.
    """
    _apply_patches(program)
    workers = load(_at(program, TEAM))
    if workers > 1 and load(_at(program, PARALLEL)):
        return _run_together(program, workers, repeats, times, events)
    for run in range(repeats):
        begin = clock_ns() if times else 0
        _run_alone(program, workers, events)
        if times:
            store(_at(times, run), clock_ns() - begin)
    return True


@native
def stop(state: int, patience_ns: int) -> None:
    """Let the worker threads end; where a run keeps them for longer than the patience, they go on."""
    deadline = clock_ns() + patience_ns
    while not try_lock(_at(state, TURN)):
        if clock_ns() > deadline:
            return
        yield_processor()
    store(_at(state, STOP), 1)
    while load_acquire(_at(state, SERVING)):
        fetch_add(_at(state, GENERATION), 1)  # once more for whoever came in between
        unpark(_at(state, GENERATION), _EVERYBODY)
        yield_processor()
    store(_at(state, STOP), 0)
    unlock(_at(state, TURN))


__all__ = ["execute", "run_share", "serve", "stop"]
