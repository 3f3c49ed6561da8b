"""The registry: versions are atomic, promoted on request, rolled back on request."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import CostModelError
from autotune.target import Target
from cost_models import features, folds
from cost_models import registry as registry_module
from cost_models.builtin import SHIPPED, Defaults
from cost_models.manifest import RankerManifest
from cost_models.ranker import Ranker
from cost_models.registry import Registry
from cost_models.serving import Serving, serving
from tests.cost_models.synthetic_runs import measured
from tests.search_spaces import workloads as make


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return Ranker.fit(measured(), folds.by_workload(measured().workloads, ""), rounds=5, threads=1)


def manifest() -> RankerManifest:
    return RankerManifest("cost-model", features.schema(), {})


def test_versions_promotion_and_rollback(ranker: Ranker, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "models")

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
    np.testing.assert_array_equal(loaded.ranker.predict(measured().x), ranker.predict(measured().x))
    assert registry.rollback() == "v0001"
    assert registry.current() == "v0001"
    assert registry.rollback() is None, "the first one replaced the analytic model alone"
    assert registry.current() is None
    with pytest.raises(CostModelError, match="nothing to roll back to"):
        registry.rollback()
    with pytest.raises(CostModelError, match=r"no cost model 'v9'.*v0001, v0002"):
        registry.promote("v9")


@pytest.mark.parametrize("step", ["save", "write", "_flush", "rename"])
def test_a_crash_at_any_step_leaves_the_old_model_in_use(
    ranker: Ranker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    registry = Registry(tmp_path)

    registry.promote(registry.add(ranker, manifest()))

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    owner = {
        "save": registry_module.boosters,
        "write": RankerManifest,
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
    ranker: Ranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path)

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


def test_models_of_another_version_are_told_from_damaged_ones(ranker: Ranker, tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.promote(registry.add(ranker, manifest()))
    assert registry.readable("v0001")
    file = tmp_path / "v0001" / "manifest.json"
    stored = json.loads(file.read_text())
    for change in ({"format": 1}, {"schema": "other"}):
        file.write_text(json.dumps(stored | change))
        assert not registry.readable("v0001")
    file.write_text("{")
    with pytest.raises(CostModelError, match="no readable cost model"):
        registry.readable("v0001")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    registry = Registry(tmp_path / "file" / "models")
    assert registry.current() is None
    with (
        pytest.raises(CostModelError, match=r"cannot store a cost model in .*: Not a directory"),
        registry._staged(),
    ):
        pass


def test_what_is_built_in_serves_targets_of_its_vectors(ranker: Ranker, tmp_path: Path) -> None:
    made = Registry(tmp_path / "made")
    made.export(made.add(ranker, manifest()), tmp_path / "defaults" / "x86-64-v3")
    registry = Registry(tmp_path / "models", Defaults(tmp_path / "defaults"))
    found = registry.serving(make.AVX2)
    assert found is not None
    assert found.version == "built in (x86-64-v3)"
    np.testing.assert_array_equal(found.ranker.predict(measured().x), ranker.predict(measured().x))
    for other in ("x86-64-v2", "x86-64-v4", "aarch64"):
        assert registry.serving(Target.parse(other)) is None

    registry.promote(registry.add(ranker, manifest()))
    assert served(registry) == "v0001"
    replace(registry.manifest("v0001"), schema="other").write(registry.folder / "v0001")
    assert served(registry) == "built in (x86-64-v3)", "a version that cannot be read does not serve"
    assert registry.rollback() is None
    assert served(registry) == "built in (x86-64-v3)"
    assert registry.rollback() is None
    assert served(registry) is None
    with pytest.raises(CostModelError, match="nothing to roll back to"):
        registry.rollback()

    registry.promote(registry.add(ranker, manifest()))
    assert registry.rollback() is None
    assert served(registry) is None, "what it replaced was the analytic model alone"
    replace(manifest(), schema="other").write(tmp_path / "defaults" / "x86-64-v3")
    (registry.folder / "CURRENT").unlink()
    assert served(registry) is None, "features of another version"


def served(registry: Registry) -> str | None:
    found = registry.serving(make.AVX2)
    return found.version if found else None


def test_a_new_model_is_compared_with_what_is_built_in(ranker: Ranker, tmp_path: Path) -> None:
    made = Registry(tmp_path / "made")
    made.export(made.add(ranker, manifest()), tmp_path / "defaults" / "x86-64-v3")
    registry = Registry(tmp_path / "models", Defaults(tmp_path / "defaults"))
    data = measured().take(measured().valid)
    now = serving(registry, data, [make.AVX2, Target.parse("aarch64")])
    assert now.name == "built in (x86-64-v3)"
    assert now.scores is not None
    np.testing.assert_array_equal(now.scores, ranker.held_out(data))
    assert serving(registry, data, []) == Serving()
    assert serving(Registry(tmp_path / "models"), data, [make.AVX2]) == Serving()


def test_what_comes_with_the_package_reads_todays_features_and_beat_the_analytic_model() -> None:
    for level in SHIPPED.levels():
        found = SHIPPED.manifest(level)
        assert found.schema == features.schema(), (
            f"train it again: docs/retraining.md has the command ({level})"
        )
        assert found.reason.startswith("significantly better")
