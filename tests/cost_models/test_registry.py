"""The registry and retraining: atomic, promoted only when better, rolled back on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autotune.errors import CostModelError
from autotune.graph.region import Workload
from cost_models import dataset, features, retrain
from cost_models import registry as registry_module
from cost_models.manifest import ModelManifest
from cost_models.ranker import Ranker
from cost_models.registry import Registry
from tests.cost_models.synthetic_runs import records


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return records()


@pytest.fixture(scope="module")
def models(runs: pd.DataFrame) -> tuple[Ranker, dataset.Dataset]:
    data = dataset.build(runs)
    ok = data.valid
    ranker = Ranker.fit(data.x[ok], data.latency_ns[ok], data.groups[ok], rounds=5, threads=1)
    return ranker, data


def manifest() -> ModelManifest:
    return ModelManifest("cost-model", features.schema(), {})


def fit(runs: pd.DataFrame, folder: Path, dry_run: bool = False) -> retrain.RetrainReport:
    return retrain.retrain(runs, folder, dry_run, rounds=40, threads=1)


def test_versions_promotion_and_rollback(models: tuple[Ranker, dataset.Dataset], tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")
    ranker, data = models
    assert registry.current() is None
    assert registry.load() is None
    assert registry.add(ranker, manifest()) == "v0001"
    assert registry.current() is None, "adding does not promote"
    registry.promote("v0001")
    assert registry.add(ranker, manifest()) == "v0002"
    registry.promote("v0002")
    loaded = registry.load()
    assert loaded is not None
    assert loaded.version == "v0002"
    np.testing.assert_array_equal(loaded.ranker.predict(data.x), ranker.predict(data.x))
    assert registry.rollback() == "v0001"
    assert registry.current() == "v0001"
    with pytest.raises(CostModelError, match="nothing to roll back to"):
        registry.rollback()
    with pytest.raises(CostModelError, match=r"no cost model 'v9'.*v0001, v0002"):
        registry.promote("v9")


@pytest.mark.parametrize("step", ["save", "write", "_flush", "rename"])
def test_a_crash_at_any_step_leaves_the_old_model_in_use(
    models: tuple[Ranker, dataset.Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    registry = Registry(tmp_path)
    ranker, _ = models
    registry.promote(registry.add(ranker, manifest()))

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    owner = {
        "save": registry_module.boosters,
        "write": ModelManifest,
        "_flush": registry_module,
        "rename": Path,
    }[step]
    monkeypatch.setattr(owner, step, crash)
    with pytest.raises(KeyboardInterrupt):
        registry.add(ranker, manifest())
    monkeypatch.undo()
    assert registry.versions() == ["v0001"]
    assert registry.current() == "v0001"
    assert registry.load() is not None
    assert registry.add(ranker, manifest()) == "v0002"


def test_a_version_number_taken_by_another_process_is_skipped(
    models: tuple[Ranker, dataset.Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path)
    ranker, _ = models
    registry.add(ranker, manifest())
    seen: list[list[str]] = [[]]  # the first look is out of date
    real = Registry.versions
    monkeypatch.setattr(Registry, "versions", lambda self: seen.pop() if seen else real(self))
    monkeypatch.setattr(Registry, "current", lambda _: None)
    assert registry.add(ranker, manifest()) == "v0002"


def test_a_pointer_to_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("v0007\n")
    with pytest.raises(CostModelError, match="names 'v0007', which is not there"):
        Registry(tmp_path).current()


def test_retraining_promotes_a_better_model_once(runs: pd.DataFrame, tmp_path: Path) -> None:
    dry = fit(runs, tmp_path, dry_run=True)
    assert not dry.replaced
    assert "dry run" in dry.reason
    assert list(tmp_path.iterdir()) == []
    first = fit(runs, tmp_path)
    assert first.replaced
    assert first.version == "v0001"
    assert first.new is not None
    assert first.analytic is not None
    assert first.new.top1 > first.analytic.top1
    assert "better on held-out workloads" in str(first)
    again = fit(runs, tmp_path)
    assert not again.replaced, "the same data cannot make a better model"
    assert again.old == again.new
    assert Registry(tmp_path).current() == "v0001"
    stored = Registry(tmp_path).manifest("v0001")
    held = {key for key in dataset.build(runs).workloads if key not in stored.trained_on}
    assert held, "held-out workloads are not trained on"
    assert stored.latency_range_ns[0] > 0


def test_retraining_keeps_what_it_has_when_the_new_one_is_worse(runs: pd.DataFrame, tmp_path: Path) -> None:
    fit(runs, tmp_path)
    trained = set(Registry(tmp_path).manifest("v0001").trained_on)
    rng = np.random.default_rng(0)
    known = runs["workload_text"].map(lambda text: Workload.parse(text).key in trained)
    noise = runs.assign(latency_ns=runs["latency_ns"].mask(known, rng.uniform(1, 9, len(runs))))
    noise.loc[runs["latency_ns"].isna(), "latency_ns"] = np.nan
    report = fit(noise, tmp_path)
    assert not report.replaced
    assert "not better" in report.reason


def test_retraining_from_nothing_says_what_is_missing(tmp_path: Path) -> None:
    report = fit(records()[:0], tmp_path)
    assert not report.replaced
    assert "too little to learn from: 0 valid runs" in report.reason


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    registry = Registry(tmp_path / "file" / "models")
    assert registry.current() is None
    with (
        pytest.raises(CostModelError, match=r"cannot store a cost model in .*: Not a directory"),
        registry._staged(),
    ):
        pass
