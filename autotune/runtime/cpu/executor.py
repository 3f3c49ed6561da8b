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

from autotune.runtime.cpu.addresses import (
    at,
    worker_at,
)
from autotune.runtime.cpu.atomics import (
    clock_ns,
    compare_exchange,
    fetch_add,
    load,
    load_acquire,
    store,
    store_release,
    unpark,
    yield_processor,
)
from autotune.runtime.cpu.balance import (
    learn,
    sample_due,
)
from autotune.runtime.cpu.layout import (
    ADDRESSES,
    BASE,
    BEHIND,
    COMMAND_SLOTS,
    COMMANDS,
    COUNT,
    END,
    EVENT_SLOTS,
    EVENTS,
    GENERATION,
    GONE,
    LENGTH,
    MET,
    PARALLEL,
    PATCH_COUNT,
    PATCH_OFFSET,
    PATCH_SLOT,
    PATCH_SLOTS,
    PATCH_SOURCE,
    PATCHES,
    PROGRAM,
    REPEAT,
    REQUEST,
    SAMPLE,
    SCRATCH,
    SERVED,
    SERVING,
    STATE,
    STOP,
    TEAM,
    TILES_RUN,
    TURN,
)
from autotune.runtime.cpu.mutex import (
    lock,
    try_lock,
    unlock,
)
from autotune.runtime.cpu.repeats import (
    begin_repeat,
    move_on,
    times_left,
)
from autotune.runtime.cpu.tiles import (
    begin_row,
    run_on_caller,
)
from autotune.runtime.cpu.translate.functions import (
    native,
)
from autotune.runtime.cpu.waiting import (
    EVERYBODY,
    await_run,
    begin_run,
    end_run,
    enter,
)
from autotune.runtime.cpu.walk import (
    decides_to_go_on,
    run_share,
)


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
def _run_alone(program: int, workers: int, events: int) -> None:
    """Run all commands on this thread: no atomics, no barriers."""
    command = load(at(program, COMMANDS))
    scratch, request = load(at(program, SCRATCH)), load(at(program, REQUEST))
    end, again, event = at(command, load(at(program, COUNT)) * COMMAND_SLOTS), 0, events
    while command < end:
        if event:
            begin_row(event, again)
        repeat, back = load(at(command, REPEAT)), 0
        if repeat == 0:
            run_on_caller(command, request, scratch, event)
        elif not load(at(command, BEHIND)):
            begin_repeat(repeat)
        elif times_left(repeat) and decides_to_go_on(command, repeat, request):
            if move_on(repeat) == 1:
                again += 1
            back = load(at(repeat, LENGTH))
        elif load(at(repeat, GONE)):
            again -= 1
        if event:
            store(at(event, MET), load(at(event, END)))
            event = at(event, (1 - back) * workers * EVENT_SLOTS)
        command = at(command, (1 - back) * COMMAND_SLOTS)


@native
def _fork(state: int, program: int, events: int) -> None:
    """Give the workers a program and let them go."""
    if load(at(state, PROGRAM)) != program or load(at(state, EVENTS)) != events:
        store(at(state, PROGRAM), program)
        store(at(state, EVENTS), events)
    begin_run(state)


@native
def _join(state: int, workers: int, last: int) -> None:
    """Wait until nobody else is in the run, whose last command has this number: program and events are the caller's
    again."""
    end_run(state, workers)
    store(at(state, BASE), last)


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
            last = run_share(state, 0, workers, 0)
            _join(state, workers, last)
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


__all__ = ["execute", "serve", "stop"]
