"""Budgets: what they accept, and when they are spent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.tuning.jobs.budget import Budget, Meter


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("10m", 600.0), ("8h", 28800.0), ("1h30m", 5400.0), ("1.5m", 90.0), ("1d", 86400.0)],
)
def test_time_budgets(text: str, seconds: float) -> None:
    assert Budget(text).limit_s == seconds
    assert Budget.of(text) == Budget(text)


@pytest.mark.parametrize("seconds", [60, 1.5, np.float32(60.0), np.int64(7)])
def test_a_number_is_seconds(seconds: Any) -> None:
    assert Budget.of(seconds).limit_s == Budget(seconds=float(seconds)).limit_s


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "-5m", "10m 5s", "0s"])
def test_what_is_no_time_budget(text: str) -> None:
    with pytest.raises(UsageError):
        Budget(text)


@pytest.mark.parametrize("value", [True, {"trials": 3}, b"2m", 1j])
def test_other_values_are_no_budget(value: Any) -> None:
    with pytest.raises(UsageError, match=r"not a time budget: .*; write 90s, 10m, 8h or 1h30m"):
        Budget.of(value)


@pytest.mark.parametrize(
    "budget",
    [
        Budget("8h"),
        Budget("1h30m"),
        Budget("90s", trials=5),
        Budget(trials=7),
        Budget("0.5s", per_workload=3),
    ],
)
def test_the_repr_of_a_budget_makes_it_again(budget: Budget) -> None:
    assert eval(repr(budget)) == budget
    assert replace(budget, trials=9).limit_s == budget.limit_s


def test_a_budget_needs_a_positive_limit() -> None:
    with pytest.raises(UsageError, match="needs trials="):
        Budget()
    with pytest.raises(UsageError, match="got trials=0"):
        Budget(trials=0)
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="a budget must be positive"):
            Budget.of(seconds)
    assert Budget(hours=1, minutes=2, seconds=3).limit_s == 3723
    assert str(Budget(trials=5, minutes=1)) == "5 trials or 1m"


def test_a_meter_counts_trials_and_the_time_of_all_sessions() -> None:
    now = 100.0
    meter = Meter(Budget(trials=3, seconds=10), trials=1, before_s=4.0, clock=lambda: now)
    assert (meter.trials_left, meter.seconds_left, meter.spent) == (2, 6.0, False)
    now = 105.0
    meter.reserve_s = 1.0
    assert (meter.elapsed_s, meter.session_s, meter.seconds_left, meter.spent) == (9.0, 5.0, 0.0, True)
    meter.reserve_s = 0.0
    assert not meter.spent
    meter.trials = 3
    assert meter.spent
    assert Meter(Budget(trials=1)).seconds_left == float("inf")
    assert Meter(Budget(seconds=1)).trials_left == float("inf")
