"""The native executor: every tile once, barriers, scratch memory, threads."""

from __future__ import annotations

import _thread
import os
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.pool import ThreadPool, pool_of
from autotune.runtime.module import Module
from tests.patience import PATIENCE_S, wait_until
from tests.runtime.kernels import binding, chain, image, spec

THREADS = (1, 2, 3, 4)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 100, 1023])
def test_every_tile_runs_exactly_once(tiles: int, threads: int) -> None:
    vector = binding("output", tiles)
    counting = image([("count", vector, vector, tiles)] * 3, outputs=(spec("y", tiles),))
    counts = np.zeros(tiles, np.int64)
    with Module(counting, threads) as module:
        for _ in range(20):
            module(out=[counts])
    assert counts.tolist() == [60] * tiles


@pytest.mark.parametrize("threads", [2, 3])
def test_a_dependent_chain_is_right_over_many_runs(threads: int) -> None:
    x = np.arange(64, dtype=np.int64)
    with Module(chain(10, 64, body="mirror"), threads) as module:
        out = np.zeros(64, np.int64)
        for run in range(2000 if threads == 2 else 100):
            x[0] = run
            module(x, out=[out])
            assert np.array_equal(out, x + 10)


def test_a_dependent_chain_is_right_in_ten_thousand_native_runs() -> None:
    # 10,000 runs of y = f(y): one lost or early tile anywhere changes the sum.
    place = binding("output", 64)
    steps = [("mirror", place, binding("arena", 64), 64), ("mirror", binding("arena", 64), place, 64)]
    folded = image(steps, outputs=(spec("y", 64),), arena_bytes=512)
    with Module(folded, 2) as module:
        outputs = module.loaded._signature.fresh_outputs()
        (y,) = outputs[0]
        y[:] = 0
        module.loaded._run(([], []), outputs, 10_000)
    assert y.tolist() == [20_000] * 64


STEP = st.tuples(
    st.sampled_from(["count", "increment"]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([1, 1, 2, 3, 7, 16, 40]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=12), st.sampled_from(THREADS), st.integers(1, 3))
def test_random_programs_do_what_a_loop_does(
    steps: list[tuple[str, int, int, int]], threads: int, runs: int
) -> None:
    # Four vectors of 40 elements in one output; a step reads one and writes one.
    size, expected = 40, np.zeros((4, 40), np.int64)
    recorded = []
    for body, source, target, tiles in steps:
        places = [binding("output", size, offset=8 * size * v) for v in (source, target)]
        recorded.append((body, *places, tiles))
    for _ in range(runs):
        for body, source, target, tiles in steps:
            read = target if body == "count" else source
            expected[target, :tiles] = expected[read, :tiles] + 1
    y = np.zeros(4 * size, np.int64)
    with Module(image(recorded, outputs=(spec("y", 4 * size),)), threads) as module:
        for _ in range(runs):
            module(out=[y])
    assert np.array_equal(y.reshape(4, size), expected)


@pytest.mark.parametrize("threads", THREADS)
def test_single_tile_commands_mix_with_parallel_ones(threads: int) -> None:
    first, whole = binding("output", 1), binding("output", 64)
    steps = [
        ("count", first, first, 1),
        ("count", whole, whole, 64),
        ("count", first, first, 1),
        ("count", first, first, 1),
        ("count", whole, whole, 64),
        ("count", first, first, 1),
    ]
    y = np.zeros(64, np.int64)
    with Module(image(steps, outputs=(spec("y", 64),)), threads) as module:
        for _ in range(100):
            module(out=[y])
    assert y.tolist() == [600] + [200] * 63


def test_parallel_tiles_wait_for_the_single_tile_before_them() -> None:
    # Element 63 is written slowly by worker 0 and read by the worker that owns the last tiles.
    steps = [
        ("slow", binding("input", 1), binding("arena", 1, offset=8 * 63), 1),
        ("increment", binding("arena", 64), binding("output", 64), 64),
    ]
    made = image(steps, inputs=(spec("x", 1),), outputs=(spec("y", 64),), arena_bytes=512)
    with Module(made, 2) as module:
        for value in range(50):
            assert module(np.array([value]))[0][63] == value + 1


@pytest.mark.parametrize("threads", THREADS)
def test_each_worker_has_scratch_memory_of_its_own(threads: int) -> None:
    y = binding("output", 512)
    shared = image([("scratch", y, y, 512)] * 2, outputs=(spec("y", 512),), scratch_bytes=8)
    with Module(shared, threads) as module:
        for _ in range(10):
            (got,) = module()
            assert np.array_equal(got, np.arange(512))


def test_scratch_memory_is_aligned_and_apart() -> None:
    y = binding("output", 16)
    steps = [("slow", y, y, 16), ("where", y, y, 16)]
    made = image(steps, outputs=(spec("y", 16),), scratch_bytes=100)
    seen: set[int] = set()
    with Module(made, 2) as module:

        def both_worked() -> bool:
            seen.update(module()[0].tolist())
            return len(seen) >= 2

        wait_until(both_worked, "both workers take a part")
    low, high = sorted(seen)
    assert low % 64 == 0
    assert high % 64 == 0
    assert high - low >= 128


def test_threads_may_call_one_module_at_once() -> None:
    wrong: list[int] = []
    with Module(chain(5, 64), 2) as module:

        def call(start: int) -> None:
            for value in range(start, start + 300):
                (y,) = module(np.full(64, value, np.int64))
                if not (y == value + 5).all():
                    wrong.append(value)

        callers = [threading.Thread(target=call, args=(1000 * i,)) for i in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert wrong == []


def test_two_modules_share_a_pool() -> None:
    wrong: list[int] = []
    with Module(chain(3, 64), 2) as three, Module(chain(7, 100), 2) as seven:
        assert three.loaded._whole.pool is seven.loaded._whole.pool

        def call(module: Module, size: int, add: int) -> None:
            for value in range(500):
                (y,) = module(np.full(size, value, np.int64))
                if not (y == value + add).all():
                    wrong.append(value)

        other = threading.Thread(target=call, args=(three, 64, 3))
        other.start()
        call(seven, 100, 7)
        other.join()
    assert wrong == []


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gil_is_released_during_a_run(threads: int) -> None:
    started, ticks, stop = threading.Event(), [0], threading.Event()

    def count() -> None:
        started.set()
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0)

    y = binding("output", 8)
    with Module(image([("slow", y, y, 8)], outputs=(spec("y", 8),)), threads) as module:
        counter = threading.Thread(target=count)
        counter.start()
        started.wait()
        before = ticks[0]
        for _ in range(10):
            module()
        during = ticks[0] - before
        stop.set()
        counter.join()
    # Ten runs are ten switches at most, were the GIL held.
    assert during > 20


def test_work_is_stolen_from_a_worker_that_is_held_up() -> None:
    # Whoever has tile 0 of worker 0's range is held until tile 4 of that range is done: only the other can do it.
    y = binding("output", 16)
    with Module(image([("held", y, y, 16)], outputs=(spec("y", 16),)), 2) as module:
        for _ in range(20):
            (got,) = module(out=[np.zeros(16, np.int64)])
            assert got.tolist() == [1] * 16
        events = [event for _ in range(3) for event in module.timeline([])]
    assert sum(event.tiles for event in events) == 3 * 16
    assert all(0 <= event.tiles_stolen <= event.tiles for event in events)


def test_idle_workers_sleep_and_wake() -> None:
    x = np.zeros(64, np.int64)
    with Module(chain(2, 64), 3) as module:
        for _ in range(3):
            assert (module(x)[0] == 2).all()
            wait_until(lambda: module.loaded._whole.pool._state[layout.PARKED] >= 2, "the workers sleep")


def test_a_pool_stops_and_starts_again() -> None:
    with Module(chain(2, 64), 4) as module:
        x = np.zeros(64, np.int64)
        for _ in range(3):
            assert (module(x)[0] == 2).all()
            assert module.loaded._whole.pool.serving == 3
            module.loaded._whole.pool.stop()
            assert module.loaded._whole.pool.serving == 0


def test_starts_made_at_once_give_each_worker_one_thread() -> None:
    pool = ThreadPool(4)
    starts = [threading.Thread(target=pool.start) for _ in range(8)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert pool.serving == 3
    pool.stop()
    assert pool.serving == 0


def test_a_thread_that_begins_after_the_end_of_its_pool_leaves_memory_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, late = ThreadPool(2), []
    monkeypatch.setattr(_thread, "start_new_thread", lambda *call: late.append(call))
    pool._start(1)
    monkeypatch.undo()
    pool.stop()
    state, before, kept = pool._state, pool._state.copy(), weakref.ref(pool)
    del pool
    assert kept() is not None  # or the thread would write to memory that is given back
    ((function, arguments),) = late
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert np.array_equal(state, before)


def test_threads_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, start = ThreadPool(4), _thread.start_new_thread
    monkeypatch.setattr("autotune.runtime.cpu.instance.pool_of", lambda workers: pool)
    with Module(chain(2, 64), 4) as module:

        def refuse(function: Callable[..., None], arguments: tuple[int, ...]) -> None:
            if arguments[0] == 3:
                raise RuntimeError("can't start new thread")
            start(function, arguments)

        monkeypatch.setattr(_thread, "start_new_thread", refuse)
        with pytest.raises(UsageError, match="cannot start thread 4 of 4: can't start new thread"):
            module(np.zeros(64, np.int64))
        monkeypatch.undo()
        assert (module(np.zeros(64, np.int64))[0] == 2).all()
        pool.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_with_threads_of_its_own() -> None:
    x = np.zeros(64, np.int64)
    with Module(chain(2, 64), 2) as module:
        module(x)
        child = os.fork()
        if child == 0:
            os._exit(0 if (module(x)[0] == 2).all() else 1)
        ends = list[int]()

        def ended() -> bool:
            pid, status = os.waitpid(child, os.WNOHANG)
            ends.extend([status] if pid else [])
            return pid == child

        try:
            wait_until(ended, "the child ends", 0.01)
        finally:
            if not ends:
                os.kill(child, 9)
                os.waitpid(child, 0)
        assert ends == [0]
        assert (module(x)[0] == 2).all()


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_a_wrong_number_of_threads_is_refused(threads: int) -> None:
    with pytest.raises(UsageError, match=f"threads must be from 1 to 1024, got {threads}"):
        Module(chain(1, 4), threads)


def test_pools_are_shared_by_worker_count() -> None:
    assert pool_of(2) is pool_of(2)
    assert pool_of(2) is not pool_of(3)
    assert ThreadPool(2) is not pool_of(2)
