"""How workers wait: no wake-up is lost, whatever the order in which they get their turns."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from autotune.errors import InternalError
from autotune.runtime import layout, pool, waiting
from autotune.runtime.addresses import at, worker_at
from autotune.runtime.module import Module
from tests.runtime.kernels import binding, chain, image, spec

STATE = 1 << 20


class Machine:
    """Memory, and workers of which one at a time does one operation, drawn by chance; stores are seen at once."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.memory: defaultdict[int, int] = defaultdict(int)
        self._turns: dict[int, threading.Semaphore] = {}
        self._workers: dict[int, int] = {}
        self._asleep: dict[int, int] = {}
        self._paused = threading.Semaphore(0)
        self._clock = 0
        self._over = False

    def run(self, bodies: list[Callable[[], None]]) -> None:
        """Let the workers come to their ends; fails where all that are left sleep."""
        threads = [
            threading.Thread(target=self._worker, args=item, daemon=True) for item in enumerate(bodies)
        ]
        self._turns = {worker: threading.Semaphore(0) for worker in range(len(bodies))}
        for thread in threads:
            thread.start()
        for _ in threads:
            self._paused.acquire()
        while self._turns:
            awake = [worker for worker in self._turns if worker not in self._asleep]
            self._over = not awake
            self._turns[self._random.choice(awake or [*self._turns])].release()
            self._paused.acquire()
        assert not self._over, "all workers sleep"

    def _worker(self, worker: int, body: Callable[[], None]) -> None:
        self._workers[threading.get_ident()] = worker
        try:
            self._turn()
            body()
        except InternalError:  # there are no more turns
            pass
        finally:
            del self._turns[worker]
            self._paused.release()

    def _turn(self) -> None:
        turn = self._turns[self._workers[threading.get_ident()]]
        self._paused.release()
        turn.acquire()
        if self._over:
            raise InternalError("all workers sleep")

    def load(self, address: int) -> int:
        self._turn()
        return self.memory[address]

    def store(self, address: int, value: int) -> None:
        self._turn()
        self.memory[address] = value

    def exchange(self, address: int, value: int) -> int:
        self._turn()
        before, self.memory[address] = self.memory[address], value
        return before

    def fetch_add(self, address: int, value: int) -> int:
        self._turn()
        self.memory[address] += value
        return self.memory[address] - value

    def park(self, address: int, value: int) -> None:
        self._turn()
        if self.memory[address] == value:
            self._asleep[self._workers[threading.get_ident()]] = address
            self._turn()

    def unpark(self, address: int, threads: int) -> None:
        self._turn()
        assert threads == waiting.EVERYBODY
        for worker in [worker for worker, place in self._asleep.items() if place == address]:
            del self._asleep[worker]

    def clock_ns(self) -> int:
        self._clock += 1
        return self._clock


OPERATIONS = {
    "load": Machine.load,
    "load_acquire": Machine.load,
    "load_ordered": Machine.load,
    "store": Machine.store,
    "store_release": Machine.store,
    "exchange": Machine.exchange,
    "fetch_add": Machine.fetch_add,
    "park": Machine.park,
    "unpark": Machine.unpark,
    "clock_ns": Machine.clock_ns,
}


def _take_part(machine: Machine, worker: int, workers: int, runs: int, barriers: int) -> None:
    """What a worker does in some runs, without the tiles."""
    arrival = 0
    for run in range(1, runs + 1):
        if worker == 0:
            waiting.begin_run(STATE)
        else:
            waiting.await_run(STATE, worker, run)
        for barrier in range(barriers):
            arrival += 1
            waiting.arrive(STATE, worker, workers, arrival)
            if worker == 0 or barrier < barriers - 1:
                waiting.await_arrivals(STATE, worker, workers, arrival)
                places = [at(worker_at(STATE, other), layout.ARRIVED) for other in range(workers)]
                assert min(machine.memory[place] for place in places) >= arrival


@pytest.mark.parametrize("spin_ns", [0, 1])
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_no_wakeup_is_lost_in_random_orders_of_operations(
    workers: int, spin_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_SPINS_PER_CLOCK", 1)
    monkeypatch.setattr(waiting, "pause", lambda: None)
    for seed in range(100):
        machine = Machine(seed)
        for name, operation in OPERATIONS.items():
            monkeypatch.setattr(waiting, name, operation.__get__(machine))
        machine.memory[at(STATE, layout.SPIN_NS)] = spin_ns
        failed: list[AssertionError] = []

        def body(worker: int, machine: Machine = machine, failed: list[AssertionError] = failed) -> None:
            try:
                _take_part(machine, worker, workers, 2, 3)
            except AssertionError as error:
                failed.append(error)

        machine.run([lambda worker=worker: body(worker) for worker in range(workers)])
        assert not failed
        assert machine.memory[at(STATE, layout.SLEEPERS)] == 0


@pytest.mark.parametrize("spin_ns", [0, 1, 2000, 100_000])
@pytest.mark.parametrize("workers", [2, 3, 4, 8, 16])
def test_workers_that_take_their_time_meet(
    workers: int, spin_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each tile reads what another wrote in the command before, after a delay of its own.
    monkeypatch.setattr(pool, "_SPIN_NS", spin_ns)
    monkeypatch.setattr(pool, "usable_cores", lambda: workers)
    team = pool.ThreadPool(workers)
    monkeypatch.setattr("autotune.runtime.instance.pool_of", lambda count: team)
    x = np.arange(64, dtype=np.int64)
    with Module(chain(40, 64, body="late"), workers) as module:
        outputs: list[np.ndarray] = []

        def call() -> None:
            for run in range(10):
                outputs.append(module(x + run)[0])

        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        caller.join(60)
        assert not caller.is_alive(), "a wake-up was lost"
        team.stop()
    assert [output.tolist() for output in outputs] == [(x + run + 40).tolist() for run in range(10)]


def test_patience_shrinks_by_waits_that_end_asleep_and_returns_with_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, counter, patience = Machine(0), 8, at(worker_at(STATE, 1), layout.PATIENCE_NS)
    for name, operation in OPERATIONS.items():
        monkeypatch.setattr(waiting, name, operation.__get__(machine))
    monkeypatch.setattr(waiting, "pause", lambda: None)
    machine.memory[at(STATE, layout.SPIN_NS)] = machine.memory[patience] = 64
    seen = []

    def body() -> None:
        for arrived in (0, 0, 0, 1, 0):
            machine.memory[counter] = arrived
            seen.append((waiting._awaited_here(STATE, 1, counter, 1), machine.memory[patience]))

    machine.run([body])
    assert seen == [(False, 16), (False, 4), (False, 2), (True, 64), (False, 16)]


def test_pools_of_more_workers_than_cores_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "usable_cores", lambda: 3)
    assert pool.ThreadPool(3)._state[layout.SPIN_NS] > 0
    assert pool.ThreadPool(4)._state[layout.SPIN_NS] == 0


def test_workers_sleep_in_a_barrier_that_lasts() -> None:
    # Worker 0 is busy with a single tile; the other waits for it.
    steps = [
        ("slow", binding("input", 1), binding("arena", 1), 1),
        ("increment", binding("arena", 64), binding("output", 64), 64),
    ]
    made = image(steps, inputs=(spec("x", 1),), outputs=(spec("y", 64),), arena_bytes=512)
    with Module(made, 2) as module:
        sleepers = module._whole.pool._state[layout.SLEEPERS :]
        over = threading.Event()

        def call() -> None:
            while not over.is_set():
                assert module(np.array([4]))[0][0] == 5

        caller = threading.Thread(target=call)
        caller.start()
        deadline = time.monotonic() + 20
        while not (slept := sleepers[0]) and time.monotonic() < deadline:
            time.sleep(0.0001)
        over.set()
        caller.join()
    assert slept >= 1  # the caller sleeps too where the other one is late
