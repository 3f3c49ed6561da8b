"""The search over whole plans: what it proposes, what it learns, and that it goes on where it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from autotune.database import Database, Latency, Outcome
from autotune.database.records import PlanReading, Ratio, Reading
from autotune.passes.options import Option
from autotune.tuning.compare.sites import Sites
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Version
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
