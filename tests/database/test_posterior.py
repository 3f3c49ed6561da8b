"""The evidence model: known posteriors, kin, and which option of several is used."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.database.posterior import (
    CERTAIN,
    INERTIA,
    KIN,
    OPTION,
    SESSION,
    LogDifference,
    Posterior,
    decided,
    posterior,
    scatter,
    standings,
    variance_of,
    variance_of_row,
)
from autotune.database.records import SAME_CODE, Comparison, Latency, Ratio


def row(name: str, ratio: float | None, created: float, *, won: bool = False, n: int = 9) -> Comparison:
    took = Latency(n, 100.0 * (ratio or 1.0), 100.0 * (ratio or 1.0), 0.0)
    return Comparison(name, "k", took, won, None if ratio is None else Ratio(ratio), created=created)


def test_one_measured_difference_has_the_posterior_of_the_textbook() -> None:
    prior = np.diag([0.02, 0.02])
    mean, spread = posterior([0.0, 0.0], prior, [LogDifference(0, 1, -0.1, 0.04)])
    assert mean == pytest.approx([-0.025, 0.025])  # half of the weight, split between the two
    assert spread[0, 0] + spread[1, 1] - 2 * spread[0, 1] == pytest.approx(0.02)


def test_measurements_are_pooled_whatever_their_order() -> None:
    rows = [(1.0, 0.9), (2.0, 1.1), (3.0, 0.95)]
    found = [
        standings({"site": [r for t, ratio in order for r in (row("a", None, t), row("b", ratio, t))]})
        for order in (rows, [(t, ratio) for (t, _), (_, ratio) in zip(rows, rows[::-1], strict=True)])
    ]
    first, second = ({one.name: one.posterior for one in each["site"].order} for each in found)
    assert first["b"].mean == pytest.approx(second["b"].mean)
    raw = float(np.mean([math.log(ratio) for _, ratio in rows]))
    history = {"site": [r for t, ratio in rows for r in (row("a", None, t), row("b", ratio, t))]}
    noise = scatter(history) * variance_of(9, 3) / 3
    difference = 2 * (KIN**2 + OPTION**2)
    assert first["b"].mean == pytest.approx(raw * difference / (difference + noise))
    assert first["a"] == CERTAIN


def test_an_option_tells_about_itself_at_other_sites() -> None:
    strong = [r for t in range(4) for r in (row("direct", None, t), row("fused", 0.7, t))]
    weak = [row("direct", None, 1.0), row("fused", 0.92, 1.0, n=1)]
    alone = standings({"b": weak})["b"].order
    together = standings({"a": strong, "c": strong, "b": weak})["b"].order
    assert alone[0].name == together[0].name == "fused"
    assert together[0].posterior.mean < alone[0].posterior.mean - 0.001


def test_other_regions_or_spaces_say_nothing() -> None:
    old = [Comparison("b", "old", Latency(9, 10.0, 10.0, 0.0), True, Ratio(0.1), created=1.0)]
    now = [row("a", None, 2.0, won=True), row("b", 1.1, 2.0)]
    assert [one.name for one in standings({"s": [row("a", None, 1.0), *old, *now]})["s"].order] == ["a", "b"]


def test_what_failed_last_is_not_used() -> None:
    failed = Comparison("b", "k", message="crashed", created=2.0)
    found = standings({"s": [row("a", None, 1.0), row("b", 0.5, 1.0), row("a", None, 2.0, won=True), failed]})
    assert [one.name for one in found["s"].order] == ["a"]
    assert found["s"].failed == (failed,)


@pytest.mark.parametrize(("gain", "used"), [(0.5 * INERTIA, "a"), (2 * INERTIA, "b")])
def test_a_change_must_be_worth_it(gain: float, used: str) -> None:
    assert decided({"a": CERTAIN, "b": Posterior(-gain, 0.001)}, "a") == used
    assert decided({"a": CERTAIN, "b": Posterior(-gain, 0.001)}, "gone") == "b"


def test_a_disturbed_comparison_counts_for_less() -> None:
    usual = row("b", 0.9, 1.0)
    disturbed = Comparison("b", "k", usual.latency, ratio=Ratio(0.9, (0.6, 1.4)))
    same = Comparison("b", "k", usual.latency, ratio=SAME_CODE)
    assert variance_of_row(same) < variance_of_row(usual) < variance_of_row(disturbed)


def test_an_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        true = rng.normal(0, math.sqrt(2 * (KIN**2 + OPTION**2)))
        moved = rng.normal(0, math.sqrt(2) * SESSION)  # in all comparisons of a session
        rows = list[Comparison]()
        for at in range(3):
            seen = math.exp(true + moved + rng.normal(0, math.sqrt(variance_of(9, 3))))
            rows += [row("a", None, at), row("b", seen, at)]
        known = {one.name: one.posterior for one in standings({"s": rows})["s"].order}
        over = known["b"].mean - known["a"].mean, known["b"].error + known["a"].error, known["b"].freedom
        low, high = Posterior(*over).ratio.interval or (0.0, 0.0)
        held.append(low <= math.exp(true) <= high)
    assert 0.92 <= np.mean(held) <= 0.98
