"""Searches that begin with what was found for near workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.compiler import divide
from autotune.database import Database, Key, Latency, Origin, Outcome, Run, WorkloadRow
from autotune.database.records import Reading
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.schedule.knob import Config, config_to_json
from autotune.target import Target
from autotune.tuning.jobs.job import Options
from autotune.tuning.search.warm_start import TRIALS, proposals
from cost_models import analytic
from search_spaces.projection import projected
from search_spaces.spaces import space_for
from tests.search_spaces.workloads import typed_matmul
from tests.tuning.synthetic import TARGET, Synthetic, measurer
from tests.tuning.test_job import Model, Stopping, job

A, B = Synthetic("a"), Synthetic("b", scale=3.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database in which the workload A was tuned, whose best schedules are B's too."""
    job(tmp_path / "tuning.db", A, trials=60).run()
    return tmp_path / "tuning.db"


def runs_of(path: Path, task: Synthetic) -> list[Run]:
    with Database(path, read_only=True) as database:
        return database.records(workload=task.workload.key)


def test_a_search_begins_with_what_was_found_for_a_near_workload(path: Path) -> None:
    report = job(path, B, trials=12).run()
    origins = [run.origin for run in runs_of(path, B)]
    assert origins[: TRIALS + 1] == [Origin.DEFAULT, *[Origin.NEAR] * TRIALS]
    assert set(origins[TRIALS + 1 :]) == {Origin.SEARCH}
    best = min(run.latency_ns for run in runs_of(path, A))
    assert min(run.latency_ns for run in runs_of(path, B)[: TRIALS + 1]) == pytest.approx(3 * best)
    (row,) = report.dispatches
    assert (report.near_trials, row.origin) == (TRIALS, "near")
    assert f"  {TRIALS} of them from near workloads; in use at b0" in str(report).splitlines()
    assert row.to_json()["origin"] == "near"


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_so_do_other_samplers(path: Path, sampler: str) -> None:
    job(path, B, trials=8, options=Options(sampler)).run()
    origins = [run.origin for run in runs_of(path, B)]
    assert origins[: TRIALS + 1] == [Origin.DEFAULT, *[Origin.NEAR] * TRIALS]


def test_it_can_be_left(path: Path) -> None:
    report = job(path, B, trials=12, options=Options(transfer=False)).run()
    assert Origin.NEAR not in {run.origin for run in runs_of(path, B)}
    assert report.near_trials == 0
    assert "near workloads" not in str(report)


@pytest.mark.parametrize("after", [1, 2, 4, 7])
def test_a_job_that_goes_on_has_as_many_of_them(path: Path, after: int) -> None:
    assert job(path, B, trials=12, measurer=Stopping(measurer(B), after)).run().stopped
    report = job(path, B, trials=12).run()
    assert report.trials == 12
    runs = runs_of(path, B)
    assert sum(run.origin is Origin.NEAR for run in runs) == TRIALS
    assert len({run.trace_key for run in runs}) == 12


def test_a_bad_neighbour_costs_a_few_trials(path: Path) -> None:
    def backwards(config: Config) -> float:
        return 1e7 / A.latency(config)

    class Other(Synthetic):
        def latency(self, config: Config) -> float:
            return backwards(config)

    other = Other("c")
    job(path, other, trials=40, whole=Model(other)).run()
    runs = runs_of(path, other)
    assert sum(run.origin is Origin.NEAR for run in runs) == TRIALS
    assert all(run.latency_ns > runs[0].latency_ns for run in runs if run.origin is Origin.NEAR)
    assert min(run.latency_ns for run in runs) < runs[0].latency_ns


def test_where_nothing_is_near_the_search_begins_as_ever(tmp_path: Path) -> None:
    for transfer in (True, False):
        job(tmp_path / f"{transfer}.db", A, trials=20, options=Options(transfer=transfer)).run()
    with_it, without = (runs_of(tmp_path / f"{transfer}.db", A) for transfer in (True, False))
    assert [run.config for run in with_it] == [run.config for run in without]


def test_too_few_runs_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    job(path, A, trials=12).run()
    assert job(path, B, trials=12).run().near_trials == 0


class Learnt:
    """A model of earlier jobs."""

    def predict(self, x: Any) -> Any:
        return -x[:, 0]


def test_they_take_turns_with_the_favourites_of_a_model_of_earlier_jobs(path: Path) -> None:
    prior: Any = Learnt()
    job(path, B, trials=12, prior=prior).run()
    origins = [run.origin for run in runs_of(path, B)]
    assert origins[1:9] == [Origin.SEARCH, Origin.NEAR] * 4


def workload_of(m: int, k: int, n: int, *, relu: bool = False) -> Workload:
    b = GraphBuilder("product")
    y = b.node("MatMul", b.input("x", (m, k)), b.input("w", (k, n)), name="y")
    return divide(b.graph(b.node("Relu", y, name="z") if relu else y)).dispatches[0].workload


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "near.db") as store:
        yield store


def searched(store: Database, workload: Workload, target: Target, ratio: float = 0.5) -> list[Config]:
    """Store a search that found two schedules of other sizes of tiles faster than the default; these."""
    space = space_for(workload, target)
    key = Key(workload.key, target.key, space.key)
    store.add_workload(WorkloadRow.of(workload))
    store.add_target(target)
    store.add_space(space.key, workload.key, "{}")
    default = analytic.default_config(space)
    configs = [default, *(c for c in space.enumerate().configs()[::97] if c != default)][:24]
    for number, config in enumerate(configs):
        origin = Origin.SEARCH if number else Origin.DEFAULT
        text, took = config_to_json(config), Latency(5, 1e5, 1e5, 0.0)
        store.record(Run(key, f"{number}", "[]", text, Outcome.OK, took, origin=origin))
    read = [Reading(f"{n}", ratio if n < 3 else 1.5, 30, 1e5) for n in range(1, len(configs))]
    store.read_inside(key, read, "net")
    return configs[1:3]


def test_they_are_legal_in_the_space_that_is_searched(database: Database) -> None:
    found = searched(database, workload_of(64, 64, 64), TARGET)
    space = space_for(workload_of(61, 50, 7), TARGET)
    default = analytic.default_config(space)
    near = proposals(space, default, database)
    assert {config_to_json(c) for c in near} == {
        config_to_json(projected(space, config, default)) for config in found
    } - {config_to_json(default)}
    assert near
    assert all(space.check(config) == config for config in near)
    assert proposals(space, default, database, known=near[:1]) == near[1:]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param((workload_of(64, 64, 64), replace(TARGET, threads=1)), id="other threads"),
        pytest.param((workload_of(128, 64, 32), TARGET), id="other sizes"),
        pytest.param((workload_of(64, 64, 64, relu=True), TARGET), id="the same kind"),
    ],
)
def test_what_is_near(database: Database, asked: tuple[Workload, Target]) -> None:
    searched(database, workload_of(64, 64, 64), TARGET)
    space = space_for(*asked)
    assert proposals(space, analytic.default_config(space), database)


@pytest.mark.parametrize(
    "other",
    [
        Target.parse("x86-64-v4", threads=2),
        Target.parse("x86-64-v2", threads=2),
        replace(TARGET, features=(*TARGET.features, "avxvnni")),
    ],
)
def test_what_was_found_for_other_instructions_is_not(database: Database, other: Target) -> None:
    searched(database, workload_of(64, 64, 64), other)
    searched(database, workload_of(128, 64, 32), other)
    space = space_for(workload_of(64, 64, 64), TARGET)
    assert proposals(space, analytic.default_config(space), database) == []


@pytest.mark.parametrize(
    ("asked", "other"), [("float32", "int8"), ("int8", "float32"), ("float32", "float16")]
)
def test_what_was_found_in_another_precision_is_not(database: Database, asked: str, other: str) -> None:
    assert typed_matmul(asked).key != typed_matmul(other).key
    assert typed_matmul(asked).kind == typed_matmul(other).kind
    searched(database, typed_matmul(other), TARGET)
    own = space_for(typed_matmul(other), replace(TARGET, threads=1))
    assert proposals(own, analytic.default_config(own), database)
    space = space_for(typed_matmul(asked), TARGET)
    assert proposals(space, analytic.default_config(space), database) == []


def test_what_gained_next_to_nothing_there_is_not_tried(database: Database) -> None:
    searched(database, workload_of(64, 64, 64), TARGET, ratio=0.98)
    space = space_for(workload_of(128, 64, 32), TARGET)
    assert proposals(space, analytic.default_config(space), database) == []
