"""A worker's walk over the commands of a program: what it waits for, runs, and goes through again.

It waits where it comes to a command that depends on tiles that others are still at, and takes part in all that are
shared; worker 0 runs what is its own besides.
"""

from __future__ import annotations

from autotune.runtime.cpu.addresses import (
    at,
)
from autotune.runtime.cpu.atomics import (
    clock_ns,
    load,
    store,
)
from autotune.runtime.cpu.layout import (
    ALONE,
    ARRIVE,
    AWAIT,
    BASE,
    BEHIND,
    COMMAND_SLOTS,
    COMMANDS,
    COUNT,
    DECIDED,
    EVENT_SLOTS,
    EVENTS,
    GONE,
    LENGTH,
    MET,
    PROGRAM,
    REPEAT,
    REQUEST,
    ROWS_STRIDE,
    SCRATCH,
    SCRATCH_STRIDE,
    SHARED,
)
from autotune.runtime.cpu.repeats import (
    ENDS,
    GOES_ON,
    IS_LATE,
    begin_repeat,
    move_on,
    note_end,
    times_left,
    way_of_others,
)
from autotune.runtime.cpu.tiles import (
    LAST,
    REST,
    begin_row,
    chosen,
    run_on_caller,
    stopped,
    take_tiles,
    units_of,
)
from autotune.runtime.cpu.translate.functions import (
    native,
)
from autotune.runtime.cpu.waiting import (
    arrive,
    enter,
    is_done_soon,
    leave,
    sleep_until_done,
    spin_until_done,
)


@native
def _await_command(
    state: int, worker: int, workers: int, number: int, command: int, scratch: int, event: int, run: int
) -> bool:
    """Wait until a command is done; False where the run is over meanwhile, which worker 0 alone ends.

    Who waits is not inside the run. Before it sleeps it runs what is left.
    """
    units = units_of(state, workers, command)
    if is_done_soon(state, workers, number, units):
        return True
    if worker:
        leave(state, worker)
    if not spin_until_done(state, worker, workers, number, units):
        if units:
            if worker and not enter(state, worker, run):
                return False
            take_tiles(state, worker, workers, number, command, scratch, event, REST)
            if worker:
                leave(state, worker)
        sleep_until_done(state, workers, number, units)
    inside: bool = worker == 0 or enter(state, worker, run)
    return inside


@native
def _await_commands(
    state: int,
    worker: int,
    workers: int,
    base: int,
    first: int,
    last: int,
    command: int,
    run: int,
) -> bool:
    """Wait until some commands are done, of which ``command`` is the row of the first; False where the run is over
    meanwhile."""
    program, events = load(at(state, PROGRAM)), load(at(state, EVENTS))
    scratch = load(at(program, SCRATCH)) + worker * load(at(program, SCRATCH_STRIDE))
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
def decides_to_go_on(command: int, repeat: int, request: int) -> bool:
    """Return whether a repeat of so many times as its guards say goes on: not where the request was stopped."""
    if not load(at(repeat, DECIDED)):
        return True
    return chosen(command) and not stopped(request)


@native
def _way(
    state: int, worker: int, workers: int, number: int, command: int, request: int, scratch: int, run: int
) -> int:
    """Return the way of a repeat from the row behind its commands, with which all are through."""
    repeat, alone = load(at(command, REPEAT)), load(at(command, ALONE))
    decided = load(at(repeat, DECIDED))
    if worker and decided:
        if not _await_command(state, worker, workers, number, command, scratch, 0, run):
            return IS_LATE
        return way_of_others(repeat, number)
    way = GOES_ON if times_left(repeat) and decides_to_go_on(command, repeat, request) else ENDS
    if alone:
        if way == ENDS and load(at(command, ARRIVE)):
            arrive(state, number)
    elif decided:
        if way == ENDS:
            note_end(repeat, number)
        arrive(state, number)
    return way


@native
def run_share(state: int, worker: int, workers: int, run: int) -> int:
    """Walk over the commands of the pool's current program; all but worker 0 have entered the run.

    They leave it before they say what they ran of the last command that they share: the caller may return then and free
    the program. Returns, of worker 0, the number of the last command. A command that is repeated has a new number each
    time, unless worker 0 alone repeats it.
    """
    program = load(at(state, PROGRAM))
    events, base = load(at(state, EVENTS)), load(at(state, BASE))
    rows = load(at(program, COMMANDS)) + worker * load(at(program, ROWS_STRIDE))
    scratch = load(at(program, SCRATCH)) + worker * load(at(program, SCRATCH_STRIDE))
    request = load(at(program, REQUEST))
    shared, met, step, again = load(at(program, SHARED)), 0, 0, 0
    count = shared if worker else load(at(program, COUNT))
    while step < count:
        command = at(rows, step * COMMAND_SLOTS)
        alone, back = load(at(command, ALONE)), 0
        if worker == 0 or not alone:
            event = at(events, (step * workers + worker) * EVENT_SLOTS) if events else 0
            wait, repeat = load(at(command, AWAIT)), load(at(command, REPEAT))
            if wait > met:
                awaited = at(rows, met * COMMAND_SLOTS)
                if not _await_commands(state, worker, workers, base, met, wait, awaited, run):
                    return 0
                if event and worker == 0:
                    _say_met(events, workers, met, wait)
                met = wait
            if event:
                begin_row(event, again)
            if repeat == 0:
                if alone:
                    run_on_caller(command, request, scratch, event)
                    if load(at(command, ARRIVE)):
                        arrive(state, base + step + 1)
                else:
                    mode = LAST if worker and step == shared - 1 else 0
                    take_tiles(state, worker, workers, base + step + 1, command, scratch, event, mode)
            elif not load(at(command, BEHIND)):
                begin_repeat(repeat)
            else:
                way = _way(state, worker, workers, base + step + 1, command, request, scratch, run)
                if way == GOES_ON:
                    back = load(at(repeat, LENGTH))
                    if move_on(repeat) == 1:
                        again += 1
                    if not alone:
                        base += back
                elif worker and (way == IS_LATE or step == shared - 1):
                    leave(state, worker)
                    return 0
                elif load(at(repeat, GONE)):
                    again -= 1
            if repeat and not alone:
                if event and worker == 0:
                    _say_met(events, workers, step, step + 1)
                met = step + 1 - back
        step += 1 - back
    if worker == 0:
        _await_commands(state, worker, workers, base, met, shared, at(rows, met * COMMAND_SLOTS), run)
        if events:
            _say_met(events, workers, met, count)
    return base + count


__all__ = ["decides_to_go_on", "run_share"]
