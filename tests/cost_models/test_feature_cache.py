"""Features kept in files: read back as they were, for other code worked out again, and never from a damaged file."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cost_models import dataset, derived, feature_cache, features
from cost_models.feature_cache import FeatureCache
from cost_models.machine import Machine
from tests.cost_models.synthetic_runs import records

RUNS = records(per_space=6, count=3)


@pytest.fixture
def extracted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which each call adds how many rows it worked out."""
    calls: list[int] = []
    real = features.extract

    def counting(space: object, configs: object) -> features.Matrix:
        found = real(space, configs)  # type: ignore[arg-type]
        calls.append(len(found))
        return found

    monkeypatch.setattr(features, "extract", counting)
    return calls


def assert_same(one: dataset.Dataset, other: dataset.Dataset) -> None:
    for name in ("x", "knobs", "latency", "noise", "groups"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert replace(one, **dict.fromkeys(ARRAYS)) == replace(other, **dict.fromkeys(ARRAYS))  # type: ignore[arg-type]


ARRAYS = ("x", "knobs", "latency", "noise", "groups")


def test_only_new_runs_are_worked_out(tmp_path: Path, extracted: list[int]) -> None:
    cache = FeatureCache(tmp_path / "features")
    plain = dataset.build(RUNS)
    some = RUNS[RUNS.index % 6 < 4]
    extracted.clear()
    dataset.build(some, cache)
    assert sum(extracted) == len(some)
    assert_same(dataset.build(RUNS, cache), plain)
    assert sum(extracted) == len(RUNS)
    twice = pd.concat([RUNS, RUNS[:1]], ignore_index=True)
    assert_same(dataset.build(twice, cache), dataset.build(twice))
    extracted.clear()
    assert_same(dataset.build(RUNS[::-1], cache), dataset.build(RUNS[::-1]))
    assert len(extracted) == 3, "nothing but what was built without the cache"
    assert len(list(cache.folder.iterdir())) == 3


def test_what_is_not_legal_is_known_too(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    broken = RUNS[:2].assign(config=[{**RUNS["config"][0], "rows": 99}, RUNS["config"][1]])
    for _ in range(2):
        built = dataset.build(broken, cache)
        assert len(built) == 1
        assert built.skipped == {"configuration not legal now": 1}
    unknown = dataset.build(RUNS[:1].assign(target_json="{}"), cache)
    assert unknown.skipped == {"unreadable workload or target": 1}
    assert dataset.build(RUNS[:1].assign(space_key="other"), cache).skipped == {"space has changed": 1}


@pytest.mark.parametrize("what", ["code", "machine"])
def test_other_code_or_another_reading_of_the_machine_has_other_features(
    tmp_path: Path, extracted: list[int], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    cache = FeatureCache(tmp_path)
    dataset.build(RUNS, cache)
    extracted.clear()
    if what == "code":
        monkeypatch.setattr(feature_cache, "_code", lambda: "other")
    else:
        monkeypatch.setattr(Machine, "of", staticmethod(lambda target: Machine(hertz=1e9)))
    dataset.build(RUNS, cache)
    assert sum(extracted) == len(RUNS)


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: raw[:-9], lambda raw: raw[:99] + b"x" + raw[100:]]
)
def test_a_damaged_file_is_worked_out_again_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    cache = FeatureCache(tmp_path)
    plain = dataset.build(RUNS, cache)
    file = next(tmp_path.iterdir())
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        assert_same(dataset.build(RUNS, cache), plain)
    assert [record.getMessage() for record in caplog.records] == [
        f"features are worked out again, as {file} is damaged"
    ]
    caplog.clear()
    assert_same(dataset.build(RUNS, cache), plain)
    assert not caplog.records, "it was written again"


def test_a_folder_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = FeatureCache(tmp_path / "file" / "features")
    with caplog.at_level(logging.WARNING):
        assert_same(dataset.build(RUNS[:6], cache), dataset.build(RUNS[:6]))
    assert "features are not kept" in caplog.text


def test_the_least_recently_used_files_go(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    dataset.build(RUNS, cache)
    files = sorted(tmp_path.iterdir())
    for age, path in enumerate(files):
        os.utime(path, (1e9 - age, 1e9 - age))
    dataset.build(RUNS[:0], replace(cache, most_bytes=files[0].stat().st_size + files[1].stat().st_size))
    assert sorted(tmp_path.iterdir()) == files[:2]


def test_a_killed_writer_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FeatureCache(tmp_path)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        dataset.build(RUNS, cache)
    assert list(tmp_path.iterdir()) == []


def test_a_digest_tells_configurations_apart_whatever_their_order() -> None:
    assert derived.digest({"a": 1, "b": True}) == derived.digest({"b": True, "a": 1})
    assert len({derived.digest({"a": value}) for value in (1, 2, "1", True, False)}) == 5
