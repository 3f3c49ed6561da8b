"""A year of retraining through a real database, and retrainings of resampled workloads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas
import pytest

import autotune
from autotune.bench.replay.recording import COLUMNS, CandidateRecording, RecordingFacts
from autotune.cli.main import run
from autotune.database import Database
from autotune.schedule.knob import config_to_json
from autotune.tuning.jobs import job
from autotune.tuning.search.online_model import OnlineModel
from cost_models import dataset
from cost_models.feature_cache import FeatureCache
from results.bench import retraining
from results.bench.__main__ import command
from results.bench.recorded_runs import RecordedRuns
from results.bench.retraining import Earlier, Effort
from tests.bench.test_replay import made
from tests.cost_models.synthetic_runs import COUNT, records, spaces

EFFORT = 25
MONTHS = 5


@cache
def recorded(most: int = 40) -> RecordedRuns:
    """The synthetic runs as recordings."""
    rows = records(failing=False)
    found = []
    for number, space in enumerate(spaces()):
        mine = rows[rows.workload_text == space.workload.text].reset_index(drop=True)
        keys = [f"{row:064x}" for row in range(len(mine))]
        table = pandas.DataFrame(
            {
                "config": mine.config.map(config_to_json),
                "trace_key": keys,
                "code_key": keys,
                "outcome": "ok",
                "ratio": mine.ratio / mine.ratio[0],
                "turns": 4,
                "inside": np.nan,
                "rounds": 0,
            }
        )
        target, text = space.target.to_json(), space.workload.text
        facts = RecordingFacts(
            f"m{number % 3}", f"{number}", text, target, space.family, space.size(), 1e6, None, {}
        )
        found.append(CandidateRecording(facts, table[list(COLUMNS)]))
    return RecordedRuns(found, most)


@pytest.fixture(scope="module")
def effort(tmp_path_factory: pytest.TempPathFactory) -> Effort:
    return Effort(EFFORT, 1, FeatureCache(tmp_path_factory.mktemp("features")))


def test_runs_are_dealt_to_months_and_stored_as_a_job_stores_them(tmp_path: Path, effort: Effort) -> None:
    runs = recorded()
    month = runs.dealt(np.arange(4, COUNT), MONTHS, np.random.default_rng(0))
    assert set(month.tolist()) == {-1, *range(MONTHS)}
    with Database(tmp_path / "tuning.db") as database:
        for number in range(MONTHS):
            runs.store(database, month == number)
        table = autotune.database.training.training_table(database)
    assert len(table) == (month >= 0).sum() == 40 * (COUNT - 4)
    stored, given = (dataset.build(t, effort.cache) for t in (table, runs.table(range(4, COUNT))))
    assert set(stored.workloads) == set(given.workloads)
    assert sorted(stored.latency) == pytest.approx(sorted(given.latency)), "ratios to the default"


def test_a_year_in_miniature(monkeypatch: pytest.MonkeyPatch, effort: Effort) -> None:
    """Runs are added and the model is retrained; a poisoned batch and a useless one are refused; the way back."""
    monkeypatch.setattr(retraining, "MONTHS", MONTHS)
    monkeypatch.setattr(retraining, "POISONED", 3)
    monkeypatch.setattr(retraining, "USELESS", 4)
    found = retraining.year(recorded(), effort, 0, lambda text: None)
    assert len(found.steps) == MONTHS + 2
    spoilt = {step.batch.strip(): step for step in found.steps if step.batch.startswith(" ")}
    assert set(spoilt) == {"poisoned", "known runs again"}
    assert not any(step.report.replaced for step in spoilt.values())
    promoted = [step.report.version for step in found.steps if step.report.replaced]
    assert promoted == [f"v{number + 1:04d}" for number in range(len(promoted))]
    assert promoted
    assert all(step.unseen.mean >= 0 for step in found.steps if step.unseen is not None)
    assert found.rollbacks == (*reversed(promoted[:-1]), None)
    assert all("significantly better" in told for told in found.manifests)


def test_more_workloads_replace_a_model_of_few_and_hold_elsewhere(
    monkeypatch: pytest.MonkeyPatch, effort: Effort
) -> None:
    monkeypatch.setattr(retraining, "RETRAINED", (0.9,))
    found = retraining.resampled(recorded(), effort, 1, 0, lambda text: None)
    assert [(one.earlier, one.share) for one in found] == [(earlier, 0.9) for earlier in Earlier]
    for step in (one.step for one in found):
        assert step.report.judged.keys() == {"new", "in use", "analytic"}
        assert step.report.replaced == (step.unseen is not None)
        assert step.in_use == ("v0002" if step.report.replaced else "v0001")
    few, spoilt = (one.step.report.judged["in use"].of("batch").mean() for one in found)
    assert spoilt < few, "shuffled readings teach nothing"


@pytest.mark.usefixtures("shared_pools")
def test_a_job_begins_with_the_model_that_a_database_was_retrained_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: Effort
) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    monkeypatch.setattr(FeatureCache, "of_user", staticmethod(lambda: effort.cache))
    with Database(tmp_path / "tuning.db") as database:
        recorded().store(database, np.ones(40 * COUNT, np.bool_))
    report = autotune.retrain()
    assert (report.replaced, report.version) == (True, "v0001")
    begun: list[OnlineModel] = []
    monkeypatch.setattr(job.Job, "run", lambda self: begun.append(self.prior))
    autotune.tune("zoo:tiny_cnn", budget=autotune.Budget(trials=1), threads=1, quiet=True)
    stored = autotune.tuning.api.cost_model_registry().load()
    assert stored is not None
    x = dataset.build(recorded().table([0]), effort.cache).x
    np.testing.assert_array_equal(begun[0].predict(x), stored.ranker.predict(x))


def test_too_few_recordings_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made().write(tmp_path)
    assert run(["retraining", "--recordings", str(tmp_path)], command, "python -m results.bench") == 2
    assert "1 recorded workloads are too few: the gate needs 20" in capsys.readouterr().err
