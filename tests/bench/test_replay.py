"""Recorded spaces: files, finite pools, searches without measuring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas
import pytest
from optuna.samplers import TPESampler

from autotune.bench.replay.compare import (
    JOB,
    MODELS,
    Method,
    SearchComparison,
    Searches,
    compare,
    methods_of,
    priors,
)
from autotune.bench.replay.near import warm_starts
from autotune.bench.replay.record import Effort, record
from autotune.bench.replay.recording import (
    COLUMNS,
    CORES,
    FREE,
    NOT_FREE,
    CandidateRecording,
    RecordingFacts,
    read_all,
)
from autotune.bench.replay.search import ALONE, INSIDE, Answers, RecordedModel, search
from autotune.calibration import cores
from autotune.cli.main import run
from autotune.errors import UsageError
from autotune.schedule.knob import Config, config_to_json
from autotune.target import Target
from autotune.tuning.search.samplers import SAMPLERS
from autotune.tuning.search.warm_start import TRIALS
from cost_models import analytic, retrain
from cost_models.interval import ConfidenceInterval
from cost_models.manifest import RankerManifest
from cost_models.registry import Registry
from cost_models.retrain import RetrainReport
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make

TARGET = Target.parse("x86-64-v3", threads=2)


@cache
def made(count: int = 40, model: str = "made", rows: int = 512) -> CandidateRecording:
    """Candidates of a product with latencies that the analytic model has an idea of; the default is the slowest."""
    workload = make.matmul(rows, 512, 512)
    space, rng = space_for(workload, TARGET), np.random.default_rng(0)
    configs = space.random(rng, count)
    seconds = analytic.predict(space, configs) * rng.lognormal(sigma=0.2, size=count)
    slowest = int(seconds.argmax())
    configs.insert(0, configs.pop(slowest))
    seconds = np.concatenate([seconds[[slowest]], np.delete(seconds, slowest)])
    keys = [f"{number:064x}" for number in range(count)]
    columns = {
        "trace_key": keys,
        "code_key": keys,
        "outcome": "ok",
        "ratio": seconds / seconds[0],
        "turns": 3,
    }
    inside = np.where(np.arange(count) % 3 == 0, columns["ratio"], np.nan)
    table = pandas.DataFrame(
        {"config": [config_to_json(c) for c in configs], **columns, "inside": inside, "rounds": 3}
    )
    facts = RecordingFacts(
        model,
        "product",
        workload.text,
        TARGET.to_json(),
        space.family,
        space.size(),
        1e6,
        1e6,
        {"processor": "none"},
    )
    return CandidateRecording(facts, table[list(COLUMNS)])


def changed(change: Any) -> CandidateRecording:
    """The recording with other configurations."""
    table = made().table.assign(config=[json.dumps(change(json.loads(text))) for text in made().table.config])
    return CandidateRecording(made().facts, table)


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = made().write(tmp_path)
    (found,) = read_all(tmp_path)
    assert path.name == "made-product.parquet"
    assert found.facts == made().facts
    pandas.testing.assert_frame_equal(found.table, made().table)


def test_a_file_has_as_much_of_its_keys_as_tells_them_apart(tmp_path: Path) -> None:
    keys = [f"{number:02x}" * 32 for number in range(40)]
    recording = CandidateRecording(
        made().facts, made().table.assign(trace_key=keys, code_key=["", *keys[1:]])
    )
    found = CandidateRecording.read(recording.write(tmp_path))
    assert found.table.trace_key.tolist() == [key[:12] for key in keys]
    assert found.table.code_key.tolist() == ["", *(key[:12] for key in keys[1:])]


def test_labels_are_readings_alone_where_nothing_was_read_inside() -> None:
    alone = CandidateRecording(made().facts, made().table.assign(inside=np.nan))
    labels = alone.training_table(inside=True).ratio
    assert labels.tolist() == alone.table.ratio.tolist()
    assert made().training_table(inside=True).ratio[made().table.inside.isna()].min() >= 1


def test_a_cost_model_is_trained_on_recordings_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made().write(tmp_path / "runs")
    command = ["retrain", "--recordings", str(tmp_path / "runs"), "--export", str(tmp_path / "model")]
    assert run(command) == 0
    out = capsys.readouterr().out
    assert "too few workloads to tell" in out
    assert f"nothing is written to {tmp_path / 'model'}" in out

    def promoted(
        tables: dict[str, pandas.DataFrame], registry: Registry, *_: object, **__: object
    ) -> RetrainReport:
        assert len(tables[str(tmp_path / "runs")]) == len(made().table)
        (registry.folder / "v0001").mkdir()
        RankerManifest("cost-model", "", {}).write(registry.folder / "v0001")
        return RetrainReport(True, "better", 1, 1, (), {}, "v0001")

    monkeypatch.setattr(retrain, "retrain", promoted)
    assert run(command) == 0
    assert (tmp_path / "model" / "manifest.json").exists()
    assert f"written to {tmp_path / 'model'}" in capsys.readouterr().out
    assert run(command) == 2
    assert "model is there already; name a folder that is not" in capsys.readouterr().err


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no recordings; make some: autotune replay candidates MODEL"):
        read_all(tmp_path)
    made().table.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(UsageError, match="is no recording of `autotune replay candidates`"):
        read_all(tmp_path)
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="cannot read"):
        read_all(tmp_path)


def test_a_recording_outlives_new_knobs_but_not_a_new_space() -> None:
    name = next(k.name for k in made().space.knobs if k.name == "unroll")
    legal, rows = changed(lambda c: {k: v for k, v in c.items() if k != name}).today
    assert len(legal) == len(rows) > 20
    assert {config[name] for config in legal} == {made().space.default()[name]}
    with pytest.raises(
        UsageError, match="made product: 0 of 40 recorded candidates are legal in today's space"
    ):
        _ = changed(lambda c: {**c, "gone": 1}).today


def test_a_search_begins_near_todays_default_where_the_recorded_one_is_not_legal() -> None:
    assert Answers(made()).default == made().today[0][0]
    first = made().table.config[0]
    table = made().table.assign(
        config=[c if c != first else c.replace("{", '{"gone": 1, ', 1) for c in made().table.config]
    )
    answers = Answers(CandidateRecording(made().facts, table))
    untuned = answers.space.of([analytic.default_config(made().space)]).indexes[0]
    far = answers.space.distances(untuned)
    (chosen,) = _rows(answers.space, answers.space.of([answers.default]))
    assert len(far) == 39
    assert far[chosen] == far.min()


def test_only_recorded_candidates_exist() -> None:
    space = Answers(made()).space
    everything = set(map(config_to_json, space.pool.configs()))
    rng = np.random.default_rng(1)
    assert set(map(config_to_json, space.population(rng, 512).configs())) == everything
    assert len(space.population(rng, 8)) == 8
    centre = space.pool.take([3])
    near = space.neighbourhood(centre)
    assert set(map(config_to_json, near.configs())) <= everything - {config_to_json(centre.config(0))}
    far = sorted(space.distances(centre.indexes[0]))
    assert far[0] == 0
    assert sorted(space.distances(centre.indexes[0])[i] for i in _rows(space, near)) == far[1 : len(near) + 1]


def _rows(space: Any, some: Any) -> list[int]:
    return [space.pool.codes().tolist().index(code) for code in some.codes().tolist()]


@pytest.mark.parametrize("sampler", ["guided", *(name for name in SAMPLERS if name not in ("gp", "grid"))])
def test_every_sampler_finds_the_best_when_it_may_try_everything(sampler: str) -> None:
    answers = Answers(made())
    curve = search(answers, sampler, RecordedModel(answers), trials=40, seed=1)
    assert curve[0] == pytest.approx(1)
    assert curve[-1] == pytest.approx(answers.best)
    assert (np.diff(curve) <= 0).all()


def test_equal_seeds_search_alike() -> None:
    answers = Answers(made())
    for sampler in ("guided", "tpe", "nsga2", "random"):
        curves = [search(answers, sampler, RecordedModel(answers), trials=24, seed=s) for s in (5, 5, 6)]
        assert (curves[0] == curves[1]).all()
        assert sampler == "guided" or (curves[0] != curves[2]).any()


def test_a_sampler_of_ones_own_is_compared() -> None:
    own = Method(lambda seed: TPESampler(seed=seed, n_startup_trials=4))
    found = compare([made()], [own, Method("random")], Searches(trials=16, seeds=2, by=ALONE))
    assert found.curves.shape == (2, 1, 2, 16)
    assert (found.curves >= 0).all()


def test_failed_candidates_are_never_the_best() -> None:
    table = made().table.copy()
    best = int(table.ratio.argmin())
    table.loc[best, ["outcome", "ratio", "inside"]] = ["wrong_result", np.nan, np.nan]
    answers = Answers(CandidateRecording(made().facts, table))
    assert answers.best == pytest.approx(table.ratio.min())
    assert search(answers, "tpe", RecordedModel(answers), trials=40, seed=0)[-1] == pytest.approx(
        answers.best
    )


def test_inside_a_candidate_that_was_not_read_there_is_no_better_than_the_default() -> None:
    found, table = Answers(made(), INSIDE).ratios, made().table
    unread = table.inside.isna().to_numpy()
    assert (found[unread] == np.maximum(1, table.ratio[unread])).all()
    assert (found[~unread] == table.inside[~unread]).all()


def test_every_cost_model_guides() -> None:
    methods = [Method("guided", model) for model in MODELS]
    found = compare(of_two_models(), methods, Searches(trials=12, seeds=2, by=ALONE))
    assert [method.name for method in found.methods] == [
        "guided",
        *(f"guided, model {model}" for model in MODELS if model != JOB),
    ]
    assert all(found.regret(number, 12).mean >= 0 for number in range(len(methods)))


def of_two_models() -> list[CandidateRecording]:
    """Two workloads of each."""
    return [made(), made(rows=64), made(model="other", rows=128), made(model="other", rows=256)]


def test_a_prior_has_learnt_from_other_models_only() -> None:
    first, second, third, fourth = (recording.space.workload.key for recording in of_two_models())
    found = priors(of_two_models(), inside=False)
    assert {name: set(ranker.folds) for name, ranker in found.items()} == {
        "made": {third, fourth},
        "other": {first, second},
    }
    shared = made(model="other", rows=64)
    with pytest.raises(UsageError, match="too few workloads of other models than other: 1, needed 2"):
        priors([*of_two_models(), shared], inside=False)


def test_a_warm_start_begins_with_the_best_of_other_workloads_only() -> None:
    recordings = of_two_models()
    pools = [Answers(recording) for recording in recordings]
    starts = warm_starts(recordings, pools, ALONE)
    for answers, start in zip(pools, starts, strict=True):
        assert 1 <= len(start) <= TRIALS
        assert all(config in answers.space.pool.configs() for config in start)
        assert answers.default not in start
    assert warm_starts(recordings[:1], pools[:1], ALONE) == [[]], (
        "what it knows of the workload itself is left out"
    )
    alike = [replace_model(recordings[0], "twin")]
    assert warm_starts(alike, pools[:1], ALONE) == [[]], "whatever model it is of"
    assert warm_starts(recordings[1:2], pools[:1], ALONE) != [[]]


def replace_model(recording: CandidateRecording, model: str) -> CandidateRecording:
    return CandidateRecording(replace(recording.facts, model=model), recording.table)


def test_searches_with_and_without_a_warm_start_are_compared() -> None:
    methods = methods_of(["guided", "random"], [JOB], warm_start=True)
    assert [method.name for method in methods] == [
        "guided",
        "guided, warm start",
        "random",
        "random, warm start",
    ]
    found = compare(of_two_models(), methods, Searches(trials=12, seeds=1, by=ALONE))
    starts = warm_starts(of_two_models(), [Answers(r) for r in of_two_models()], ALONE)
    assert found.near == tuple(map(len, starts))
    first = [_least(recording, start) for recording, start in zip(of_two_models(), starts, strict=True)]
    for number in (1, 3):
        begun = [found.curves[number, w, 0, n] for w, n in enumerate(found.near)]
        np.testing.assert_allclose(begun, first, err_msg="after the default they come first")
    together = compare(of_two_models(), methods, Searches(trials=12, seeds=1, by=ALONE, processes=2))
    assert (together.curves == found.curves).all()


def _least(recording: CandidateRecording, configs: Sequence[Config]) -> float:
    """log of the least latency of the default and of some candidates, over the least recorded."""
    answers = Answers(recording)
    known = dict(zip(map(config_to_json, recording.today[0]), answers.ratios, strict=True))
    least = min(known[config_to_json(config)] for config in (answers.default, *configs))
    return float(np.log(least / answers.best))


def test_trials_to_near_the_best_are_counted_where_there_is_something_to_find() -> None:
    far, near = np.log(1.2), np.log(1.04)
    curves = np.asarray([[[far, far, near, 0], [far, far, far, far]], [[near, near, 0, 0]] * 2])
    found = SearchComparison(
        (Method("random"),) * 2, ("a", "b"), (9, 9), (0.5, 0.5), np.stack([curves, curves / 9])
    )
    np.testing.assert_array_equal(found.trials(0), [[3, 5], [np.nan, np.nan]])
    assert found.trials_mean(0).mean == pytest.approx(15**0.5)
    faster = replace(found, curves=np.stack([curves, curves - [0, far, far, 0]]))
    assert faster.trials_mean(1, 0).mean == pytest.approx((15 / 4) ** 0.5)


def test_processes_find_the_same() -> None:
    alone, together = (
        compare([made()], [Method("random")], Searches(trials=12, seeds=2, by=ALONE, processes=n))
        for n in (1, 2)
    )
    assert (alone.curves == together.curves).all()


def test_an_interval_holds_its_mean() -> None:
    found = ConfidenceInterval.of(np.random.default_rng(0).normal(2.0, 0.1, 20))
    assert found.low < found.mean < found.high
    assert 0.03 < found.high - found.low < 0.2
    assert ConfidenceInterval.of(np.ones(5)) == ConfidenceInterval(1.0, 1.0, 1.0)


def test_compare_prints_tables_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made().write(tmp_path)
    arguments = ["replay", "samplers", str(tmp_path), "--trials", "16", "--seeds", "2", "--processes", "1"]
    assert (
        run([*arguments, "--samplers", "guided,random", "--models", "job", "-o", str(tmp_path / "page.md")])
        == 0
    )
    out = capsys.readouterr().out
    assert "1 workload, 2 seeds" in out
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "- recorded on: none" in page
    assert "| made product | 40 |" in page
    assert run([*arguments, "--samplers", "random", "--warm-start"]) == 0
    out = capsys.readouterr().out
    assert "saved by the warm start" in out
    assert "warm start: 0 of 1 workload begin with candidates of others" in out
    assert run([*arguments, "--samplers", "random", "--json"]) == 0
    row, one = json.loads(capsys.readouterr().out)["data"]
    assert row["regret"]["mean"] == pytest.approx(one["regret"]["mean"])
    assert (row["sampler"], one["workload"]) == ("random", "made product")


def test_compare_says_what_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made().write(tmp_path)
    for extra, message in (
        (["--samplers", "tp"], "unknown sampler 'tp'; there are: guided, tpe"),
        (["--models", "jobs"], "unknown model 'jobs'; there are: job"),
        (["--trials", "40"], "has more than 40 candidates"),
    ):
        assert run(["replay", "samplers", str(tmp_path), *extra]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("shared_pools")
def test_candidates_are_recorded_beside_the_default_alone_and_inside() -> None:
    effort = Effort(candidates=4, turns=1, share=0.5, processes=1, workloads=1)
    said: list[str] = []
    target = Target.detect(threads=1)
    (found,) = record("zoo:tiny_cnn", ["010_average*"], target, effort, said.append)
    assert found.facts.model == "tiny_cnn"
    assert 4 <= len(found.table) <= 5
    assert set(found.table.outcome) == {"ok"}
    assert found.table.ratio.gt(0).all()
    assert found.table.inside.notna().sum() >= 1
    assert found.today[0][0] == analytic.default_config(found.space)
    with pytest.raises(UsageError, match="no dispatch is called 'nothing'; there are: "):
        record("zoo:tiny_cnn", ["nothing"], target, effort, said.append)


@pytest.mark.usefixtures("shared_pools")
@pytest.mark.parametrize(
    ("free", "timed", "fact"),
    [([True, True], 1, FREE), ([True, False, True, True], 2, FREE), ([False] * 3, 3, NOT_FREE)],
)
def test_a_workload_is_timed_again_where_the_cores_were_not_free(
    monkeypatch: pytest.MonkeyPatch, free: list[bool], timed: int, fact: str
) -> None:
    answers = iter(free)
    monkeypatch.setattr(cores, "are_free", lambda probe: next(answers))
    said: list[str] = []
    effort = Effort(candidates=2, turns=1, share=0, workloads=1)
    (found,) = record("zoo:tiny_cnn", ["010_average*"], Target.detect(threads=1), effort, said.append)
    assert sum("timing" in line for line in said) == timed
    assert sum("not all cores were free" in line for line in said) == sum(not x for x in free)
    assert found.facts.machine[CORES] == fact
    assert found.table.turns.min() >= 1


@dataclass
class Prior:
    """A model of earlier jobs that knows the recorded latencies or, where ``sign`` is -1, their reverse."""

    sign: float

    def predict(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        answers = Answers(made())
        scores = -self.sign * np.log(answers.ratios[_order(answers)])
        known = {row.tobytes(): score for row, score in zip(answers.features, scores, strict=True)}
        return np.asarray([known[row.tobytes()] for row in x], np.float32)


def _order(answers: Answers) -> list[int]:
    """The row of the recording of each candidate of the pool."""
    recorded = [config_to_json(config) for config in answers.recording.today[0]]
    return [recorded.index(config_to_json(config)) for config in answers.space.pool.configs()]


def test_a_prior_steers_the_whole_job() -> None:
    answers = Answers(made())
    pool = answers.space.pool
    ranked = {}
    for sign in (1, -1):
        model: Any = RecordedModel(answers, cast("Any", Prior(sign)))
        configs = [pool.config(row) for row in range(24)]
        for config in configs:
            model.observe(answers.space, [config], [1e6])
        assert not model.learn(), "24 runs without a difference teach nothing"
        ranked[sign] = np.argsort(model.score(answers.space, pool, answers.features))
        model.observe(answers.space, configs[:2], [2e6, 3e6])
    assert ranked[1].tolist() == ranked[-1].tolist()[::-1]


def test_a_prior_stays_when_the_job_has_trained_its_own() -> None:
    answers = Answers(made())
    pool, ns = answers.space.pool, answers.ratios[_order(Answers(made()))]
    first = {}
    for sign in (1, -1):
        model = RecordedModel(answers, cast("Any", Prior(sign)))
        model.observe(answers.space, [pool.config(row) for row in range(24)], ns[:24].tolist())
        assert model.learn()
        first[sign] = set(np.argsort(-model.score(answers.space, pool, answers.features))[:8].tolist())
    assert first[1] != first[-1]


def test_a_good_prior_saves_trials_and_a_reversed_one_is_overcome() -> None:
    answers = Answers(made())

    def trials(prior: Prior | None, seed: int) -> int:
        model = RecordedModel(answers, cast("Any", prior))
        near = answers.best / search(answers, "guided", model, trials=20, seed=seed) >= 0.95
        return int(near.argmax()) + 1 if near.any() else 21

    good, without, bad = (
        np.mean([trials(prior, seed) for seed in range(3)]) for prior in (Prior(1), None, Prior(-1))
    )
    assert good <= bad / 2
    assert good < without
    assert bad < 25
