"""Who is faster, by pairs: known ratios and intervals, and how often they hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, quantile_test

from autotune.database import Ratio
from autotune.tuning.compare.paired import (
    CONFIDENCE,
    ERROR_RATE,
    across_processes,
    least_processes,
    ratio,
    slower,
    total,
)

DEFAULT = np.array([100.0, 104.0, 150.0, 101.0, 100.0, 100.0, 102.0, 99.0])
FIRST = np.arange(8) < 1
SOME = np.arange(8) < 3
ONES = np.ones(24)


def test_rates() -> None:
    assert (ERROR_RATE, CONFIDENCE) == (0.05, 0.95)


def test_the_median_of_the_processes_is_the_ratio_and_each_process_counts_once() -> None:
    before = np.array([100.0, 200.0, 100.0, 50.0, 100.0, 100.0])
    after = before * [0.5, 0.9, 0.7, 2.0, 1.5, 1.6]
    assert ratio(after, before, each=3) == Ratio((0.7 + 1.6) / 2, None)
    assert ratio(after, before, each=2) == Ratio(pytest.approx(1.35), None)  # 0.7, 1.35, 1.55
    longer = np.concatenate([before, [1.0, 1.0]])  # the incumbent was read in more rounds
    assert ratio(after, longer, each=3) == ratio(after, before, each=3)
    assert ratio(0.5 * ONES, ONES, each=4) == Ratio(0.5, (0.5, 0.5))  # six processes
    assert ratio(0.5 * ONES, ONES, each=5) == Ratio(0.5, None)  # five


@pytest.mark.parametrize(("count", "rank"), [(5, 0), (6, 1), (8, 1), (9, 2), (12, 3), (25, 8)])
def test_the_interval_goes_from_a_rank_to_the_same_counted_from_above(count: int, rank: int) -> None:
    """Ranks of the sign test at 95 %, from the tables of the binomial distribution."""
    ratios = np.arange(1.0, count + 1)
    found = ratio(ratios[::-1], np.ones(count))
    assert found.median == (count + 1) / 2
    assert found.interval == ((rank, count + 1 - rank) if rank else None)


def test_across_processes_takes_medians_of_runs_then_of_rounds_then_of_processes() -> None:
    before = np.array([[10.0, 10.0, 90.0], [20.0, 20.0, 2.0], [10.0, 10.0, 10.0]])
    factors = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
    pairs = []
    for factor in factors:
        after = before * np.array([[factor], [factor], [7.0]])  # one bad round of three
        pairs.append((before, after))
    assert across_processes(pairs) == Ratio(pytest.approx(0.8), pytest.approx((0.5, 1.1)))
    assert across_processes(pairs[:5]).interval is None


def test_parts_without_an_interval_do_not_change_a_sum() -> None:
    assert total([(30.0, Ratio(0.5, None)), (70.0, Ratio(0.8, (0.7, 0.9)))]) == Ratio(
        pytest.approx(0.86), pytest.approx((0.79, 0.93))
    )
    assert total([(30.0, None)]) == Ratio(1.0, (1.0, 1.0))
    lop = total([(50.0, Ratio(0.8, (0.7, 0.84))), (50.0, Ratio(0.9, (0.82, 1.0)))])
    assert lop == Ratio(
        pytest.approx(0.85),
        pytest.approx((0.85 - 0.5 * np.hypot(0.1, 0.08), 0.85 + 0.5 * np.hypot(0.04, 0.1))),
    )


@pytest.mark.parametrize(
    ("candidates", "losses", "least"), [(1, 0, 6), (2, 0, 7), (4, 0, 8), (1, 1, 9), (2, 1, 10), (2, 2, 13)]
)
def test_least_processes_are_those_of_the_binomial_distribution(
    candidates: int, losses: int, least: int
) -> None:
    assert least_processes(candidates, losses) == least
    assert least_processes(0) == least_processes(1)
    level = ERROR_RATE / candidates
    assert binomtest(losses, least).pvalue <= level < binomtest(losses, least - 1).pvalue


@pytest.mark.parametrize("asked", [1, 4])
def test_slower_is_what_surely_takes_so_much_more(asked: int) -> None:
    enough = {1: 5, 4: 7}[asked]  # 1/32 <= 5 %, 1/128 <= 1.25 %
    assert slower(1.2 * ONES[:enough], ONES, 1, by=0.1, asked=asked)
    assert not slower(1.2 * ONES[: enough - 1], ONES, 1, by=0.1, asked=asked)
    assert not slower(1.1 * ONES, ONES, 1, by=0.1, asked=asked)
    assert not slower(1.05 * ONES, ONES, 1, by=0.1, asked=asked)
    assert slower(1.101 * ONES, ONES, 1, by=0.1, asked=asked)
    assert slower(1.2 * ONES[: 2 * enough], ONES, 2, by=0.1, asked=asked)
    assert not slower(1.2 * ONES[: 2 * enough - 2], ONES, 2, by=0.1, asked=asked)
    once = np.where(np.arange(24) < 1, 0.5, 1.2)
    assert slower(once, ONES, 1, by=0.1, asked=asked)
    assert not slower(once[:enough], ONES, 1, by=0.1, asked=asked)


def test_intervals_hold_the_true_ratio_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    found = [ratio(0.9 * np.exp(rng.normal(0, 0.1, 12)), np.exp(rng.normal(0, 0.1, 12))) for _ in range(200)]
    held = [r.interval is not None and r.interval[0] <= 0.9 <= r.interval[1] for r in found]
    assert np.mean(held) >= 0.95
    assert ratio(0.5 * DEFAULT[:5], DEFAULT[:5]).interval is None


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 8, 9, 12, 25, 40])
def test_intervals_are_those_of_scipy(count: int) -> None:
    ratios = np.exp(np.random.default_rng(count).normal(0, 0.1, count))
    low, high = quantile_test(ratios, q=1.0, p=0.5).confidence_interval(CONFIDENCE)
    expected = None if np.isnan(low) or np.isnan(high) else (low, high)
    assert ratio(ratios, np.ones(count)).interval == expected


def test_a_process_counts_once_however_often_it_reads() -> None:
    rng = np.random.default_rng(3)

    def read(processes: int) -> Ratio:
        shifts = np.exp(rng.normal(0, 0.05, processes))
        pairs = [(np.full((50, 4), 100.0), 100.0 * s * np.exp(rng.normal(0, 0.01, (50, 4)))) for s in shifts]
        return across_processes(pairs)

    assert read(5).interval is None
    assert np.mean([not read(9).changed for _ in range(300)]) >= 0.95


def test_the_change_of_a_sum_has_the_shares_of_its_parts() -> None:
    found = total([(30.0, Ratio(0.8, (0.7, 0.9))), (10.0, Ratio(0.5, (0.5, 0.5))), (60.0, None)])
    assert found.median == pytest.approx(0.89)
    assert found.interval == pytest.approx((0.86, 0.92))
