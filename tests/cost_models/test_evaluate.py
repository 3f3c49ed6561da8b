"""Measures of a ranking: known ones, alike for every workload, with noise and ties."""

from __future__ import annotations

import numpy as np
import pytest

from cost_models import folds
from cost_models.dataset import Dataset
from cost_models.evaluate import judge


def data(latency: list[float], groups: list[int], noise: float = 0.0) -> Dataset:
    """Rows without features, of workloads "0", "1", ... of two families."""
    count = max(groups) + 1
    return Dataset(
        np.zeros((len(groups), 1), np.float32),
        np.zeros((len(groups), 0), np.float32),
        np.asarray(latency),
        np.full(len(groups), noise),
        np.asarray(groups),
        tuple(map(str, range(count))),
        ("target",) * count,
        tuple("ab"[i % 2] for i in range(count)),
        ("net",) * count,
        {},
    )


def test_metrics_of_a_known_ranking() -> None:
    found = judge(np.asarray([1.0, 3.0, 2.0, 5.0, 4.0]), data([4, 2, 1, 10, 30], [0, 0, 0, 1, 1]))
    assert found.workloads == ("0", "1")
    np.testing.assert_allclose(found.of("pairwise"), [2 / 3, 1])
    np.testing.assert_allclose(found.of("top1"), [1 / 2, 1])
    np.testing.assert_allclose(found.of("top5"), 1)
    np.testing.assert_allclose(found.of("regret"), [1, 0])
    np.testing.assert_allclose(found.of("batch"), [np.log(1 / 2) / 3, 0])
    assert found.interval("top1").mean == 3 / 4
    assert found.split(found.families)["b"].of("top1").tolist() == [1]


def test_every_workload_counts_alike_however_long_it_takes() -> None:
    scores = np.asarray([2.0, 1.0, 1.0, 2.0])
    slow = judge(scores, data([1000, 2000, 1, 2], [0, 0, 1, 1]))
    fast = judge(scores, data([1, 2, 1, 2], [0, 0, 1, 1]))
    np.testing.assert_allclose(slow.values, fast.values)


def test_pairs_within_noise_say_nothing() -> None:
    latency, groups = [1.0, 1.05, 2.0, 1.0, 1.01], [0, 0, 0, 1, 1]
    exact = judge(np.asarray([1.0, 3.0, 0.0, 1.0, 2.0]), data(latency, groups))
    noisy = judge(np.asarray([1.0, 3.0, 0.0, 1.0, 2.0]), data(latency, groups, noise=0.1))
    np.testing.assert_allclose(exact.of("pairwise"), [2 / 3, 0])
    np.testing.assert_array_equal(noisy.of("pairwise"), [1, np.nan])
    assert noisy.interval("pairwise").mean == 1


def test_equal_scores_are_chance_and_one_row_is_nothing() -> None:
    rows = 200
    found = judge(np.zeros(rows), data(list(np.linspace(1, 2, rows)), [0] * rows))
    assert found.of("pairwise")[0] == 0.5
    assert found.of("top1")[0] < 0.99, "not the first row, which is often the default"
    assert len(judge(np.zeros(3), data([1, 2, 3], [0, 1, 2]))) == 0


def test_folds_are_of_equal_size_and_dealt_anew() -> None:
    keys = [f"workload{i}" for i in range(23)]
    first, second = (folds.by_workload(keys, salt) for salt in ("v1", "v2"))
    assert first == folds.by_workload(reversed(keys), "v1")
    assert first != second
    sizes = np.bincount(list(first.values()))
    assert len(sizes) == folds.FOLDS
    assert max(sizes) - min(sizes) <= 1
    assert folds.by_model({"a": "x", "b": "y", "c": "x"}) == {"a": 0, "b": 1, "c": 0}
    found = folds.by_model({key: f"model{i % 11}" for i, key in enumerate(keys)})
    assert sorted(np.bincount([*found.values()])) == [4, 4, 4, 5, 6]
    assert all(found[key] == found[keys[i % 11]] for i, key in enumerate(keys)), "models stay whole"


def test_metrics_are_plain_values() -> None:
    found = judge(np.asarray([1.0, 2.0]), data([1, 2], [0, 0])).to_dict()
    assert found["top1"] == pytest.approx([0.5, 0.5, 0.5])
    assert (found["workloads"], found["runs"]) == (1, 2)
