"""Who is faster inside a model, and the process in which versions of it take turns."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.runtime.image import ModuleImage
from autotune.tuning.lineup import LineUp
from autotune.tuning.sheet import Sheet, choose

DEFAULT = np.array([100.0, 104.0, 150.0, 101.0])


@pytest.mark.parametrize(
    ("candidates", "winner"),
    [
        ([], 0),
        ([0.99 * DEFAULT], 0),
        ([0.9 * DEFAULT, 0.8 * DEFAULT], 2),
        ([None, 0.9 * DEFAULT], 2),
        ([np.array([50.0, 104.0, 150.0, 101.0])], 0),  # lucky once
        ([np.array([99.5, 90.0, 90.0, 90.0])], 1),
        ([np.array([98.0, 90.0, 90.0, 98.0])], 1),
        ([np.array([95.0, 106.0, 90.0, 95.0])], 0),  # faster in three rounds of four
        ([np.array([101.0, 104.0, 90.0, 101.0])], 0),  # one slow moment of the default
    ],
)
def test_the_default_wins_ties(candidates: list[Any], winner: int) -> None:
    assert choose([DEFAULT, *candidates]) == winner


def test_nothing_wins_against_a_default_that_failed() -> None:
    assert choose([None, DEFAULT]) == 0


def test_a_sheet_adds_up_dispatches() -> None:
    dispatches = [("a", "x"), ("b", "y"), ("c", "x")]
    first, second = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]), np.array([[4.0, 5.0, 6.0]] * 2)
    sheet = Sheet(dispatches, [first, second, None])
    assert cast(Any, sheet.of_workload(0, "x")).tolist() == [2.0, 20.0]
    assert sheet.of_workload(2, "x") is None
    both = {("b", "y"), ("c", "x")}
    assert cast(Any, sheet.together(both, {})).tolist() == [5.0, 50.0]
    assert cast(Any, sheet.together(both, {"x": 1})).tolist() == [8.0, 26.0]
    assert sheet.together(both, {"x": 2}) is None


@pytest.fixture(scope="module")
def image() -> ModuleImage:
    return compile_in_detail("zoo:tiny_cnn", threads=1).image


def test_versions_take_turns_in_two_seatings(image: ModuleImage) -> None:
    with LineUp([image, image], seed=0) as lineup:
        readings = lineup.profile(4, lambda: False)
        whole = lineup.time(2, lambda: False)
    for found in readings:
        assert cast(Any, found).shape == (4, len(image.dispatches))
        assert np.all(cast(Any, found) >= 0)
    assert all(cast(Any, found).shape[0] == 2 for found in whole)


def test_a_version_that_ends_the_process_leaves(image: ModuleImage, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LineUp._ask

    def ask(self: LineUp, number: int, request: Any, limit_s: float) -> Any:
        wanted = (
            {**request, "do": "no such request"} if (number, request["do"]) == (1, "profile") else request
        )
        return original(self, number, wanted, limit_s)

    monkeypatch.setattr(LineUp, "_ask", ask)
    with LineUp([image, image, image], seed=0) as lineup:
        first, second, third = lineup.profile(3, lambda: False)
        assert "worker died" in lineup.failures[1]
    assert second is None
    assert cast(Any, first).shape == cast(Any, third).shape == (3, len(image.dispatches))


def test_too_few_rounds_decide_nothing(image: ModuleImage) -> None:
    with LineUp([image], seed=0) as lineup:
        assert lineup.profile(12, lambda: True) == [None]


def test_who_has_no_seat_when_time_is_up_was_not_read(image: ModuleImage) -> None:
    looks = iter([False, False, True, True, True])  # before all, before the first seat, before the second
    with LineUp([image, image], seed=0) as lineup:
        assert lineup.profile(12, lambda: next(looks)) == [None, None]
