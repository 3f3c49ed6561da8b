"""The run in use for memory or size: the smallest that was shown to be within the allowed slowdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.database import Database, Footprint, Hit, Origin, State
from autotune.database.goal import Goal, Objective
from autotune.database.records import Reading
from autotune.errors import UsageError
from tests.database.examples import KEY, compare, prepare, run, schedules

MEMORY, SIZE = Goal(Objective.MEMORY), Goal(Objective.SIZE)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """The default, and candidates of less memory or artifact that nobody has read beside it."""
    with Database(tmp_path / "tuning.db") as store:
        prepare(store)
        store.record(run("default", 100.0, footprint=Footprint(4096, 900), origin=Origin.DEFAULT))
        store.record(run("lean", 95.0, footprint=Footprint(1024, 950)))
        store.record(run("leaner", 90.0, footprint=Footprint(64, 990)))
        store.record(run("short", 100.0, footprint=Footprint(9000, 450)))
        store.record(run("unknown", 80.0))
        yield store


def used(database: Database, goal: Goal) -> Hit:
    found = database.lookup(KEY.workload, KEY.target, KEY.space, goal)
    assert isinstance(found, Hit)
    return found


def read(database: Database, **ratios: float) -> None:
    database.read_inside(KEY, [Reading(trace, ratio, 3, 100.0) for trace, ratio in ratios.items()], "net")


def test_readings_alone_change_nothing(database: Database) -> None:
    for goal in (MEMORY, SIZE):
        assert (used(database, goal).best.trace_key, used(database, goal).saving) == ("default", None)


def test_the_smallest_within_the_slowdown_is_used_by_readings_and_called_unconfirmed(
    database: Database,
) -> None:
    read(database, lean=1.05, leaner=1.2, short=1.09)
    found = used(database, MEMORY)
    assert found.best.trace_key == "lean"
    assert found.evidence.state is State.SMALLER_UNCONFIRMED
    assert str(found.evidence) == "smaller: 0.25 of the memory, 1.05 of the latency, unconfirmed"
    assert used(database, SIZE).best.trace_key == "short"
    assert used(database, Goal(Objective.SIZE, 1.05)).best.trace_key == "default"
    assert used(database, Goal(Objective.MEMORY, 1.3)).best.trace_key == "leaner"
    assert used(database, Goal()).best.trace_key == "default"


def test_few_readings_do_not_hide_a_slowdown(database: Database) -> None:
    """The estimate that a search learns from is drawn to the default's latency: here it would be 1.09."""
    read(database, lean=1.15)
    assert used(database, MEMORY).best.trace_key == "default"


def test_a_comparison_overrules_readings(database: Database) -> None:
    read(database, lean=1.0, leaner=1.5)
    runs = {run.trace_key: run for run in database.records()}
    compared = [(runs["default"], 100.0), (runs["lean"], 130.0), (runs["leaner"], 105.0)]
    compare(database, schedules(*compared, won="default"))
    found = used(database, MEMORY)
    assert found.best.trace_key == "leaner"
    assert str(found.evidence) == "smaller: 0.02 of the memory, 1.05 (1.04 to 1.06) of the latency"
    assert found.evidence.to_json()["saving"] == {
        "objective": "memory",
        "bytes": 64,
        "bytes_of_fastest": 4096,
        "slowdown": 1.05,
        "interval": pytest.approx((1.0395, 1.0605)),
        "confirmed": True,
    }
    near = used(database, Goal(Objective.MEMORY, 1.055)).evidence
    assert near.state is State.SMALLER_UNCONFIRMED  # its interval reaches beyond


def test_slowdown_is_over_the_fastest_not_over_the_default(database: Database) -> None:
    """0.95 of the default's latency is 1.19 times that of the winner."""
    runs = {run.trace_key: run for run in database.records()}
    compared = [(runs["default"], 100.0), (runs["short"], 80.0), (runs["leaner"], 95.0)]
    compare(database, schedules(*compared, won="short"))
    assert used(database, MEMORY).best.trace_key == "short"
    found = used(database, Goal(Objective.MEMORY, 1.25))
    assert found.best.trace_key == "leaner"
    assert found.saving is not None
    assert found.saving.ratio.median == pytest.approx(95 / 80)
    assert used(database, SIZE).saving is None  # the fastest is the smallest


def test_wrong_goals_are_refused() -> None:
    with pytest.raises(
        UsageError, match="unknown objective 'sise'\n  one of latency, memory, size; did you mean"
    ):
        Goal.of("sise")
    with pytest.raises(UsageError, match=r"max_slowdown 0\.9; allowed: 1"):
        Goal.of("size", 0.9)
