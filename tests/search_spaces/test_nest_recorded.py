"""Arithmetic that is recorded: the same results as at once, and no more work than they need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.schedule.arithmetic import ceil_div, either, least, most, negated, where
from search_spaces.nest.recorded import OperationRecorder, Quantity

COLUMNS = {"rows": np.asarray([1, 4, 6, 8]), "order": np.asarray(["a", "b", "a", "b"])}


def results(rows: Any, order: Any) -> list[Any]:
    tiles = ceil_div(100, rows * 3)
    return [
        tiles,
        least(rows, 5) + 0.5,
        most(2, rows) // 2 - rows % 3,
        1 - tiles / rows,
        where(order == "a", tiles, 2 * rows),
        where(either(rows > 4, rows <= 1), 1, 0),
        where(negated((order != "a") & (rows >= 4)), np.gcd(rows, 6), rows),
        np.ceil(-rows / 4) * 1 + 0,
    ]


def test_results_are_those_of_arrays() -> None:
    recording = OperationRecorder()
    recorded = results(recording.knob("rows"), recording.knob("order"))
    expected = results(COLUMNS["rows"], COLUMNS["order"])
    for got, want in zip(recording.program(recorded).run(COLUMNS), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_is_a_number_for_all_stays_one() -> None:
    recording = OperationRecorder()
    rows = recording.knob("rows")
    assert where(True, 3, rows) == 3
    assert recording.program([3, rows]).run(COLUMNS)[0] == 3


def test_equal_operations_are_done_once_and_what_no_result_needs_never() -> None:
    done: list[str] = []

    def noted(value: Any, name: str) -> Any:
        done.append(name)
        return value

    recording = OperationRecorder()
    rows = recording.knob("rows")
    first, again = (recording.apply(noted, rows, "wanted") for _ in range(2))
    recording.apply(noted, rows, "not wanted")
    recording.program([first, again + first]).run(COLUMNS)
    assert done == ["wanted"]


def test_what_changes_nothing_is_not_recorded() -> None:
    rows = OperationRecorder().knob("rows")
    assert all(isinstance(one, Quantity) for one in (rows, rows + rows))
    same = [1 * rows, rows * 1, rows + 0, 0.0 + rows, rows - 0, rows / 1]
    assert {one.number for one in same} == {rows.number}


def test_python_cannot_branch_on_what_is_not_known() -> None:
    with pytest.raises(TypeError, match="not known while arithmetic is recorded"):
        bool(OperationRecorder().knob("rows") > 1)
