"""Jobs whose candidates all have their default's machine code report no gain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import binom

from autotune.database import Latency, Outcome, State
from autotune.tuning.compare.paired import ERROR_RATE
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Profile, Version
from results.bench.same_code import SameCode
from tests.tuning.simulated import SimulatedMeasurer
from tests.tuning.synthetic import TARGET
from tests.tuning.test_job import A, Model, job


class Noisy(Model):
    """Whatever a version has, each round draws what it takes."""

    rng = np.random.default_rng(0)

    def _one(self, version: Version, rounds: Rounds) -> Profile:
        ns = 1000.0 * np.exp(self.rng.normal(0, 0.1, (rounds.most, 1)))
        return Profile([(f"{A.name}0", A.workload.key)], ns)


class Builder(SimulatedMeasurer):
    """Each schedule has code of its own; what it takes is drawn anew at each reading."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._read)
        self.rng = np.random.default_rng(seed)
        self.objects: list[object] = []

    def build(self, candidates: list[Candidate]) -> list[Built]:  # type: ignore[override]
        return [replace(b, payload={"object": b.trace_key}) for b in super().build(candidates)]

    def measure(self, built: Built, default_ns: float) -> Measurement:
        self.objects.append(built.payload["object"])
        return super().measure(built, default_ns)

    def _read(self, candidate: Candidate) -> Measurement:
        ns = 1000.0 * float(np.exp(self.rng.normal(0, 0.1)))
        return Measurement(Outcome.OK, Latency(5, ns, ns, 0.0), 1e-7)


def test_candidates_keep_their_schedules_and_get_the_code_that_was_built_first() -> None:
    measurer = SameCode(Builder(0))
    candidates = [Candidate("w", TARGET.to_json(), {"x": x}) for x in (1, 2)]
    (first,), (second,) = (measurer.build([candidate]) for candidate in candidates)
    assert second.trace_key != first.trace_key
    assert second.payload == first.payload
    assert not second.same_code(first)
    assert json.loads(second.trace_json) == {"x": 2}


def test_noise_is_a_gain_as_rarely_as_is_said(tmp_path: Path) -> None:
    """Candidates are read and compared: the job does not know that their code is the same."""
    gains = []
    for seed in range(5):
        inner, model = Builder(seed), Noisy(A)
        model.rng = np.random.default_rng(seed)
        measurer = SameCode(inner)
        report = job(tmp_path / f"{seed}.db", A, trials=24, whole=model, measurer=measurer).run()
        assert len(set(inner.objects)) == 1
        assert len(inner.objects) > 10
        assert model.asked
        gains.append(report.dispatches[0].evidence.state is State.TUNED)
    assert sum(gains) <= binom.ppf(0.999, len(gains), ERROR_RATE)
