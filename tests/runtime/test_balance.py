"""Shares: ranges that cover all tiles, shares that follow what workers did, and the right answers with any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.runtime.cpu import balance, layout
from autotune.runtime.cpu.balance import TILES_OF_A_WINDOW
from autotune.runtime.cpu.pool import ThreadPool, pool_of
from autotune.runtime.module import Module
from results.bench.slowed_workers import SlowedWorkers
from tests.patience import wait_until
from tests.runtime.kernels import binding, image, spec
from tests.runtime.test_overlap import SIZE, STEP, VECTORS, Steps, graph, in_order

TILES = (40, 7, 2, 1)
"""Of the commands whose event rows are made up."""
WEIGHTS = st.lists(st.integers(1, 1000), min_size=2, max_size=5)


class Memory:
    """Words of one array, for functions of the executor that Python runs; a pool's shares, a program and its events."""

    def __init__(self, workers: int, patch: pytest.MonkeyPatch) -> None:
        self.workers = workers
        self.state = 0
        shares_at = layout.shares_at(workers)
        self.program = 8 * layout.state_slots(workers)
        self.commands = self.program + 8 * layout.HEADER_SLOTS
        self.events = self.commands + 8 * layout.COMMAND_SLOTS * len(TILES)
        end = self.events + 8 * layout.EVENT_SLOTS * workers * len(TILES)
        self.words = np.zeros(end // 8, np.int64)
        self.shares = 8 * shares_at
        self.bounds = self.words[shares_at + layout.SHARES :][: workers + 1]
        self.set([1] * workers)
        self.words[shares_at + layout.SHARES + workers + 1 :][:workers] = np.diff(self.bounds)
        self.words[shares_at + layout.WINDOW] = TILES_OF_A_WINDOW
        header = self.words[self.program // 8 :]
        header[layout.COMMANDS], header[layout.COUNT] = self.commands, len(TILES)
        header[layout.SHARED_TILES] = sum(tiles for tiles in TILES if tiles > 1)
        for number, tiles in enumerate(TILES):
            self.words[self.commands // 8 + number * layout.COMMAND_SLOTS + layout.TILES] = tiles
        patch.setattr(balance, "load", lambda address: int(self.words[address // 8]))
        patch.setattr(balance, "store", self._store)

    def _store(self, address: int, value: int) -> None:
        self.words[address // 8] = value

    def set(self, weights: Sequence[int]) -> None:
        """Shares in proportion to these."""
        bounds = np.concatenate([[0], np.cumsum(weights)])
        self.bounds[:] = [layout.WHOLE * int(bound) // int(bounds[-1]) for bound in bounds]

    def tiles(self, count: int) -> list[int]:
        """Return each worker's first share of a command."""
        bounds = [balance.first_tile(self.shares, count, worker) for worker in range(self.workers + 1)]
        assert (bounds[0], bounds[-1]) == (0, count)
        return np.diff(bounds).tolist()

    def sample(self, tile_ns: Sequence[float]) -> list[float]:
        """Learn from a run in which each worker ran its own range and took so long a tile; the shares after it."""
        rows = self.words[self.events // 8 :].reshape(len(TILES), self.workers, layout.EVENT_SLOTS)
        for row, count in zip(rows, TILES, strict=True):
            row[:, layout.TILES_RUN] = self.tiles(count)
            row[:, layout.BUSY] = row[:, layout.TILES_RUN] * np.asarray(tile_ns)
        balance.learn(self.state, self.program, self.workers, self.events)
        return (np.diff(self.bounds) / layout.WHOLE).tolist()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Two workers."""
    return Memory(2, monkeypatch)


@settings(max_examples=200, deadline=None)
@given(WEIGHTS, st.integers(1, 5000))
def test_ranges_of_any_shares_cover_all_tiles_in_proportion(weights: list[int], count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        memory = Memory(len(weights), patch)
        memory.set(weights)
        found = memory.tiles(count)
    assert min(found) >= 0
    for tiles, weight in zip(found, weights, strict=True):
        assert abs(tiles - count * weight / sum(weights)) <= 2


def test_a_worker_gets_one_tile_more_only_if_it_is_done_with_it_first(pair: Memory) -> None:
    pair.set([3, 1])  # the last of four tiles takes the slow one as long as four of the fast one's
    assert [pair.tiles(count) for count in (1, 2, 3, 4, 7, 8)] == [
        [1, 0],
        [2, 0],
        [3, 0],
        [3, 1],
        [6, 1],
        [6, 2],
    ]


def test_shares_follow_the_speed_and_come_to_rest(pair: Memory) -> None:
    found = [pair.sample([1000, 3000]) for _ in range(40)]
    assert found[0] == [0.5, 0.5]  # one sample may be chance
    assert found[-1] == pytest.approx([0.75, 0.25], abs=0.5 / 16)
    assert len({tuple(each) for each in found}) < 8
    assert len({tuple(each) for each in found[20:]}) == 1


def test_shares_are_equal_again_once_the_workers_are(pair: Memory) -> None:
    for _ in range(20):
        pair.sample([4000, 1000])
    found = [pair.sample([1000, 1000]) for _ in range(20)]
    assert found[0][0] < 0.3
    assert found[-1] == [0.5, 0.5]


@pytest.mark.parametrize("tile_ns", [[1000, 1000], [1000, 1250], [1250, 1000], [1, 1], [10**9, 10**9]])
def test_workers_that_are_nearly_alike_have_equal_shares(tile_ns: list[int], pair: Memory) -> None:
    assert {tuple(pair.sample(tile_ns)) for _ in range(40)} == {(0.5, 0.5)}


def test_who_is_very_slow_keeps_enough_to_come_back(pair: Memory) -> None:
    for _ in range(60):
        found = pair.sample([1000, 10**9])
    assert 0.1 < found[1] < 0.15
    for _ in range(60):
        found = pair.sample([1000, 1000])
    assert found == [0.5, 0.5]


def test_samples_that_say_nothing_lead_back_to_equal_shares(pair: Memory) -> None:
    for _ in range(20):
        found = pair.sample([1000, 4000])
    assert found[1] < 0.3
    rows = pair.words[pair.events // 8 :]
    for _ in range(20):
        rows[:] = 0  # such as of a run that was cancelled
        balance.learn(pair.state, pair.program, 2, pair.events)
    assert pair.tiles(40) == [20, 20]


def test_one_run_in_several_is_sampled(pair: Memory) -> None:
    due = [balance.sample_due(pair.state, pair.program, 2) for _ in range(200)]
    assert sum(due) == 200 // -(-TILES_OF_A_WINDOW // 49)
    pair.words[layout.shares_at(2) + layout.WINDOW] = 0
    assert not any(balance.sample_due(pair.state, pair.program, 2) for _ in range(200))


def set_shares(pool: ThreadPool, weights: Sequence[int]) -> None:
    """Shares of a pool's workers, in proportion to these, that stay."""
    pool.balance(0)
    bounds = np.concatenate([[0], np.cumsum(weights)])
    pool._bounds[:] = [layout.WHOLE * int(bound) // int(bounds[-1]) for bound in bounds]


@pytest.fixture
def pools() -> Iterator[None]:
    """Pools, whose shares are equal and follow again afterwards."""
    yield
    for workers in (2, 3, 4, 8):
        pool_of(workers).balance()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(STEP, min_size=2, max_size=40),
    st.one_of(st.lists(st.sampled_from([0, 1, 3, 100]), min_size=n, max_size=n) for n in (2, 3, 4, 8)),
    st.integers(1, 4),
)
@pytest.mark.usefixtures("pools")
def test_random_graphs_compute_what_one_worker_does_with_any_shares(
    steps: Steps, weights: list[int], runs: int
) -> None:
    weights[0] += sum(weights) == 0
    y = np.zeros(VECTORS * SIZE, np.int64)
    with Module(graph(steps), len(weights)) as module:
        set_shares(module.loaded._whole.pool, weights)
        module.loaded._run(([], []), module.loaded._signature.given_outputs([y], ([], [])), runs)
    assert np.array_equal(y.reshape(VECTORS, SIZE), in_order(steps, runs))


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.usefixtures("pools")
def test_every_tile_runs_once_while_shares_move(workers: int) -> None:
    vector = binding("output", 1000)
    counting = image([("count", vector, vector, 1000)] * 3, outputs=(spec("y", 1000),))
    y = np.zeros(1000, np.int64)
    with Module(counting, workers) as module:
        module.loaded._whole.pool.balance(1)  # each run is sampled
        for run in range(100):
            bounds = module.loaded._whole.pool._bounds
            bounds[1:-1] = np.sort(np.random.default_rng(run).integers(0, layout.WHOLE, workers - 1))
            module.loaded._run(([], []), module.loaded._signature.given_outputs([y], ([], [])), 2)
    assert y.tolist() == [600] * 1000


@pytest.mark.usefixtures("pools")
def test_a_slow_worker_begins_with_less() -> None:
    y = binding("output", 64)
    made = image([("scratch", y, y, 64)] * 4, outputs=(spec("y", 64),), scratch_bytes=8)
    with Module(made, 2) as module:
        slowed, pool = SlowedWorkers(module.loaded._whole.program), module.loaded._whole.pool
        slowed.slow([1, 16])
        pool.balance(1)  # each run is sampled

        def balanced() -> bool:
            assert np.array_equal(module()[0], np.arange(64))
            return pool.shares[1] <= 0.3

        wait_until(balanced, "the slow worker has less", 0.0001)
        assert module.recording([]).steps[0].shares == pool.shares
