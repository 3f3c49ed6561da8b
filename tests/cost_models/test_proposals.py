"""Candidates to try together: the best scored, but not all alike."""

from __future__ import annotations

import numpy as np

from cost_models import proposals


def test_the_best_is_first_and_of_its_like_only_what_is_much_better() -> None:
    """Rows 0 to 3 differ in one choice of ten, row 4 in all of them: a little worse, but wrong for other reasons."""
    choices = np.zeros((6, 10), np.int16)
    choices[1:4, 0] = (1, 2, 3)
    choices[4:] = 7
    choices[5] = 8
    scores = np.array([3.0, 2.99, 2.98, 2.97, 2.9, 0.0])
    assert proposals.first(scores, choices, 2).tolist() == [0, 4]
    assert proposals.first(scores - 5.0, choices, 2).tolist() == [0, 4], "only differences of scores count"
    assert proposals.first(7 * scores, choices, 2).tolist() == [0, 4], "and what is large among them"
    scores[4] = 0.5
    assert proposals.first(scores, choices, 3).tolist()[1] != 4, (
        "nothing is tried just because it is different"
    )


def test_every_row_once_whatever_there_is() -> None:
    rng = np.random.default_rng(0)
    scores, choices = rng.random(20), rng.integers(3, size=(20, 5))
    found = proposals.first(scores, choices, 50)
    assert sorted(found) == list(range(20))
    assert proposals.first(np.zeros(0), np.zeros((0, 3)), 8).tolist() == []
    assert proposals.first(np.array([1.0, 2.0, 1.5]), np.zeros((3, 0)), 3).tolist() == [1, 2, 0], "no choices"
    assert proposals.first(np.zeros(3), np.zeros((3, 1)), 3).tolist() == [0, 1, 2], (
        "equal ones in their order"
    )


def test_what_was_picked_is_picked_no_more_where_all_are_alike() -> None:
    found = proposals.first(np.arange(5.0), np.ones((5, 4)), 5)
    assert found.tolist() == [4, 3, 2, 1, 0]
