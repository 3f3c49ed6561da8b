"""The sites of a model: a dispatch counts by the fastest option, and so do the tasks behind it."""

from typing import Any, cast

import pytest

from autotune.passes.options import Option
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.beliefs import Beliefs
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


def test_workloads_count_by_how_likely_their_option_is_the_fastest():
    found = Beliefs(sites(direct=100.0, rows=20.0, product=30.0)).weights()
    weights = {key: (5 + 2 * 100) * weight for key, weight in found.items()}
    assert weights["plain"] == pytest.approx(1)
    assert weights["rows"] + weights["direct"] == pytest.approx(2)
    assert weights["product"] == 2 * weights["rows"]
    assert weights["rows"] > weights["direct"] > 0
    far = Beliefs(sites(direct=1000.0, rows=20.0, product=30.0)).weights()
    assert (5 + 2 * 1000) * far.get("direct", 0.0) < 0.01
