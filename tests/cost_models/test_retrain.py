"""Retraining: promoted for a statistically significant gain, and for nothing else, all year long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cost_models import gate, retrain
from cost_models.evaluate import MEASURES, Judgement
from cost_models.feature_cache import FeatureCache
from cost_models.registry import Registry
from tests.cost_models.synthetic_runs import COUNT, records


@pytest.fixture(scope="module", autouse=True)
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Working out features takes longer than training on them: once is enough."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("features")
        patch.setattr(FeatureCache, "of_user", staticmethod(lambda: FeatureCache(folder)))
        yield


def fit(*runs: pd.DataFrame, folder: Path, dry_run: bool = False) -> retrain.RetrainReport:
    tables = {f"{number}.db": table for number, table in enumerate(runs)}
    return retrain.retrain(
        tables, Registry(folder), dry_run, rounds=25, threads=1, cache=FeatureCache.of_user()
    )


def shuffled(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """The same candidates with each other's latencies."""
    rng, spoilt = np.random.default_rng(seed), runs.copy()
    for rows in runs[runs["outcome"] == "ok"].groupby("workload_text").groups.values():
        spoilt.loc[rows, ["latency_ns", "ratio"]] = runs.loc[
            rng.permutation(rows), ["latency_ns", "ratio"]
        ].to_numpy()
    return spoilt


def test_a_first_model_is_promoted_over_the_analytic_one_and_says_of_what_it_is(tmp_path: Path) -> None:
    runs = records()
    dry = fit(runs, folder=tmp_path, dry_run=True)
    assert not dry.replaced
    assert "dry run" in dry.reason
    assert list(tmp_path.iterdir()) == []
    first = fit(runs[:300], runs[200:], folder=tmp_path)
    assert (first.replaced, first.version, first.runs) == (True, "v0001", len(runs))
    assert first.gain is not None
    assert first.gain.low > 0
    assert len(first.judged["new"]) == COUNT
    assert "significantly better" in str(first)
    stored = Registry(tmp_path).manifest("v0001")
    assert [(s.name, s.runs) for s in stored.sources] == [("0.db", 300), ("1.db", len(runs) - 200)]
    assert stored.sources[0].first < stored.sources[0].last < stored.sources[1].last
    assert {"autotune", "numpy"} <= stored.versions.keys()
    assert len(stored.folds) == COUNT
    assert set(first.to_dict()["models"]) == {"model0", "model1", "model2"}
    again = fit(runs, folder=tmp_path)
    assert not again.replaced, "the same data make no better model"
    assert set(again.judged) == {"new", "analytic", "in use"}


def test_too_few_workloads_are_refused(tmp_path: Path) -> None:
    for runs in (records()[:0], records(count=gate.WORKLOADS - 1)):
        report = fit(runs, folder=tmp_path)
        assert not report.replaced
        assert "too few workloads to tell" in report.reason


def test_a_model_of_another_version_is_replaced_by_one_that_beats_the_analytic_model(tmp_path: Path) -> None:
    fit(records(), folder=tmp_path)
    old = Registry(tmp_path).manifest("v0001")
    replace(old, schema="other").write(tmp_path / "v0001")
    report = fit(records(), folder=tmp_path)
    assert report.replaced
    assert "v0001 is of another version of autotune and was not compared" in report.reason


def judgement(batch: list[float], top1: float = 0.9) -> Judgement:
    values = np.zeros((len(batch), len(MEASURES)))
    values[:, MEASURES.index("batch")] = batch
    values[:, MEASURES.index("top1")] = top1
    names = tuple(str(number) for number in range(len(batch)))
    return Judgement(names, names, names, values, np.full(len(batch), 9))


def test_the_gate_asks_for_a_gain_beyond_doubt() -> None:
    noise = np.random.default_rng(0).normal(0, 0.05, 30)
    serving = judgement([-0.2] * 30)
    assert gate.verdict(judgement(list(noise - 0.1)), serving, "v1").promoted
    assert not gate.verdict(judgement(list(noise - 0.19)), serving, "v1").promoted, "not significant"
    assert not gate.verdict(judgement(list(noise[:19] - 0.1)), judgement([-0.2] * 19), "v1").promoted, (
        "too few"
    )
    worse_first = gate.verdict(judgement(list(noise - 0.1), top1=0.8), serving, "v1")
    assert "its first choice is worse" in worse_first.reason


def test_few_promotions_are_worse_on_workloads_that_nobody_saw() -> None:
    """Of 80 new models as often worse as better, by less than workloads differ."""
    rng = np.random.default_rng(0)
    gains = rng.normal(0, 0.04, 80)
    promoted = [
        gate.verdict(judgement(list(rng.normal(gain - 0.3, 0.1, 25))), judgement([-0.3] * 25), "v1").promoted
        for gain in gains
    ]
    assert sum(promoted) >= 10
    assert np.mean(gains[promoted] < 0) <= 0.05


@pytest.mark.parametrize("seed", range(2))
def test_noise_is_never_promoted(tmp_path: Path, seed: int) -> None:
    assert not fit(shuffled(records(), seed), folder=tmp_path).replaced
