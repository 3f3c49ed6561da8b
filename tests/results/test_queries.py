"""A made-up tuning database, and the times of its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.database import Hit
from autotune.database.store import Database
from autotune.errors import MeasureError, UsageError
from autotune.target import Target
from results.bench.queries import filling, material, timing
from results.bench.queries.asking import Questions


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
    questions = timing.questions(where, filled, models, 2, seed=0)
    asked = list(timing.timed(questions, tmp_path / "home"))
    assert {len(times.wall) for times in asked} <= {1, 2}
    assert all(len(times.wall) == len(times.processor) for times in asked)
    assert "another target, by the next process" in {times.name for times in asked}
    assert list((tmp_path / "home" / "cache" / "defaults").iterdir())
    assert len(timing.command(where, "zoo:tiny_cnn", tmp_path / "home", 1).wall) == 1


def test_what_the_asking_process_cannot_do_is_said(tmp_path: Path) -> None:
    questions = Questions(str(tmp_path / "none.db"), (), (), ())
    assert Questions.from_json(questions.to_json()) == questions
    with pytest.raises(MeasureError, match=r"^the process that asks the database ended with 1$"):
        list(timing.timed(questions, tmp_path))
