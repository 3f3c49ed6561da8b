"""Learned models: they learn a hidden cost, round-trip through files, and refuse damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autotune.errors import CostModelError
from cost_models import dataset, evaluate, features
from cost_models.manifest import ModelManifest
from cost_models.ranker import Ranker, graded
from cost_models.registry import Registry
from tests.cost_models.synthetic_runs import records


@pytest.fixture(scope="module")
def data() -> dataset.Dataset:
    return dataset.build(records())


@pytest.fixture(scope="module")
def ranker(data: dataset.Dataset) -> Ranker:
    rows = data.valid & (data.groups < 7)
    return Ranker.fit(data.x[rows], data.latency_ns[rows], data.groups[rows], rounds=60, threads=1)


def test_dataset_groups_by_workload_and_marks_failures(data: dataset.Dataset) -> None:
    assert len(data) == 400
    assert len(data.workloads) == 10
    assert set(data.families) == {"contraction"}
    assert 0 < (~data.valid).sum() < len(data)
    assert data.skipped == {}


def test_dataset_counts_what_it_skips() -> None:
    good = records(failing=False)[:1]
    broken = [
        good.assign(space_key="another"),
        good.assign(workload_text="region nonsense"),
        good.assign(target_json="{}"),
        good.assign(config=[{**good["config"][0], "rows": 99}]),
        good.assign(outcome="timeout", latency_ns=np.nan),
    ]
    built = dataset.build(pd.concat([good, *broken], ignore_index=True))
    assert len(built) == 1
    assert built.skipped == {
        "space has changed": 1,
        "unreadable workload or target": 2,
        "configuration not legal now": 1,
        "outcome timeout": 1,
    }
    assert len(dataset.build(good[:0])) == 0


def test_ranker_learns_a_cost_on_workloads_it_has_not_seen(data: dataset.Dataset, ranker: Ranker) -> None:
    rows = data.valid & (data.groups >= 7)
    scores = ranker.predict(data.x[rows])
    metrics = evaluate.evaluate(scores, data.latency_ns[rows], data.groups[rows])
    assert metrics is not None
    assert metrics.pairwise > 0.85
    assert metrics.top5 > 0.9
    shuffled = np.random.default_rng(0).permutation(scores)
    chance = evaluate.evaluate(shuffled, data.latency_ns[rows], data.groups[rows])
    assert chance is not None
    assert metrics.pairwise > chance.pairwise + 0.2


def stored(ranker: Ranker, folder: Path) -> tuple[Registry, Path]:
    """A registry with ``ranker`` in use, and the folder of its version."""
    registry = Registry(folder)
    registry.promote(registry.add(ranker, ModelManifest("cost-model", features.schema(), {}, rows=280)))
    return registry, folder / "v0001"


def test_models_round_trip_and_refuse_damage(data: dataset.Dataset, ranker: Ranker, tmp_path: Path) -> None:
    registry, folder = stored(ranker, tmp_path)
    loaded = registry.load()
    assert loaded is not None
    np.testing.assert_array_equal(loaded.ranker.predict(data.x), ranker.predict(data.x))
    file = folder / "ranker.ubj"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CostModelError, match="is damaged"):
        registry.load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "ranker"}, "holds a 'ranker', expected a 'cost-model'"),
        ({"schema": "old"}, "features of another version"),
        ({"format": 99}, "has format 99"),
        ({"files": {}}, "has no ranker.ubj"),
        ({"files": {"../ranker.ubj": "0"}}, "names files outside its folder"),
        ({"surprise": 1}, "is not a manifest"),
    ],
)
def test_a_wrong_manifest_is_refused(
    ranker: Ranker, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    registry, folder = stored(ranker, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema"] == features.schema()
    (folder / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(CostModelError, match=message):
        registry.load()


def test_models_say_what_they_need(data: dataset.Dataset, ranker: Ranker) -> None:
    with pytest.raises(CostModelError, match="nothing to rank"):
        Ranker.fit(data.x[:3], np.ones(3), np.arange(3))
    with pytest.raises(CostModelError, match=r"features of shape \(3, 2\)"):
        ranker.predict(np.zeros((3, 2), np.float32))


def test_grades_are_relative_to_the_best_of_the_group() -> None:
    latency = np.asarray([10.0, 20.0, 40.0, 3.0, 3.0])
    grades = graded(latency, np.asarray([5, 5, 5, 9, 9]))
    np.testing.assert_array_equal(grades, [31, 16, 8, 31, 31])


def test_metrics_of_a_known_ranking() -> None:
    latency = np.asarray([4.0, 2.0, 1.0, 10.0, 30.0])
    groups = np.asarray([0, 0, 0, 1, 1])
    scores = np.asarray([1.0, 3.0, 2.0, 5.0, 4.0])
    metrics = evaluate.evaluate(scores, latency, groups, weights={0: 3.0})
    assert metrics is not None
    assert metrics.pairwise == pytest.approx((2 / 3 + 1) / 2)
    assert metrics.top1 == pytest.approx((3 * 1 + 10) / (3 * 2 + 10))
    assert metrics.top5 == 1.0
    assert metrics.regret == pytest.approx(0.5)
    assert evaluate.evaluate(scores[:1], latency[:1], groups[:1]) is None


def test_metrics_by_family(data: dataset.Dataset, ranker: Ranker) -> None:
    scores = ranker.predict(data.x)
    families = evaluate.by_family(scores, data)
    assert list(families) == ["contraction"]
    valid = data.valid
    assert families["contraction"] == evaluate.evaluate(
        scores[valid], data.latency_ns[valid], data.groups[valid]
    )


def test_the_split_is_stable_and_leaves_both_sides_something() -> None:
    keys = [f"workload{i}" for i in range(200)]
    train, held = evaluate.split(keys)
    assert train | held == set(keys)
    assert 20 < len(held) < 60
    more_train, more_held = evaluate.split([*keys, "another"])
    assert held <= more_held | {"another"}
    assert train <= more_train | {"another"}
    for two in (["a", "b"], sorted(held)[:2], sorted(train)[:2]):
        assert all(evaluate.split(two))
