"""A made-up tuning database, and the times of its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.bench.queries import filling, material, timing
from autotune.database import Hit
from autotune.database.store import Database
from autotune.errors import UsageError
from autotune.target import Target


def test_a_made_up_database_is_sound_and_answers(tmp_path: Path) -> None:
    where = str(tmp_path / "x.db")
    models, here = list(material.models(["tiny_cnn"])), [Target.detect()]
    with Database(where) as database:
        filled = filling.fill(database, models, here, runs=300, seed=0, say=lambda text: None)
        assert database.damage() == []
        assert filled.runs == sum(database.outcomes().values()) > 100
        assert min(filled.readings, filled.comparisons) > 0
        found = [database.lookup(one.workload.key, one.target.key, one.space) for one in filled.tuned]
        assert all(isinstance(one, Hit) for one in found)
        with pytest.raises(UsageError, match="is not empty"):
            filling.fill(database, models, here, runs=1, seed=0, say=lambda text: None)
    asked = list(timing.timed(where, filled, models, 2, seed=0))
    assert {len(times.wall) for times in asked} <= {1, 2}
    assert all(len(times.wall) == len(times.processor) for times in asked)
