"""The Pareto front of runs: every point is either on it or dominated by one that is."""

from __future__ import annotations

import random

import pytest

from autotune.database import Footprint, Origin, Ratio
from autotune.database.front import FrontPoint, FrontReading, front, points
from tests.database.examples import run


def point(ratio: float, memory: int, artifact: int, number: int = 1) -> FrontPoint:
    found = run(f"t{number}", 1.0, id=number)
    return FrontPoint(found, Footprint(memory, artifact), Ratio(ratio), FrontReading.INSIDE)


def test_the_fastest_comes_first_and_what_is_beaten_is_left_out() -> None:
    fast, small, beaten = point(0.8, 4096, 500), point(1.1, 0, 400), point(1.2, 64, 400)
    assert front([beaten, small, fast]) == [fast, small]


def test_of_equal_points_the_first_measured_stays() -> None:
    assert front([point(1.0, 1, 1, 2), point(1.0, 1, 1, 1)]) == [point(1.0, 1, 1, 1)]


def test_what_crashed_inside_a_model_is_no_point() -> None:
    size = Footprint(1, 1)
    runs = [run("default", 2.0, origin=Origin.DEFAULT, footprint=size), run("a", 1.0, footprint=size)]
    assert [p.run.trace_key for p in points(runs, {}, [])] == ["default", "a"]
    runs = [runs[0], run("a", 1.0, footprint=size, crashed="crashed inside the model")]
    assert [p.run.trace_key for p in points(runs, {}, [])] == ["default"]


@pytest.mark.parametrize("seed", range(50))
def test_a_front_is_what_no_other_dominates(seed: int) -> None:
    rng = random.Random(seed)
    all_points = [
        point(rng.choice([0.5, 1.0, 2.0]), rng.randrange(4), rng.randrange(4), number)
        for number in range(1, rng.randrange(2, 14))
    ]
    kept = front(all_points)
    assert not any(a.dominates(b) for a in kept for b in kept)
    assert len({p.values for p in kept}) == len(kept)
    for left_out in all_points:
        assert any(p.dominates(left_out) or p.values == left_out.values for p in kept)
