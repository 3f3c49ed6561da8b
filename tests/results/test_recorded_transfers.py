"""Expectations of schedules of other sizes, over candidates that were recorded for both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from autotune.bench.replay.recording import COLUMNS, CandidateRecording, RecordingFacts
from autotune.schedule.knob import config_to_json
from autotune.target import Target
from cost_models import analytic
from cost_models.known_error import known_error
from results.bench import predictions
from results.bench.predictions import Sample
from results.bench.recorded_transfers import NEAR, summaries, transferred
from search_spaces.projection import projected
from search_spaces.spaces import space_for

TARGET = Target.parse("x86-64-v3", threads=1)


def recordings() -> list[CandidateRecording]:
    """Two softmaxes: candidates of the first, and what they are projected to in the second, where all take twice as
    long over the default as there."""
    (_, _, small), (_, _, large) = predictions.cases(["softmax"])[:2]
    first, second = space_for(small, TARGET), space_for(large, TARGET)
    default = analytic.default_config(second)
    configs = [analytic.default_config(first), *first.random(np.random.default_rng(0), 12)]
    there = {config_to_json(projected(second, config, default)): None for config in configs}
    texts = [config_to_json(default), *(text for text in there if text != config_to_json(default))]
    one = [1.0, *np.linspace(0.8, 1.5, len(configs) - 1)]
    return [
        made(small.text, [config_to_json(config) for config in configs], one),
        made(large.text, texts, [1.0] + [1.7] * (len(texts) - 1)),
    ]


def made(workload: str, configs: list[str], ratios: list[float]) -> CandidateRecording:
    keys = [f"{row:064x}" for row in range(len(configs))]
    columns = dict.fromkeys(COLUMNS, 1) | {
        "config": configs,
        "trace_key": keys,
        "code_key": keys,
        "outcome": "ok",
        "ratio": ratios,
        "inside": np.nan,
    }
    facts = RecordingFacts("m", "softmax", workload, TARGET.to_json(), "softmax", 100, 1e6, None, {})
    return CandidateRecording(facts, pandas.DataFrame(columns)[list(COLUMNS)])


def test_candidates_near_the_default_of_one_size_say_what_is_expected_of_another() -> None:
    first, second = recordings()
    found = list(transferred([first, second]))
    assert found
    assert all(one.known <= NEAR for one in found)
    assert {one.ratio for one in found} == {1.7}
    one = found[0]
    assert one.expected == one.known * one.predicted
    assert one.error == pytest.approx(np.log(1.7 / one.expected))
    faster, *_ = summaries(found)
    assert faster["pairs"] == sum(one.known <= 0.95 for one in found)
    assert not list(transferred([first])), "one size says nothing of another"


def test_errors_are_fitted_to_what_is_read() -> None:
    family, name, workload = predictions.cases(["softmax"])[0]
    samples = []
    for cpu, factor in (("znver4", 2.0), ("znver4", 8.0), ("x86-64-v3", 3.0)):
        target = replace(TARGET, cpu=cpu)
        space = space_for(workload, target)
        configs = tuple(space.random(np.random.default_rng(0), 5))
        times = tuple(1e9 * analytic.predict(space, configs) / factor)
        samples.append(Sample(family, name, workload.text, target.to_json(), configs, times))
    ((error, count),) = predictions.fitted(samples).values()
    assert (error.scale, count) == (pytest.approx(4.0), 2)
    assert error.spread == pytest.approx(np.std(np.log([2, 8]), ddof=1))
    error, count = predictions.fitted_level(samples)
    assert (error.scale, count) == (pytest.approx(3.0 / known_error(family).scale), 1)
