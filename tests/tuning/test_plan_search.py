"""The search over whole plans: what it proposes, what it learns, and that it goes on where it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from autotune.database import Database, Latency, Outcome, State
from autotune.database.records import PlanReading, Ratio, Reading
from autotune.passes.options import Option
from autotune.tuning.compare.sites import Sites
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Profile, Version
from autotune.tuning.search.plan_search import PlanSearch
from tests.tuning.synthetic import Synthetic
from tests.tuning.test_inside import built
from tests.tuning.test_job import Model, job
from tests.tuning.test_sites import sites


def read(found: Sites, **ratios: dict[str, float]) -> Sites:
    """Sites whose workloads have candidates with these ratios inside the model, in many rounds."""
    for key, mine in ratios.items():
        found.task_of[key].read([Reading(trace, ratio, 300, 100.0) for trace, ratio in mine.items()])
        found.task_of[key].built.update({trace: built(trace) for trace in mine})
        found.task_of[key].known.update(
            dict.fromkeys(mine, Measurement(Outcome.OK, Latency(5, 1.0, 1.0, 0.0)))
        )
    return found


def options(found: Sites, number: int = 0) -> dict[str, Option]:
    return {site.workload.key: site.options[number] for site in found.several}


def test_nothing_is_proposed_while_nothing_seems_faster_than_the_default() -> None:
    found = read(sites(direct=100.0, rows=20.0, product=90.0), plain={"p1": 1.2})
    assert PlanSearch(found, 0).ask(options(found)) is None


def test_a_plan_has_what_is_fastest_in_each_place_and_other_plans_are_tried_too() -> None:
    found = read(
        sites(direct=100.0, rows=20.0, product=90.0),
        plain={"p1": 0.8, "p2": 0.9, "p3": 1.1},
        direct={"d1": 0.99, "d2": 0.7},
    )
    search = PlanSearch(found, 0)
    assert search.best(options(found)) == {"plain": "p1", "direct": "d2"}
    plans = [cast(Any, search.ask(options(found))) for _ in range(60)]
    seen = {(plan.schedules.get("plain"), plan.schedules.get("direct")) for plan in plans}
    assert ("p1", "d2") in seen
    assert len(seen) > 4
    assert not any("p3" in plan.schedules.values() for plan in plans)


def test_an_option_has_schedules_of_its_own_workloads() -> None:
    found = read(sites(direct=100.0, rows=20.0, product=90.0), direct={"d1": 0.8}, rows={"r1": 0.8})
    search = PlanSearch(found, 0)
    proposals = [cast(Any, search.ask(options(found, 1))) for _ in range(20)]
    assert {tuple(plan.schedules) for plan in proposals} == {("rows",), ()}
    assert {plan.options["direct"] for plan in proposals} == {"split"}
    assert search.best(options(found, 1)) == {"rows": "r1"}


def test_what_was_read_as_a_whole_counts_more_than_the_sum_of_its_parts() -> None:
    """Each is faster alone, but together they disturb each other."""
    found = read(
        sites(direct=100.0, rows=20.0, product=90.0), plain={"p1": 0.9}, direct={"d1": 0.8, "d2": 0.82}
    )
    search = PlanSearch(found, 0)
    names = {"direct": "direct"}
    together, other = {"plain": "p1", "direct": "d1"}, {"plain": "p1", "direct": "d2"}
    assert search.best(options(found)) == together
    search.recall([PlanReading(names, together, Ratio(1.1), 100), PlanReading(names, other, Ratio(0.7), 100)])
    assert search.best(options(found)) == other


def test_a_study_is_rebuilt_from_what_was_stored_as_far_as_it_is_still_known() -> None:
    found = read(sites(direct=100.0, rows=20.0, product=90.0), plain={"p1": 0.9})
    names = {"direct": "direct"}
    search = PlanSearch(found, 0)
    search.recall([PlanReading(names, {"plain": trace}, Ratio(0.9), 3) for trace in ("p1", "gone")])
    assert len(search) == 1
    proposal = search.ask(options(found))
    assert proposal is not None
    search.tell(proposal, PlanReading(proposal.options, proposal.schedules, Ratio(0.95), 3))
    assert len(search) == 2


def test_a_job_reads_plans_stores_them_and_goes_on_with_them(tmp_path: Path) -> None:
    a, b = Synthetic("a"), Synthetic("b", scale=0.1)
    path = tmp_path / "tuning.db"
    report = job(path, a, b, trials=80).run()
    assert report.plans
    assert any(plan.won for plan in report.plans)
    assert "plan search: " in str(report)
    assert report.to_json()["plans"]["read"] == len(report.plans)
    with Database(path) as database:
        assert len(database.plans(report.job)) == len(report.plans)


def test_a_job_that_was_stopped_goes_on_with_its_plans(tmp_path: Path) -> None:
    tasks = Synthetic("a"), Synthetic("b", scale=0.1)
    path = tmp_path / "tuning.db"

    class Stops(Model):
        def read(self, versions: Sequence[Version], rounds: Rounds, *rest: Any) -> list[Any]:
            if rounds.processes > 1:  # where it compares
                raise KeyboardInterrupt
            return super().read(versions, rounds, *rest)

    first = job(path, *tasks, trials=80, whole=Stops(*tasks)).run()
    assert first.stopped
    assert first.plans
    second = job(path, *tasks, trials=120).run()
    assert second.job == first.job
    assert second.plans[: len(first.plans)] == first.plans
    assert len(second.plans) > len(first.plans)


class Noisy(Model):
    """All candidates take the same part of the default; each process draws for each dispatch by how much it errs."""

    def __init__(self, *tasks: Synthetic, candidates: float) -> None:
        super().__init__(*tasks, inside=lambda config: 1000.0)
        self.candidates = candidates
        self.rng = np.random.default_rng(0)

    def read(self, versions: Sequence[Version], rounds: Rounds, *rest: Any) -> list[Any]:
        return [self._noisy(version, rounds) for version in versions]

    def _noisy(self, version: Version, rounds: Rounds) -> Profile:
        quiet = self._one(version, rounds)
        errors = np.exp(self.rng.normal(0, 0.05, (rounds.processes, len(self.tasks))))
        return replace(quiet, ns=quiet.ns * np.repeat(errors, rounds.most // rounds.processes, axis=0))

    def _takes(self, task: Synthetic, built: Built | None) -> float:
        tried = built is not None and built.candidate.config != task.space.default()
        return 1000.0 * (self.candidates if tried else 1.0)


@pytest.mark.parametrize("gain", [0.98, 1.0])
def test_what_no_dispatch_shows_alone_is_shown_by_all_together(tmp_path: Path, gain: float) -> None:
    tasks = [Synthetic(name) for name in "abcdefghijklmnop"]
    report = job(tmp_path / "tuning.db", *tasks, trials=300, whole=Noisy(*tasks, candidates=gain)).run()
    states = Counter(row.evidence.state for row in report.dispatches)
    won = [plan.ratio for plan in report.plans if plan.won]
    if gain == 1.0:
        assert not won
        assert states[State.TOGETHER] == 0
    else:
        assert won
        assert all(ratio.changed and ratio.median < 1 for ratio in won)
        assert states[State.TOGETHER] > states[State.TUNED]
        assert states[State.TOGETHER] + states[State.TUNED] > len(tasks) / 2
        assert all(
            row.to_json()["gain"] is None for row in report.dispatches if row.evidence.state is State.TOGETHER
        )
