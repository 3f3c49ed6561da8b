"""Budgets: what they accept, and when they are spent."""

from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.tuning.budget import Budget, Meter


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("10m", 600.0), ("8h", 28800.0), ("1h30m", 5400.0), ("1.5m", 90.0), ("1d", 86400.0)],
)
def test_time_budgets(text: str, seconds: float) -> None:
    assert Budget.parse(text).limit_s == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "-5m", "10m 5s", "0s"])
def test_what_is_no_time_budget(text: str) -> None:
    with pytest.raises(UsageError):
        Budget.parse(text)


def test_a_budget_needs_a_positive_limit() -> None:
    with pytest.raises(UsageError, match="needs trials="):
        Budget()
    with pytest.raises(UsageError, match="got trials=0"):
        Budget(trials=0)
    assert Budget(hours=1, minutes=2, seconds=3).limit_s == 3723
    assert str(Budget(trials=5, minutes=1)) == "5 trials or 60 s"


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
