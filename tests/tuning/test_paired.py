"""Who is faster, by pairs: known ratios and intervals, and how often equals change places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, quantile_test

from autotune.database import Ratio
from autotune.tuning.compare import paired
from autotune.tuning.compare.paired import (
    CONFIDENCE,
    ERROR_RATE,
    MARGIN,
    PLAN_MARGIN,
    across_processes,
    fastest,
    hopeless,
    least_processes,
    ratio,
    slower,
    total,
)

DEFAULT = np.array([100.0, 104.0, 150.0, 101.0, 100.0, 100.0, 102.0, 99.0])
FIRST = np.arange(8) < 1
SOME = np.arange(8) < 3
ONES = np.ones(24)


def test_margins_and_rates() -> None:
    assert (MARGIN, PLAN_MARGIN, ERROR_RATE, CONFIDENCE) == (0.02, 0.01, 0.05, 0.95)


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


def test_who_wins_needs_the_margin_and_not_luck_alone() -> None:
    assert fastest([ONES, (1 - MARGIN) * ONES]) == 0  # by less than the margin is not worth it
    assert fastest([ONES, (1 - MARGIN - 0.001) * ONES]) == 1
    assert fastest([ONES, 0.995 * ONES], margin=0.001) == 1
    assert fastest([ONES, 0.9 * ONES, 0.8 * ONES, 0.85 * ONES]) == 2
    assert fastest([ONES, None, None]) == 0
    assert fastest([ONES[:6], 0.5 * ONES[:6]]) == 1
    assert fastest([ONES[:6], 0.5 * ONES[:6], None]) == 0  # six are too few for two candidates
    assert fastest([ONES[:12], 0.5 * ONES[:12]], each=2) == 1
    assert fastest([ONES[:12], 0.5 * ONES[:12]], each=3) == 0


def test_a_ratio_of_just_one_is_no_win_of_either() -> None:
    even = np.array([1.0] * 6)
    assert paired._sign_test(even) == pytest.approx(2 / 64)  # none is below 1
    assert paired._sign_test(np.array([0.9, 0.9, 0.9, 1.1, 1.1, 1.1])) == 1.0


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


def test_hopeless_is_who_lost_too_often_or_gains_less_than_half_the_margin() -> None:
    six = np.full(6, 0.9)
    assert not hopeless(six, ONES, 1, losses=0)
    assert hopeless(np.where(np.arange(6) < 1, 1.0, 0.9), ONES, 1, losses=0)  # as slow is a loss
    assert not hopeless(np.where(np.arange(6) < 1, 1.0, 0.9), ONES, 1, losses=1)
    assert hopeless(np.where(np.arange(6) < 2, 1.5, 0.9), ONES, 1, losses=1)
    assert hopeless(np.full(6, 1 - MARGIN / 2 + 0.001), ONES, 1, losses=0)
    assert not hopeless(np.full(6, 1 - MARGIN / 2 - 0.001), ONES, 1, losses=0)
    assert not hopeless(np.full(6, 0.96), ONES, 1, losses=0, margin=0.06)
    assert hopeless(np.full(6, 0.98), ONES, 1, losses=0, margin=0.06)
    assert not hopeless(np.full(10, 1.5), ONES, 2, losses=0)  # five processes
    assert hopeless(np.full(12, 1.5), ONES, 2, losses=0)


@pytest.mark.parametrize(
    ("candidates", "winner"),
    [
        ([], 0),
        ([0.99 * DEFAULT], 0),
        ([0.9 * DEFAULT, 0.8 * DEFAULT], 2),
        ([None, 0.9 * DEFAULT], 2),
        ([np.where(FIRST, 0.5, 1.0) * DEFAULT], 0),  # lucky once
        ([np.where(FIRST, 1.1, 0.95) * DEFAULT], 0),  # its interval holds 1
        ([0.95 * DEFAULT], 1),
        ([0.95 * DEFAULT] * 6, 1),
        ([0.95 * DEFAULT] * 7, 0),  # one of seven is more likely to be lucky eight times
        ([np.where(SOME, 1.1, 0.8) * DEFAULT], 0),  # faster in five rounds of eight
        ([DEFAULT[2::-1], 0.9 * DEFAULT[:3]], 0),  # too few rounds
    ],
)
def test_the_incumbent_stays_unless_one_is_surely_faster(candidates: list[Any], winner: int) -> None:
    rounds = min([len(DEFAULT), *(len(c) for c in candidates if c is not None)])
    assert fastest([DEFAULT[:rounds], *candidates]) == winner


def test_nothing_wins_against_an_incumbent_that_failed() -> None:
    assert fastest([None, DEFAULT]) == 0


@pytest.mark.parametrize("count", [1, 4])
def test_equals_change_places_as_rarely_as_is_said(count: int) -> None:
    rng = np.random.default_rng(0)
    draws = [[np.exp(rng.normal(0, 0.2, 12)) for _ in range(count + 1)] for _ in range(300)]
    assert np.mean([fastest(series) > 0 for series in draws]) <= ERROR_RATE


@pytest.mark.parametrize("gain", [1.0, 0.97, 0.93])
def test_who_is_given_up_early_would_hardly_have_won(gain: float) -> None:
    rng, most, losses = np.random.default_rng(5), least_processes(2, losses=2), 2
    won, early = 0, 0
    for _ in range(200):
        ratios = np.exp(rng.normal(np.log(gain), 0.03, most))
        wins = fastest([np.ones(most), ratios, np.ones(most)]) == 1
        given_up = any(hopeless(ratios[:n], np.ones(most), 1, losses) for n in range(1, most))
        won += wins
        early += wins and given_up
    assert early <= 0.02 * 200
    assert won <= ERROR_RATE * 200 if gain == 1.0 else won > 0


def test_nobody_is_given_up_before_there_is_an_interval() -> None:
    slower = 1.2 * np.ones(6)
    assert not hopeless(slower[:5], np.ones(9), 1, losses=2)
    assert hopeless(slower, np.ones(9), 1, losses=2)
    assert ratio(slower, np.ones(9)) == Ratio(1.2, (1.2, 1.2))


def test_intervals_hold_the_true_ratio_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    found = [ratio(0.9 * np.exp(rng.normal(0, 0.1, 12)), np.exp(rng.normal(0, 0.1, 12))) for _ in range(200)]
    held = [r.interval is not None and r.interval[0] <= 0.9 <= r.interval[1] for r in found]
    assert np.mean(held) >= 0.95
    assert ratio(0.5 * DEFAULT[:5], DEFAULT[:5]).interval is None


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_as_many_processes_as_somebody_could_win_with(losses: int) -> None:
    for count in (1, 2, 4, 9):
        least = least_processes(count, losses)
        ratios = np.where(np.arange(least) < losses, 1.5, 0.5)
        assert fastest([np.ones(least), *[ratios] * count]) == 1
        assert fastest([np.ones(least - 1), *[ratios[:-1]] * count]) == 0


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 8, 9, 12, 25, 40])
def test_intervals_and_p_values_are_those_of_scipy(count: int) -> None:
    ratios = np.exp(np.random.default_rng(count).normal(0, 0.1, count))
    low, high = quantile_test(ratios, q=1.0, p=0.5).confidence_interval(CONFIDENCE)
    expected = None if np.isnan(low) or np.isnan(high) else (low, high)
    assert ratio(ratios, np.ones(count)).interval == expected
    for less in range(count + 1):
        found = paired._sign_test(np.where(np.arange(count) < less, 0.9, 1.1))
        assert found == pytest.approx(binomtest(less, count).pvalue)


def test_a_winner_is_never_said_to_be_no_change() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        series = [np.exp(rng.normal(0, 0.05, 12)), *(np.exp(rng.normal(-0.04, 0.05, 12)) for _ in range(3))]
        if winner := fastest(series):
            assert ratio(series[winner], series[0]).changed


def test_rounds_of_a_process_are_no_readings_of_their_own() -> None:
    """The place of code and arrays makes 5 % in each process: many rounds in few of them prove nothing."""
    rng = np.random.default_rng(4)

    def winners(processes: int, each: int, counted: int) -> float:
        """Return how often equals win, if so many rounds are taken for one process."""
        found = []
        for _ in range(300):
            shifts = np.repeat(np.exp(rng.normal(0, 0.05, processes)), each)
            mine = shifts * np.exp(rng.normal(0, 0.01, processes * each))
            found.append(fastest([np.ones(len(mine)), mine], counted) > 0)
        return float(np.mean(found))

    assert winners(2, 10, counted=1) > 2 * ERROR_RATE
    assert winners(2, 10, counted=10) == 0.0
    assert winners(7, 3, counted=3) <= ERROR_RATE


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
