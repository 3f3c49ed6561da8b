"""The expected gain of a job in the time left, and a search that ends when that is too little."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from autotune.bench.jobs.made import normal_noise, ten_sites
from autotune.bench.jobs.policies import POLICIES
from autotune.bench.jobs.replay import replay
from autotune.cli import main as cli
from autotune.database import Database, JobRow
from autotune.errors import UsageError
from autotune.tuning.jobs.beliefs import Beliefs
from autotune.tuning.jobs.budget import Budget, part_of
from autotune.tuning.jobs.events import Calls, Several, TuningEvent
from autotune.tuning.jobs.forecast import Forecast, forecast, outlooks_of
from autotune.tuning.jobs.owner import said
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.report.progress import JsonLines, PlainLines
from autotune.tuning.report.status import Progress, Status
from tests.bench.test_jobs import LOADED
from tests.tuning.test_job import A, B, Model, job
from tests.tuning.test_policy import Searched, Seat, sites_of

EQUAL = Seat([[0.0, 0.0, 0.0]] * 10, 0.03, 0)


def made(seconds: float, seed: int = 0, **changes: Any) -> Forecast:
    """A forecast of ten sites of three options, of which isolated timings say little."""
    sites = sites_of(Seat(EQUAL.truth, EQUAL.noise, seed))
    found = forecast(sites, Policy(Beliefs(sites), **changes), seconds)
    assert found is not None
    return found


def test_more_time_is_expected_to_gain_more() -> None:
    found = [made(seconds) for seconds in (0.0, 30.0, 300.0, 3000.0)]
    assert found[0].remaining == 0.0
    assert found[0].so_far == pytest.approx(0.0, abs=0.002)
    assert [one.remaining for one in found] == sorted(one.remaining for one in found)
    assert found[3].remaining > found[1].remaining > 0
    for one in found[1:]:
        low, high = one.interval
        assert low < one.expected < high
        assert 0 < one.most_s <= one.seconds
    assert found[3].most_s < 0.6 * 3000.0  # most of it comes early


def test_what_was_never_measured_is_forecast_by_the_cost_model() -> None:
    sites = sites_of(EQUAL)
    for number, task in enumerate(sites.tasks):
        task.default_ns, task.curve, task.expected_ns = None, [], 1e5
        task.floor_ns = 0.95e5 if number < 3 else 0.5e5  # the options of the first site
        task.search, task.default = cast(Any, Searched()), cast(Any, "default")
    found = forecast(sites, Policy(Beliefs(sites)), 600.0)
    assert found is not None
    assert (found.dispatches, found.near, found.measured) == (10, 1, False)
    text = "1 of 10 dispatches is above 90 % of its roofline by the cost model; expect "
    assert str(found).startswith(text)
    assert found.to_json()["text"] == str(found)


def test_without_any_latency_there_is_no_forecast() -> None:
    sites = sites_of(EQUAL)
    for task in sites.tasks:
        task.default_ns, task.curve = None, []
    assert forecast(sites, Policy(Beliefs(sites)), 600.0) is None


def test_a_dispatch_at_its_roofline_has_nothing_to_find() -> None:
    sites = sites_of(EQUAL)
    for task in sites.tasks:
        task.floor_ns = task.best_ns
        task.search.exhausted = False  # type: ignore[misc]
    at_floor = forecast(sites, Policy(Beliefs(sites), in_model=False), 600.0)
    for task in sites.tasks:
        task.floor_ns = 0.0
    free = forecast(sites, Policy(Beliefs(sites), in_model=False), 600.0)
    assert at_floor is not None
    assert free is not None
    assert (at_floor.near, at_floor.remaining) == (10, 0.0)
    assert free.near == 0
    assert free.remaining > 0.005
    little = forecast(sites, Policy(Beliefs(sites), in_model=False), 600.0, trials_left=4)
    assert little is not None
    assert little.remaining < free.remaining
    assert little.seconds < 600.0


def test_what_a_site_takes_follows_from_the_best_schedule() -> None:
    sites = sites_of(EQUAL)
    task = sites.task_of["0.0"]
    task.curve.append(0.9 * task.best_ns)
    first, second = [*outlooks_of(sites, Policy(Beliefs(sites), in_model=False))][:2]
    assert first.ns == pytest.approx(0.9 * first.untuned_ns)
    assert second.ns == second.untuned_ns


def test_a_simulated_job_ends_in_the_interval_of_its_forecast() -> None:
    found = replay(ten_sites(normal_noise(0.03), 3), LOADED, POLICIES["policy"], budget_s=90.0, seed=3)
    assert found.held
    assert 0.0 < found.width < 0.15


class Told(Progress):
    """Keeps the forecasts that a display sees."""

    def __init__(self) -> None:
        self.seen: list[Forecast | None] = []

    def started(self, status: Status) -> None:
        self.seen.append(status.forecast)

    def chosen(self, status: Status) -> None:
        self.seen.append(status.forecast)


def whole_job(path: Path, budget: Budget, **changes: Any) -> Any:
    return job(path, A, B, whole=Model(A, B, inside=A.latency), budget=budget, **changes)


def test_a_forecast_is_in_every_display(tmp_path: Path) -> None:
    path, lines, logged = tmp_path / "t.db", io.StringIO(), io.StringIO()
    events: list[TuningEvent] = []
    told = Told()
    shown = Several([told, JsonLines(lines), PlainLines(logged), Calls(events.append)])
    whole_job(path, Budget(trials=60), progress=shown).run()
    assert told.seen[0] is None  # nothing is known, not even by a cost model
    last = next(one for one in reversed(told.seen) if one is not None)
    assert last.dispatches == 2
    assert math.isfinite(last.expected)
    said_of = [json.loads(line).get("forecast") for line in lines.getvalue().splitlines()]
    assert last.to_json() | {"interval": list(last.interval)} in said_of
    assert last in [event.forecast for event in events]
    with Database(path, read_only=True) as database:
        (row,) = database.jobs()
    assert said(row)["forecast"]["text"] == said_of_last(lines.getvalue())


def said_of_last(text: str) -> str:
    found = [json.loads(line) for line in text.splitlines()]
    return str([each for each in found if each.get("forecast")][-1]["forecast"]["text"])


def test_a_search_ends_when_too_little_is_expected(tmp_path: Path) -> None:
    path, logged = tmp_path / "t.db", io.StringIO()
    budget = Budget(trials=400, stop_when=0.6)
    report = whole_job(path, budget, progress=PlainLines(logged)).run()
    assert report.trials < 60
    assert not report.stopped  # it came to its end
    assert report.enough.startswith("the rest of the search is expected to make ")
    assert report.enough.endswith("less than the 60 % that were asked for")
    assert f"ends: {report.enough}" in logged.getvalue()
    assert f"the search ended early: {report.enough}" in str(report)
    with Database(path, read_only=True) as database:
        (row,) = database.jobs()
    assert row.state == JobRow.DONE
    again = whole_job(path, replace(budget, trials=80, stop_when=None)).run()
    assert again.trials > report.trials  # another budget goes on


def test_what_is_no_part_of_the_latency() -> None:
    for wrong in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(UsageError, match="stop_when is a part of the latency, above 0 and below 1"):
            Budget(trials=3, stop_when=wrong)
    for text in ("", "2", "%", "x%", "2%%", "200 %"):
        with pytest.raises(UsageError, match="not a part of the latency"):
            part_of(text)


def test_the_command_refuses_what_is_no_part(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    assert cli.run(["tune", "zoo:tiny_cnn", "--stop-when", "much", "--db", path]) == 2
    assert "not a part of the latency: 'much'; write 2% or 0.02" in capsys.readouterr().err
