"""The benchmark of the analytic cost model: what it says of measured samples, and their way through JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autotune.bench.experiment import frame_of
from autotune.errors import UsageError
from autotune.target import Target
from cost_models import analytic
from results.bench import predictions
from results.bench.predictions import Sample, record_of
from results.bench.whole_models import Foreseen, geometric_error
from search_spaces.spaces import space_for


def _sample(order: int) -> Sample:
    """Times in the order that the model predicts (1) or in the opposite one (-1)."""
    family, name, workload = predictions.cases(["softmax"])[0]
    target = Target.parse("x86-64-v3", threads=1)
    space = space_for(workload, target)
    configs = space.random(np.random.default_rng(0), 20)
    times = np.argsort(np.argsort(order * analytic.predict(space, configs), kind="stable")) + 1.0
    return Sample(family, name, workload.text, target.to_json(), tuple(configs), tuple(map(float, times)))


def test_every_region_of_the_suite_belongs_to_its_family() -> None:
    target = Target.parse("x86-64-v3")
    for family, name, workload in predictions.cases():
        assert space_for(workload, target).family == family, name


def test_correlation_and_regret_follow_the_order() -> None:
    right, wrong = _sample(1), _sample(-1)
    assert right.correlation > 0.95
    assert wrong.correlation < -0.95
    assert right.regret == 1.0
    assert wrong.regret > 1.0
    assert right.group == "softmax, x86-64-v3, 1 thread"
    families, workloads = predictions.EXPERIMENT.tables(frame_of([*map(record_of, (right, wrong))]))
    ((group, correlation, *_),) = families.rows
    assert group == right.group
    assert abs(float(correlation)) <= 0.05
    assert len(workloads.rows) == 1


def test_samples_go_through_json(tmp_path: Path) -> None:
    sample, path = _sample(1), tmp_path / "runs.json"
    whole = Foreseen("mlp", 1, 2e6, (1e6, 4e6), 1e6, 1000, 1000, 3000, 1000)
    data = [record_of(sample), record_of(whole)]
    path.write_text(json.dumps({"data": data}), encoding="utf-8")
    assert predictions.read(path) == ([sample], [whole])


def test_whole_models_say_how_far_off_they_were() -> None:
    whole = Foreseen("mlp", 1, 2e6, (1.5e6, 3e6), 1e6, 1000, 1000, 3000, 1000)
    assert (whole.ratio, whole.holds, whole.memory_ratio) == (2.0, False, 2.0)
    assert geometric_error([2.0, 0.5]) == pytest.approx(2.0)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"data": [{"of": "region", "family": "pool"}]}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"holds no samples of `python -m results\.bench predictions"):
        predictions.read(path)
