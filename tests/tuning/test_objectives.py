"""Searches for latency, memory and size at once: what they propose, and what a job then compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.database import Database, Footprint, Hit
from autotune.database.goal import Goal, Objective, searched
from autotune.errors import UsageError
from autotune.schedule.knob import Config
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.search.aim import Aim
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.samplers import factory
from autotune.tuning.search.study import Search
from tests.tuning.simulated import SimulatedMeasurer
from tests.tuning.synthetic import Synthetic
from tests.tuning.test_job import A, job, measurer

EVERYTHING = searched("front")


def takes(config: Config) -> Footprint:
    """Little memory needs few rows, a small artifact little unrolling; the fastest has neither."""
    scratch = 64 * int(config["rows"]) * int(config["vectors"])
    return Footprint(scratch, 500 * int(config["unroll"]), scratch)


def found(
    sampler: str, objectives: Sequence[Objective], task: Synthetic = A, trials: int = 48
) -> list[Config]:
    search = Search(task.space, factory(sampler, OnlineModel(None), 8, len(objectives)), 0, objectives)
    tried: list[Config] = []
    for _ in range(trials // 8):
        for proposal in search.ask(8):
            tried.append(proposal.config)
            ns = task.latency(proposal.config)
            search.tell(proposal, ns if np.isfinite(ns) else None, takes(proposal.config))
    return tried


def value(configs: Sequence[Config], task: Synthetic = A) -> float:
    """The mean over weightings of the best that was tried, as sums of logarithms: the smaller, the better."""
    logs = [
        np.log2([task.latency(c), 64 + takes(c).memory_bytes, takes(c).artifact_bytes])
        for c in configs
        if np.isfinite(task.latency(c))
    ]
    weights = np.random.default_rng(7).dirichlet(np.ones(3), 200)
    return float((np.asarray(logs) @ weights.T).min(axis=0).mean())


@pytest.mark.parametrize("sampler", ["guided", "nsga2", "tpe", "random"])
def test_every_sampler_of_a_front_proposes_legal_new_candidates(sampler: str) -> None:
    tried = found(sampler, EVERYTHING)
    assert len({tuple(config.items()) for config in tried}) == 48


def test_a_search_for_the_front_finds_what_one_for_latency_does_not() -> None:
    assert value(found("guided", EVERYTHING)) < value(found("guided", EVERYTHING[:1]))


def test_an_aim_at_one_objective_is_its_order() -> None:
    measured = A.space.of([A.space.default()] * 3)
    aim = Aim(np.ones(1), measured, np.array([[3.0], [1.0], [2.0]]))
    assert aim.best.tolist() == [1, 2, 0]
    assert aim.worth(measured, np.array([0.1, 0.3, 0.2])).tolist() == [0.1, 0.3, 0.2]


def test_an_aim_at_memory_prefers_what_is_near_to_small_ones() -> None:
    low, high = A.space.default() | {"rows": 1}, A.space.default() | {"rows": 16}
    measured = A.space.of([low] * 3 + [high] * 3)
    values = np.array([[2.0, 1.0]] * 3 + [[1.0, 9.0]] * 3)
    candidates = A.space.of([A.space.default() | {"rows": rows} for rows in (15, 2)])
    scores = np.array([1.0, 0.9])
    large, small = Aim(np.array([0.1, 0.9]), measured, values).worth(candidates, scores)
    assert small > large
    large, small = Aim(np.array([1.0, 0.0]), measured, values).worth(candidates, scores)
    assert large > small


def test_unknown_objectives_and_samplers_of_one_value_are_refused() -> None:
    assert searched("latency") == (Objective.LATENCY,)
    with pytest.raises(
        UsageError, match="unknown objective 'fron'\n  one of latency, memory, size, front; did"
    ):
        searched("fron")
    with pytest.raises(UsageError, match="cmaes minimises one value, the latency"):
        factory("cmaes", OnlineModel(None), 8, 2)


class Sized(SimulatedMeasurer):
    """Knows what candidates take."""

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        return [
            replace(built, footprint=takes(built.candidate.config)) for built in super().build(candidates)
        ]


def test_a_job_for_size_compares_what_is_smallest_too(tmp_path: Path) -> None:
    """No candidate is used for its size by readings of the search alone where the job had time to compare it."""
    path, options = tmp_path / "tuning.db", replace(job(tmp_path / "none.db", A).options, objective="size")
    job(path, A, trials=60, measurer=Sized(measurer(A)._answer), options=options).run()
    key = (A.workload.key, A.space.target.key, A.space.key)
    with Database(path) as database:
        fastest, small = (database.lookup(*key, goal) for goal in (Goal(), Goal(Objective.SIZE)))
        compared = {row.run for row in database.comparison(*key[:2], "schedule")}
        (stored,) = database.jobs()
    assert isinstance(fastest, Hit)
    assert isinstance(small, Hit)
    assert fastest.best.footprint == takes(fastest.best.config)
    assert small.best.id in compared
    assert '"objective": "size"' in stored.options
