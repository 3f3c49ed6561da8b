"""Learned models: they learn a hidden cost, round-trip through files, and refuse damage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autotune.errors import CostModelError
from cost_models import dataset, features, folds
from cost_models.evaluate import judge
from cost_models.manifest import RankerManifest
from cost_models.objectives import OBJECTIVES, graded
from cost_models.ranker import Ranker, analytic_scores
from cost_models.registry import Registry
from tests.cost_models.synthetic_runs import COUNT, measured, records


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    data = measured()
    return Ranker.fit(data, folds.by_workload(data.workloads, ""), rounds=30, threads=2)


def test_dataset_groups_by_workload_and_marks_failures() -> None:
    data = measured()
    assert len(data) == 40 * COUNT
    assert len(data.workloads) == COUNT
    assert set(data.families) == {"contraction"}
    assert set(data.models) == {"model0", "model1", "model2"}
    assert 0 < (~data.valid).sum() < len(data)
    assert data.skipped == {}
    assert float(np.nanmax(data.latency)) < 100, "over the default's"


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


def test_without_a_default_a_group_is_ranked_by_nanoseconds() -> None:
    runs = records(count=1)
    runs.loc[3, "ratio"] = np.nan
    np.testing.assert_array_equal(dataset.build(runs).latency, runs["latency_ns"])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns_a_cost_on_workloads_it_has_not_seen(objective: str) -> None:
    data = measured()
    valid = data.take(data.valid)
    made = Ranker.fit(data, folds.by_workload(data.workloads, ""), rounds=30, threads=1, objective=objective)
    learned, before = judge(made.held_out(valid), valid), judge(analytic_scores(valid.x), valid)
    assert len(learned) == COUNT
    assert learned.interval("pairwise").low > before.interval("pairwise").high
    assert learned.interval("batch").mean > before.interval("batch").mean


def test_a_reading_that_is_noise_counts_for_less() -> None:
    data = measured()
    rng = np.random.default_rng(0)
    lost = rng.random(len(data)) < 0.6
    spoilt = np.where(lost, data.latency * np.exp(rng.normal(0, 3, len(data))), data.latency)
    told = replace(data, latency=spoilt, noise=np.where(lost, 3, data.noise))
    untold = replace(data, latency=spoilt)
    valid = data.take(data.valid)
    dealt = folds.by_workload(data.workloads, "")
    fitted = (Ranker.fit(some, dealt, rounds=30, threads=1, objective="pairs") for some in (told, untold))
    knows, guesses = (judge(ranker.held_out(valid), valid).interval("pairwise").mean for ranker in fitted)
    assert knows > guesses + 0.02


def test_no_workload_is_judged_by_a_member_that_has_seen_it(ranker: Ranker) -> None:
    data = measured()
    each, held = ranker.each(data.x), ranker.held_out(data)
    for group, key in enumerate(data.workloads):
        rows = data.groups == group
        np.testing.assert_array_equal(held[rows], each[ranker.folds[key]][rows])
    unknown = replace(data, workloads=tuple(f"new{i}" for i in range(COUNT)))
    np.testing.assert_array_equal(ranker.held_out(unknown), ranker.predict(data.x))


def stored(ranker: Ranker, folder: Path) -> tuple[Registry, Path]:
    """A registry with ``ranker`` in use, and the folder of its version."""
    registry = Registry(folder)
    registry.promote(registry.add(ranker, RankerManifest("cost-model", features.schema(), {}, rows=280)))
    return registry, folder / "v0001"


def test_models_round_trip_and_refuse_damage(ranker: Ranker, tmp_path: Path) -> None:
    registry, folder = stored(ranker, tmp_path)
    loaded = registry.load()
    assert loaded is not None
    assert loaded.ranker.folds == ranker.folds
    np.testing.assert_array_equal(loaded.ranker.predict(measured().x), ranker.predict(measured().x))
    file = folder / "member3.ubj"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CostModelError, match="is damaged"):
        registry.load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "ranker"}, "holds a 'ranker', expected a 'cost-model'"),
        ({"schema": "old"}, "features of another version"),
        ({"format": 99}, "has format 99"),
        ({"files": {}}, r"has the members \[\], expected \[\]"),
        ({"files": {"member1.ubj": "0"}}, r"has the members \['member1.ubj'\], expected \['member0.ubj'\]"),
        ({"files": {"../member0.ubj": "0"}}, "names files outside its folder"),
        ({"folds": {"a": 7}}, "names folds that have no member"),
        ({"sources": [{"surprise": 1}]}, "is not a manifest"),
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


def test_models_say_what_they_need(ranker: Ranker) -> None:
    data = measured()
    alone = np.asarray([np.flatnonzero((data.groups == g) & data.valid)[0] for g in range(COUNT)])
    one_each = data.take(np.isin(np.arange(len(data)), alone))
    with pytest.raises(CostModelError, match="nothing to rank"):
        Ranker.fit(one_each, folds.by_workload(data.workloads, ""))
    with pytest.raises(CostModelError, match=r"features of shape \(3, 2\)"):
        ranker.predict(np.zeros((3, 2), np.float32))


def test_grades_are_relative_to_the_best_of_the_group() -> None:
    latency = np.asarray([10.0, 20.0, 40.0, 3.0, 3.0])
    grades = graded(latency, np.asarray([5, 5, 5, 9, 9]))
    np.testing.assert_array_equal(grades, [31, 16, 8, 31, 31])
