"""Waiting workers: no wake-up is lost, whatever the order in which they get their turns."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from autotune.errors import InternalError
from autotune.runtime.cpu import layout, pool, waiting
from autotune.runtime.cpu.addresses import at, worker_at
from autotune.runtime.module import Module
from tests.patience import PATIENCE_S, wait_until
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


UNITS = 3
BARRIERS = 3


class Program:
    """Commands of some units that depend on one another, one run after another; freed between runs."""

    def __init__(self, machine: Machine, workers: int) -> None:
        self.machine, self.workers = machine, workers
        self.claimed: defaultdict[int, int] = defaultdict(int)
        self.ran: defaultdict[int, int] = defaultdict(int)
        self.readable = False

    def call(self, runs: int) -> None:
        """Worker 0's part."""
        for run in range(runs):
            self.readable = True
            waiting.begin_run(STATE)
            self._walk(0, run * BARRIERS, 0)
            self._await(0, (run + 1) * BARRIERS, 0)
            waiting.end_run(STATE, self.workers)
            self.readable = False

    def serve(self, worker: int, runs: int) -> None:
        """Another worker's part, in runs that are there when it looks."""
        seen = 0
        while seen < 2 * runs:
            seen = waiting.await_run(STATE, worker, seen)
            entered = seen % 2 and waiting.enter(STATE, worker, seen)
            if entered and self._walk(worker, seen // 2 * BARRIERS, seen):
                waiting.leave(STATE, worker)

    def _walk(self, worker: int, base: int, run: int) -> bool:
        for number in range(base + 1, base + BARRIERS + 1):
            if number > base + 1 and not self._await(worker, number - 1, run):
                return False
            self._take(worker, number)
        return True

    def _take(self, worker: int, number: int) -> None:
        assert self.readable, "the program was freed"
        ran = 0
        while self.machine.fetch_add(-8 * number, 1) < UNITS:
            self.ran[number] += 1
            ran += 1
        if ran:
            waiting.add_done(STATE, worker, self.workers, number, ran, UNITS)

    def _await(self, worker: int, number: int, run: int) -> bool:
        if worker:
            waiting.leave(STATE, worker)
        if not waiting.spin_until_done(STATE, worker, self.workers, number, UNITS):
            waiting.sleep_until_done(STATE, self.workers, number, UNITS)
        assert self.ran[number] == UNITS, "not done"
        return worker == 0 or waiting.enter(STATE, worker, run)


@pytest.mark.parametrize("spin_ns", [0, 1])
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_no_wakeup_is_lost_in_random_orders_of_operations(
    workers: int, spin_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_SPINS_PER_CLOCK", 1)
    monkeypatch.setattr(waiting, "pause", lambda: None)
    runs = 2
    for seed in range(100):
        machine = Machine(seed)
        for name, operation in OPERATIONS.items():
            monkeypatch.setattr(waiting, name, operation.__get__(machine), raising=False)
        machine.memory[at(STATE, layout.SPIN_NS)] = spin_ns
        program, failed = Program(machine, workers), list[AssertionError]()

        def body(worker: int, program: Program = program, failed: list[AssertionError] = failed) -> None:
            try:
                program.serve(worker, runs) if worker else program.call(runs)
            except AssertionError as error:
                failed.append(error)

        def pool(body: Callable[[int], None] = body, machine: Machine = machine) -> None:
            body(0)
            machine.fetch_add(at(STATE, layout.GENERATION), 2)  # wakes those who never came: they find no run
            machine.unpark(at(STATE, layout.GENERATION), waiting.EVERYBODY)

        machine.run([pool, *(lambda worker=worker: body(worker) for worker in range(1, workers))])
        assert not failed, (seed, failed)
        assert machine.memory[at(STATE, layout.SLEEPERS)] == 0


def test_a_worker_that_never_comes_costs_nothing() -> None:
    # Worker 1 counts as serving, but no thread is it: it is on no core for ever.
    team = pool.ThreadPool(2)
    team._state[layout.SERVING] = 1
    x, outputs = np.arange(64, dtype=np.int64), list[np.ndarray]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autotune.runtime.cpu.instance.pool_of", lambda count: team)
        module = Module(chain(40, 64, body="mirror"), 2)

    def call() -> None:
        for run in range(20):
            outputs.append(module(x + run)[0])

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(PATIENCE_S)
    assert not caller.is_alive(), "the caller waits for a worker that has none of its tiles"
    assert [output.tolist() for output in outputs] == [(x + run + 40).tolist() for run in range(20)]
    # And when it does come, it takes part.
    team._state[layout.SERVING] = 0
    events = [module.timeline([x]) for _ in range(50)]
    assert team.serving == 1
    assert all(sum(event.tiles for event in run) == 40 * 64 for run in events)
    module.close()
    team.stop()


def test_workers_that_come_late_find_no_program_that_was_freed() -> None:
    # More workers than cores: most come when the run is over, and the program's memory another's.
    x = np.arange(64, dtype=np.int64)
    for length in range(1, 150):
        with Module(chain(length, 64, body="mirror"), 8) as module:
            assert module(x)[0].tolist() == (x + length if length % 2 == 0 else x[::-1] + length).tolist()


@pytest.mark.parametrize("spin_ns", [0, 1, 2000, 100_000])
@pytest.mark.parametrize("workers", [2, 3, 4, 8, 16])
def test_workers_that_take_their_time_meet(
    workers: int, spin_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each tile reads what another wrote in the command before, after a delay of its own.
    monkeypatch.setattr(pool, "_SPIN_NS", spin_ns)
    monkeypatch.setattr(pool, "usable_cores", lambda: workers)
    team = pool.ThreadPool(workers)
    monkeypatch.setattr("autotune.runtime.cpu.instance.pool_of", lambda count: team)
    x = np.arange(64, dtype=np.int64)
    with Module(chain(40, 64, body="late"), workers) as module:
        outputs: list[np.ndarray] = []

        def call() -> None:
            for run in range(10):
                outputs.append(module(x + run)[0])

        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        caller.join(PATIENCE_S)
        assert not caller.is_alive(), "a wake-up was lost"
        team.stop()
    assert [output.tolist() for output in outputs] == [(x + run + 40).tolist() for run in range(10)]


def test_patience_shrinks_by_waits_that_end_asleep_and_returns_with_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, patience = Machine(0), at(worker_at(STATE, 1), layout.PATIENCE_NS)
    for name, operation in OPERATIONS.items():
        monkeypatch.setattr(waiting, name, operation.__get__(machine), raising=False)
    monkeypatch.setattr(waiting, "pause", lambda: None)
    machine.memory[at(STATE, layout.SPIN_NS)] = machine.memory[patience] = 64
    seen = []

    def body() -> None:
        for ran in (0, 0, 0, 1, 0):
            machine.memory[waiting._done_at(STATE, 0, 1)] = ran * (layout.CLAIMS + 1)
            seen.append((waiting.spin_until_done(STATE, 1, 2, 1, 1), machine.memory[patience]))

    machine.run([body])
    assert seen == [(False, 16), (False, 4), (False, 2), (True, 64), (False, 16)]


def test_workers_spin_longer_for_a_caller_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that comes soon is awaited longer, unless this worker's patience says that cores are contested."""
    machine, own = Machine(0), worker_at(STATE, 1)
    for name, operation in OPERATIONS.items():
        monkeypatch.setattr(waiting, name, operation.__get__(machine), raising=False)
    monkeypatch.setattr(waiting, "pause", lambda: None)
    most = machine.memory[at(STATE, layout.SPIN_NS)] = 64
    seen = []

    def body() -> None:
        for gap, patience in ((most, most), (5 * most, most), (most, most // 4)):
            machine.memory[at(own, layout.GAP_NS)] = gap
            machine.memory[at(own, layout.PATIENCE_NS)] = patience
            seen.append(waiting._patience_between_runs(STATE, own))
        machine.memory[at(STATE, layout.GENERATION)] = 1
        assert waiting.await_run(STATE, 1, 0) == 1
        seen.append(machine.memory[at(own, layout.GAP_NS)])

    machine.run([body])
    assert seen == [5 * most, most, most // 4, 1]


def test_a_worker_that_loses_its_core_while_it_spins_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([0, 1000, 2000, 2000 + waiting._LOST_NS + 1])
    monkeypatch.setattr(waiting, "load_acquire", lambda address: 0, raising=False)
    monkeypatch.setattr(waiting, "pause", lambda: None)
    monkeypatch.setattr(waiting, "clock_ns", lambda: next(looks), raising=False)
    assert not waiting._awaited(0, 1, 1 << 40)
    assert next(looks, None) is None


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
        sleepers = module.loaded._whole.pool._state[layout.SLEEPERS :]
        over = threading.Event()

        def call() -> None:
            while not over.is_set():
                assert module(np.array([4]))[0][0] == 5

        caller = threading.Thread(target=call)
        caller.start()
        try:  # the caller sleeps too where the other one is late
            wait_until(lambda: sleepers[0], "the caller sleeps", 0.0001)
        finally:
            over.set()
            caller.join()
