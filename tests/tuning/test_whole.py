"""A measurement of the whole model as evidence about all that was used in it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from autotune.compiler.plan import OPTION
from autotune.database import Database
from autotune.database.inside import Estimate
from autotune.database.posterior import (
    INERTIA,
    TOGETHER,
    LogDifference,
    Posterior,
    decided,
    posterior,
    standings,
    variance_of_row,
    variance_of_whole,
)
from autotune.database.records import SAME_CODE, Comparison, Latency, PartOfWhole, Ratio
from autotune.tuning.compare.questions import SCHEDULE
from autotune.tuning.compare.sites import Sites
from autotune.tuning.compare.whole import InUse, parts_of, refusals_of
from autotune.tuning.measure.gain import Gain
from tests.database.examples import KEY, prepare, run
from tests.tuning.test_sites import W, sites, task

TOOK = Latency(9, 1e5, 1e5, 1e3)


def gain(ratio: float, half: float = 0.005) -> Gain:
    """A model that takes this multiple of the untuned one's time."""
    return Gain(TOOK, TOOK, Ratio(ratio, (ratio * math.exp(-half), ratio * math.exp(half))), 9)


def tuned(count: int) -> tuple[Sites, InUse]:
    """Dispatches of equal latency, each with a schedule that was measured as 4 % faster."""
    names = [f"w{number}" for number in range(count)]
    runs = dict[str, Any]()
    found = sites(100.0, 20.0, 30.0)
    tasks, every = [], []
    for name in names:
        W[name] = cast(Any, type(W["plain"])(name, name))
        made: Any = task(name, 1, 100.0)
        made.space = type("Space", (), {"key": f"space {name}", "target": type("T", (), {"key": "t"})()})()
        row = Comparison("best", "k", TOOK, ratio=Ratio(0.96))
        made.inside["best"] = Estimate() + row + row
        tasks.append(made)
        other: Any = type(found.all[0].options[0])("direct", name)
        every.append(type(found.all[0])((name,), cast(Any, W[name]), (other,)))
        runs[name] = run("best", 90.0)
    return Sites(tasks, every), InUse({}, runs)


def means_after(ratio: float, count: int = 6) -> list[float]:
    """The expected logs of the schedules after the whole model was measured."""
    found, used = tuned(count)
    parts = parts_of(gain(ratio), used, found, lambda site: {})
    return [(found.task_of[key].inside["best"] + part).posterior.mean for (key, _, _), part in parts.items()]


def test_choices_that_are_slower_as_a_whole_lose_and_others_stay() -> None:
    before = [task.inside["best"].posterior.mean for task in tuned(6)[0].tasks]
    assert max(before) < -0.01
    assert min(means_after(1.03)) > 0
    assert means_after(math.exp(before[0])) == pytest.approx(before, abs=1e-3)
    assert max(means_after(0.9)) < min(before)


def test_what_should_take_next_to_nothing_is_given_up_in_a_model_that_is_slower_with_it() -> None:
    """Its part of the sum is too small to hear of it; others are given up with it."""
    found, used = tuned(3)
    tasks = {task.workload.key: task for task in found.tasks}
    tasks["w1"].inside["best"] = Estimate() + Comparison("best", "k", TOOK, ratio=Ratio(1 / 60))
    told = {}
    for name, rows in (("sum", parts_of), ("refusal", refusals_of)):
        parts = rows(gain(2.6), used, found, lambda site: {})
        told[name] = {
            key: (tasks[key].inside["best"] + row).posterior.mean for (key, _, _), row in parts.items()
        }
    assert told["sum"]["w1"] < -1
    assert min(told["refusal"].values()) > 0


def test_the_parts_hear_what_the_whole_says() -> None:
    """As if the sum, and what all have in common, had been put into one linear model."""
    found, used = tuned(4)
    before = [task.inside["best"].posterior for task in found.tasks]
    mean, variance, count = before[0].mean, before[0].error ** 2, 4
    spread = variance / count + TOGETHER**2
    weight = spread / (spread + variance_of_whole(gain(1.01).ratio, 0.0))
    parts = parts_of(gain(1.01), used, found, lambda site: {})
    for row in parts.values():
        surprise = math.log(1.01) - mean
        seen = LogDifference(0, 1, mean + surprise, variance_of_row(row))
        own = np.array([[variance, 0.0], [0.0, 1e-12]])
        alone, _ = posterior([mean, 0.0], own, [seen])
        assert alone[0] == pytest.approx(mean + weight * surprise, abs=1e-4)


def test_an_option_hears_of_it_too() -> None:
    rows = [
        Comparison("direct", "k", TOOK, True, created=1.0),
        Comparison("split", "k", TOOK, ratio=Ratio(0.95), created=1.0),
    ]
    part = PartOfWhole(0.9, -0.03, -0.027, 0.01, "direct")
    bad = Comparison("split", "k", TOOK, ratio=Ratio(1.05, (1.04, 1.06)), created=2.0, part=part)
    assert standings({"s": rows})["s"].order[0].name == "split"
    assert standings({"s": [*rows, bad]})["s"].order[0].name == "direct"


def test_a_whole_model_that_tells_nothing_of_an_option_changes_no_error() -> None:
    """It repeats no comparison: from how it agrees with them nothing follows about their scatter."""
    rows = [
        row
        for at in (1.0, 2.0)
        for row in (
            Comparison("direct", "k", TOOK, True, created=at),
            Comparison("split", "k", TOOK, ratio=Ratio(0.97), created=at),
        )
    ]
    part = PartOfWhole(0.2, -0.03, -0.027, 10.0, "direct")
    vague = Comparison("split", "k", TOOK, ratio=Ratio(1.05, (1.04, 1.06)), created=3.0, part=part)
    before, after = (
        {one.name: one.posterior for one in standings({"s": found})["s"].order}
        for found in (rows, [*rows, vague])
    )
    assert after["split"].error == pytest.approx(before["split"].error, rel=1e-3)


def test_a_whole_model_changes_what_is_used_and_not_what_is_claimed() -> None:
    """All choices together may take less than was expected by the doing of another one."""
    rows = [
        Comparison("direct", "k", TOOK, True, created=1.0),
        Comparison("split", "k", TOOK, ratio=Ratio(0.98), created=1.0),
    ]
    part = PartOfWhole(0.5, -0.02, -0.01, 0.01, "direct")
    whole = Comparison("split", "k", TOOK, ratio=Ratio(0.9, (0.89, 0.91)), created=2.0, part=part)
    before, after = (
        {one.name: one for one in standings({"s": found})["s"].order} for found in (rows, [*rows, whole])
    )
    assert after["split"].posterior.mean < before["split"].posterior.mean - 0.03
    assert after["split"].claim == before["split"].claim
    assert (after["direct"].claim, after["direct"].is_reference) == (None, True)


def test_the_same_code_says_nothing() -> None:
    found, used = tuned(2)
    assert parts_of(Gain(TOOK, TOOK, SAME_CODE, 1), used, found, lambda site: {}) == {}


def test_an_option_stands_for_its_whole_site() -> None:
    found = sites(direct=100.0, rows=20.0, product=30.0)
    for each in found.tasks:
        cast(Any, each).space = type("Space", (), {"key": "s", "target": type("T", (), {"key": "t"})()})()
    used = InUse({"direct": found.all[1].options[1]}, {})
    parts = parts_of(gain(0.9), used, found, lambda site: {"split": Posterior(-0.2, 0.1)})
    (place, row) = next(iter(parts.items()))
    assert place == ("direct", "t", OPTION)
    assert row.part is not None
    faster = 200 * math.exp(-0.2)
    assert row.part.share == pytest.approx(faster / (5 + faster))
    assert row.part.beside == "direct"


def test_what_is_slower_as_a_whole_is_no_longer_used_by_lookups(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        prepare(database)
        database.record(run("default", 100.0, origin="default"))
        database.record(run("fast", 90.0))
        default, fast = database.records()
        took = Latency(9, 90.0, 90.0, 1.0)
        rows = [
            Comparison("default", KEY.space, took, run=default.id),
            Comparison("fast", KEY.space, took, True, Ratio(0.9), run=fast.id),
        ]
        database.compared(KEY.workload, KEY.target, SCHEDULE, rows, "net")
        best = database.best(KEY.workload, KEY.target, KEY.space)
        assert (best.trace_key, best.confirmed_ns) == ("fast", 90.0)  # type: ignore[union-attr]
        part = PartOfWhole(0.5, -0.1, -0.05, 0.02)
        slow = Comparison("fast", KEY.space, TOOK, ratio=Ratio(1.1, (1.09, 1.11)), run=fast.id, part=part)
        database.measured_whole({(KEY.workload, KEY.target, SCHEDULE): slow}, "net")
        best = database.best(KEY.workload, KEY.target, KEY.space)
        assert (best.trace_key, best.confirmed_ns) == ("default", 90.0)  # type: ignore[union-attr]
        assert database.compared_schedules(KEY)[-1].part == part
        assert database.damage() == []
        hit = database.lookup(KEY.workload, KEY.target, KEY.space)
        assert len(hit.compared) == 2  # type: ignore[union-attr]


def test_the_one_in_use_stays_where_the_surprise_is_small() -> None:
    known = {
        "a": Posterior(0.0, 0.0),
        "b": (Estimate() + Comparison("b", "k", TOOK, ratio=Ratio(0.94))).posterior,
    }
    assert -INERTIA < known["b"].cautious < INERTIA
    assert (decided(known, "a"), decided(known, "b")) == ("a", "b")
