"""How the workers of a pool wait: for what the others are still at, and for the next run.

Who waits spins for a while and then sleeps until woken. It never yields its core (``sched_yield``): beside
processes that compute, that costs it some of their time slices, milliseconds each, while a thread that has slept
is scheduled soon. For a model that takes 5 ms alone on one core, two workers beside two such processes take
45 to 216 ms if they yield, and 9 to 14 so.

How long to spin is found by trial, in the way of Karlin et al., "Empirical Studies of Competitive Spinning for a
Shared-Memory Multiprocessor": a wait that ends while the worker spins says that the others have cores of their
own, and from then on it spins for as long as it may; one that ends asleep, that they may be waiting for this
very core, and it spins for a quarter of the time. A pool of more workers than cores does not spin.

**Arrivals.** Each worker has a counter of its own, ``ARRIVED``, of the commands that it is done with: with two workers
that costs one cache-line transfer, and a shared counter would cost two. All workers arrive at the same numbers, one
after another. Who sleeps until all have come to a number does so on ``WOKEN``, the last number whose sleepers were
woken; ``SLEEPERS`` counts them.

    a worker arrives                            a worker goes to sleep
    1. ARRIVED[own] = arrival                   a. SLEEPERS += 1
    2. if SLEEPERS:                             b. seen = WOKEN
    3.     if all of ARRIVED >= arrival:        c. unless all of ARRIVED >= awaited:
    4.         WOKEN = arrival, wake all        d.     sleep if WOKEN is still ``seen``, then again from b

No wake-up is lost. 1, 2, 3, a and c are sequentially consistent: all workers see them in one order. Take the worker
whose 1 for the number that is awaited is the last. If it read 0 at 2, that was before the sleeper's a, and so the
sleeper finds all arrived at c. Otherwise it finds all arrived at 3, and comes to 4. A sleeper that reads ``WOKEN``
after that sees this number or a later one; one that has read it before does not fall asleep at d, as the value is
another, or does so before 4 and is woken by it. Who is woken by an earlier number sleeps again. ``WOKEN`` never returns
to an earlier value: each worker is done with 4 before it arrives at the next number, and nobody finds all arrived at
that before.

**Runs.** Idle workers sleep on ``GENERATION``, the number of the run, and ``PARKED`` counts them. The order is the
same, with the addition to ``GENERATION`` in the place of 1.
"""

from __future__ import annotations

from autotune.runtime.addresses import at, worker_at
from autotune.runtime.atomics import (
    clock_ns,
    exchange,
    fetch_add,
    load,
    load_acquire,
    load_ordered,
    park,
    pause,
    store,
    store_release,
    unpark,
)
from autotune.runtime.layout import ARRIVED, GENERATION, PARKED, PATIENCE_NS, SLEEPERS, SPIN_NS, WOKEN
from autotune.runtime.translate.functions import native

EVERYBODY = 0x7FFFFFFF
_SPINS_PER_CLOCK = 16
_LEAST_SHARE = 32  # of the time that a worker may spin: what it always spins


@native
def _awaited(counter: int, value: int, patience_ns: int) -> bool:
    """Spin until a counter has come to a value; False when patience ends first."""
    deadline = 0
    while patience_ns:
        for _ in range(_SPINS_PER_CLOCK):
            if load_acquire(counter) >= value:
                return True
            pause()
        now = clock_ns()
        if deadline == 0:
            deadline = now + patience_ns
        elif now >= deadline:
            break
    return load_acquire(counter) >= value


@native
def _awaited_here(state: int, worker: int, counter: int, value: int) -> bool:
    """Spin until a counter has come to a value, for as long as this worker's patience lasts, and adapt that."""
    own = at(worker_at(state, worker), PATIENCE_NS)
    patience, most = load(own), load(at(state, SPIN_NS))
    awake = _awaited(counter, value, patience)
    adapted = most if awake else max(patience // 4, most // _LEAST_SHARE)
    if adapted != patience:
        store(own, adapted)
    return awake


@native
def _all_arrived(state: int, workers: int, arrival: int) -> bool:
    """Whether every worker has come to a number."""
    worker = 0
    while worker < workers and load_ordered(at(worker_at(state, worker), ARRIVED)) >= arrival:
        worker += 1
    return worker == workers


@native
def _sleep_until_met(state: int, workers: int, arrival: int) -> None:
    """Sleep until every worker has come to a number."""
    fetch_add(at(state, SLEEPERS), 1)
    woken = at(state, WOKEN)
    seen = load_acquire(woken)
    while seen < arrival and not _all_arrived(state, workers, arrival):
        park(woken, seen)
        seen = load_acquire(woken)
    fetch_add(at(state, SLEEPERS), -1)


@native
def arrive(state: int, worker: int, workers: int, arrival: int) -> None:
    """Say that a worker has come to a number."""
    exchange(at(worker_at(state, worker), ARRIVED), arrival)
    if load_ordered(at(state, SLEEPERS)) and _all_arrived(state, workers, arrival):
        store_release(at(state, WOKEN), arrival)
        unpark(at(state, WOKEN), EVERYBODY)


@native
def await_arrivals(state: int, worker: int, workers: int, arrival: int) -> None:
    """Wait until every worker has come to a number."""
    for other in range(workers):
        theirs = at(worker_at(state, other), ARRIVED)
        if load_acquire(theirs) < arrival and not _awaited_here(state, worker, theirs, arrival):
            _sleep_until_met(state, workers, arrival)
            return


@native
def begin_run(state: int) -> None:
    """Let all workers begin a run."""
    fetch_add(at(state, GENERATION), 1)
    if load_ordered(at(state, PARKED)):
        unpark(at(state, GENERATION), EVERYBODY)


@native
def await_run(state: int, worker: int, run: int) -> None:
    """Wait until the run of that number begins."""
    generation, patience = at(state, GENERATION), load(at(worker_at(state, worker), PATIENCE_NS))
    while not _awaited(generation, run, patience):
        fetch_add(at(state, PARKED), 1)
        park(generation, run - 1)
        fetch_add(at(state, PARKED), -1)


__all__ = ["EVERYBODY", "arrive", "await_arrivals", "await_run", "begin_run"]
