"""Waiting of a pool's workers: for the work of the others, and for the next run.

Who waits spins for a while and then sleeps until woken. It never yields its core (``sched_yield``): beside
processes that compute, that costs it some of their time slices, milliseconds each, while a thread that has slept
is scheduled soon. For a model that takes 5 ms alone on one core, two workers beside two such processes take
45 to 216 ms if they yield, and 9 to 14 so.

How long to spin is found by trial, in the way of Karlin et al., "Empirical Studies of Competitive Spinning for a
Shared-Memory Multiprocessor": a wait that ends while the worker spins says that the others have cores of their
own, and from then on it spins for as long as it may; one that ends asleep, that they may be waiting for this
very core, and it spins for a quarter of the time. A pool of more workers than cores does not spin.

Between runs a caller in Python is away for a tenth of a millisecond and more, as by guards and results of
torch.compile, and to wake a thread takes half of that. So a worker whose last run came within ``_SHORT_GAPS`` times
what it spins at most spins for that long, where cores are not contested. Who loses its core meanwhile sleeps at once.

**Commands.** Nobody waits for workers, but for tiles: a command is done when all units of its tiles are, whoever ran
them. Each worker says in a ring of its own, ``DONE``, how many it ran of a command; with two workers that costs one
cache-line transfer, and a shared counter would cost two. A worker that ran none says nothing, and may be anywhere: not
yet woken, or off its core. An entry of a later command in the same place says that this one is done, as who runs the
later one has waited for all that are ``RING`` before it. Who sleeps until a command is done does so on ``WOKEN``,
which counts; ``SLEEPERS`` says how many do.

    a worker has run units                      a worker goes to sleep
    1. DONE[own] += units                       a. SLEEPERS += 1
    2. if SLEEPERS:                             b. seen = WOKEN
    3.     if all units are done:               c. unless all units are done:
    4.         WOKEN += 1, wake all             d.     sleep if WOKEN is still ``seen``, then again from b

No wake-up is lost. 1 to 4 and a to c are sequentially consistent: all workers see them in one order. Take the worker
whose 1 makes the command done. If it read 0 at 2, that was before the sleeper's a, and so the sleeper finds the command
done at c. Otherwise it finds it done at 3, and comes to 4. A sleeper that reads ``WOKEN`` after that finds the command
done at c; one that has read it before does not fall asleep at d, as the value is another, or does so before 4 and is
woken by it. Who is woken for another command sleeps again.

**Runs.** Idle workers sleep on ``GENERATION``, and ``PARKED`` counts them; the order is the same, with the addition to
``GENERATION`` in the place of 1. A worker may come late to a run, and to none of its tiles, when the caller has
returned and freed the program. So it reads the program only ``INSIDE``: it sets that and then looks whether the run is
still there; who ends the run changes ``GENERATION`` and then waits until nobody is inside. Of these two at least one
sees the other. A worker that waits for others is not inside, and needs nothing but the pool's own memory.
"""

from __future__ import annotations

from autotune.runtime.cpu.addresses import at, worker_at
from autotune.runtime.cpu.atomics import (
    clock_ns,
    exchange,
    fetch_add,
    load,
    load_acquire,
    load_ordered,
    park,
    pause,
    store,
    unpark,
)
from autotune.runtime.cpu.layout import (
    ARRIVED,
    CLAIMS,
    DONE,
    GAP_NS,
    GENERATION,
    INSIDE,
    PARKED,
    PATIENCE_NS,
    RING,
    SLEEPERS,
    SPIN_NS,
    WOKEN,
)
from autotune.runtime.cpu.translate.functions import native

EVERYBODY = 0x7FFFFFFF
_SPINS_PER_CLOCK = 16
_LEAST_SHARE = 32  # of the time that a worker may spin: what it always spins
_SHORT_GAPS = 5
_LOST_NS = 50_000  # between two looks at the clock, a microsecond apart: another thread had the core


@native
def _awaited(counter: int, value: int, patience_ns: int) -> bool:
    """Spin until a counter has come to a value; False when patience ends first, or the core is lost."""
    deadline, before = 0, 0
    while patience_ns:
        for _ in range(_SPINS_PER_CLOCK):
            if load_acquire(counter) >= value:
                return True
            pause()
        now = clock_ns()
        if deadline == 0:
            deadline = now + patience_ns
        elif now >= deadline or now - before > _LOST_NS:
            break
        before = now
    return load_acquire(counter) >= value


@native
def _done_at(state: int, worker: int, number: int) -> int:
    """Return the address of a worker's mark of a command."""
    return at(worker_at(state, worker), DONE + number % RING)


@native
def is_done(state: int, workers: int, number: int, units: int) -> bool:
    """Return whether all units of a command were run; of one that worker 0 runs alone, where ``units`` is 0."""
    if units == 0:
        return load_ordered(at(worker_at(state, 0), ARRIVED)) >= number
    worker, left = 0, units
    while worker < workers and left > 0:
        left -= max(0, load_ordered(_done_at(state, worker, number)) - number * CLAIMS)
        worker += 1
    return left <= 0


@native
def is_done_soon(state: int, workers: int, number: int, units: int) -> bool:
    """Return whether a command is done within a moment, in which nobody needs to leave the run."""
    spins = _SPINS_PER_CLOCK
    while spins and not is_done(state, workers, number, units):
        pause()
        spins -= 1
    return spins > 0


@native
def _done_in_time(state: int, workers: int, number: int, units: int, patience_ns: int) -> bool:
    """Spin until a command is done; False when patience ends first."""
    deadline = 0
    while patience_ns:
        if is_done_soon(state, workers, number, units):
            return True
        now = clock_ns()
        if deadline == 0:
            deadline = now + patience_ns
        elif now >= deadline:
            break
    done: bool = is_done(state, workers, number, units)
    return done


@native
def spin_until_done(state: int, worker: int, workers: int, number: int, units: int) -> bool:
    """Spin until a command is done, for as long as this worker's patience lasts, and adapt that."""
    own = at(worker_at(state, worker), PATIENCE_NS)
    patience, most = load(own), load(at(state, SPIN_NS))
    awake: bool = _done_in_time(state, workers, number, units, patience)
    adapted = most if awake else max(patience // 4, most // _LEAST_SHARE)
    if adapted != patience:
        store(own, adapted)
    return awake


@native
def sleep_until_done(state: int, workers: int, number: int, units: int) -> None:
    """Sleep until a command is done."""
    fetch_add(at(state, SLEEPERS), 1)
    woken = at(state, WOKEN)
    seen = load_ordered(woken)
    while not is_done(state, workers, number, units):
        park(woken, seen)
        seen = load_ordered(woken)
    fetch_add(at(state, SLEEPERS), -1)


@native
def _wake(state: int) -> None:
    """Let those who sleep look again."""
    fetch_add(at(state, WOKEN), 1)
    unpark(at(state, WOKEN), EVERYBODY)


@native
def add_done(state: int, worker: int, workers: int, number: int, ran: int, units: int) -> None:
    """Say that a worker has run some more units of a command, which has ``units`` in all."""
    own = _done_at(state, worker, number)
    exchange(own, max(load(own), number * CLAIMS) + ran)
    if load_ordered(at(state, SLEEPERS)) and is_done(state, workers, number, units):
        _wake(state)


@native
def arrive(state: int, number: int) -> None:
    """Say that worker 0 is done with a command that it runs alone."""
    exchange(at(worker_at(state, 0), ARRIVED), number)
    if load_ordered(at(state, SLEEPERS)):
        _wake(state)


@native
def enter(state: int, worker: int, run: int) -> bool:
    """Keep a run from ending until this worker leaves it; False where it is over."""
    exchange(at(worker_at(state, worker), INSIDE), 1)
    if load_ordered(at(state, GENERATION)) == run:
        return True
    leave(state, worker)
    return False


@native
def leave(state: int, worker: int) -> None:
    """Let a run end, as far as this worker is concerned."""
    exchange(at(worker_at(state, worker), INSIDE), 0)
    if load_ordered(at(state, SLEEPERS)):
        _wake(state)


@native
def begin_run(state: int) -> None:
    """Let all workers begin a run."""
    fetch_add(at(state, GENERATION), 1)
    if load_ordered(at(state, PARKED)):
        unpark(at(state, GENERATION), EVERYBODY)


@native
def end_run(state: int, workers: int) -> None:
    """Let nobody enter the run any more, and wait until all have left it."""
    fetch_add(at(state, GENERATION), 1)
    for worker in range(1, workers):
        inside = at(worker_at(state, worker), INSIDE)
        spins = _SPINS_PER_CLOCK
        while spins and load_ordered(inside):
            pause()
            spins -= 1
        if load_ordered(inside):
            _sleep_until_left(state, inside)


@native
def _sleep_until_left(state: int, inside: int) -> None:
    """Sleep until a worker has left a run."""
    fetch_add(at(state, SLEEPERS), 1)
    woken = at(state, WOKEN)
    seen = load_ordered(woken)
    while load_ordered(inside):
        park(woken, seen)
        seen = load_ordered(woken)
    fetch_add(at(state, SLEEPERS), -1)


@native
def _patience_between_runs(state: int, own: int) -> int:
    """Return how long a worker spins until the next run."""
    patience, most = load(at(own, PATIENCE_NS)), load(at(state, SPIN_NS))
    comes_back: bool = patience == most and load(at(own, GAP_NS)) < _SHORT_GAPS * most
    return _SHORT_GAPS * most if comes_back else patience


@native
def await_run(state: int, worker: int, seen: int) -> int:
    """Wait until ``GENERATION`` is another one than was seen; returns that."""
    own, generation, begin = worker_at(state, worker), at(state, GENERATION), clock_ns()
    patience = _patience_between_runs(state, own)
    while not _awaited(generation, seen + 1, patience):
        fetch_add(at(state, PARKED), 1)
        park(generation, seen)
        fetch_add(at(state, PARKED), -1)
    if seen % 2 == 0:
        store(at(own, GAP_NS), clock_ns() - begin)
    return load_acquire(generation)


__all__ = [
    "EVERYBODY",
    "add_done",
    "arrive",
    "await_run",
    "begin_run",
    "end_run",
    "enter",
    "is_done_soon",
    "leave",
    "sleep_until_done",
    "spin_until_done",
]
