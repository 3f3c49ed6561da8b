"""The sites of a model: a dispatch counts by the fastest option, and so do the tasks behind it."""

from typing import Any, cast

import pytest

from autotune.passes.options import Option
from autotune.tuning.compare.sites import UNUSED, Site, Sites
from autotune.tuning.jobs.allocate import TaskScheduler
from autotune.tuning.jobs.task import Task
from tests.tuning.synthetic import FakeWorkload

W = {name: FakeWorkload(name, name) for name in ("plain", "direct", "rows", "product")}


class Other:
    """An option of some regions."""

    def __init__(self, name: str, *regions: str) -> None:
        self.name = name
        self.regions = tuple(W[region] for region in regions)


class Idle:
    """A search that is never exhausted."""

    exhausted = False


def task(name: str, dispatches: int, *curve: float) -> Task:
    names = tuple(f"{name}{i}" for i in range(dispatches))
    made: Any = Task(names, cast(Any, W[name]), cast(Any, None), cast(Any, Idle()), {})
    made.curve.extend(curve)
    made.default_ns = curve[0] if curve else None
    return cast(Task, made)


def sites(direct: float, rows: float, product: float) -> Sites:
    """One dispatch without options, and two that are computed directly or by two products and a transform."""
    plain: Any = (Other("direct", "plain"),)
    options: Any = (Other("direct", "direct"), Other("split", "rows", "product", "product"))
    found = [
        Site(("c",), cast(Any, W["plain"]), cast(tuple[Option, ...], plain)),
        Site(("a", "b"), cast(Any, W["direct"]), cast(tuple[Option, ...], options)),
    ]
    tasks = [
        task("plain", 1, 5.0),
        task("direct", 2, direct),
        task("rows", 2, rows),
        task("product", 4, product),
    ]
    return Sites(tasks, found)


def test_the_fastest_option_counts():
    found = sites(direct=100.0, rows=20.0, product=30.0)
    assert found.total(lambda t: t.best_ns) == 5 + 2 * 80
    assert found.default_total(lambda t: t.best_ns) == 5 + 2 * 100
    split = found.all[1].options[1]
    assert found.uses({"direct": split}) == {"plain": 1, "rows": 2, "product": 4}
    assert found.uses({}) == {"plain": 1, "direct": 2}
    assert found.dispatches == 3


def test_what_is_behind_counts_less_and_what_is_far_behind_not_at_all():
    weights = sites(direct=100.0, rows=20.0, product=30.0).weights()
    assert weights == {"plain": 1, "direct": pytest.approx(2 * 0.8), "rows": 2, "product": 4}
    assert set(sites(direct=121.0, rows=20.0, product=30.0).weights()) == {"plain", "rows", "product"}
    assert set(sites(direct=50.0, rows=20.0, product=30.0).weights()) == {"plain", "direct"}


@pytest.mark.parametrize(("product", "counts"), [(40.0, UNUSED), (36.0, 1.0)])
def test_an_option_that_is_not_used_counts_less_unless_it_seems_clearly_faster(product: float, counts: float):
    found = sites(direct=100.0, rows=20.0, product=product)
    found.used["direct"] = found.all[1].options[0]
    assert found.weights()["rows"] == pytest.approx(2 * counts)
    assert found.weights()["direct"] == pytest.approx(2 * found.latency(found.all[1].options[1]) / 100.0)


def test_what_fails_does_not_hold_up_the_others():
    found = sites(direct=100.0, rows=float("inf"), product=30.0)
    assert set(found.weights()) == {"plain", "direct"}
    assert {TaskScheduler(found, seed).choose().workload.key for seed in range(9)} <= {"plain", "direct"}  # type: ignore[union-attr]


def test_nothing_is_ruled_out_before_it_was_measured():
    found = sites(direct=float("inf"), rows=float("inf"), product=float("inf"))
    assert found.weights() == {"plain": 1, "direct": 2, "rows": 2, "product": 4}
