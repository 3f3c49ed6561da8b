"""Searches of one workload: no repeats, legal proposals, and guided beats random."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import optuna
import pytest

from autotune.errors import MissingExtraError, UsageError
from autotune.schedule.knob import config_to_json
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.parameters import KnobParameters
from autotune.tuning.search.samplers import GUIDED, SAMPLERS, factory, name_of
from autotune.tuning.search.study import Proposal, Search
from tests.tuning.synthetic import Synthetic


def search_of(task: Synthetic, sampler: str, cost_model: OnlineModel | None = None, seed: int = 0) -> Search:
    return Search(task.space, factory(sampler, cost_model or OnlineModel(), batch=8), seed)


def run(task: Synthetic, sampler: str, trials: int, seed: int = 0) -> list[float]:
    """The latencies found, in order; failed ones are infinite."""
    cost_model = OnlineModel(every=8)
    search = search_of(task, sampler, cost_model, seed)
    found: list[float] = []
    while len(found) < trials:
        proposals = search.ask(8)
        if not proposals:
            break
        for proposal in proposals:
            ns = task.measurement(proposal.config).latency_ns
            search.tell(proposal, ns if np.isfinite(ns) else None)
            if np.isfinite(ns):
                cost_model.observe(task.space, [proposal.config], [ns])
            found.append(ns)
        cost_model.learn()
    return found


AVAILABLE = [GUIDED, *(name for name in SAMPLERS if name != "gp")]


@pytest.mark.parametrize("name", AVAILABLE)
def test_every_sampler_proposes_legal_candidates_once(name: str) -> None:
    task = Synthetic()
    search = search_of(task, name)
    seen = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        for _ in range(6):
            for proposal in search.ask(8):
                text = config_to_json(proposal.config)
                assert text not in seen
                assert task.space.broken(proposal.config) is None
                seen.add(text)
                ns = task.measurement(proposal.config).latency_ns
                search.tell(proposal, ns if np.isfinite(ns) else None)
    assert len(seen) == 48


def test_guided_finds_more_than_random() -> None:
    task = Synthetic()
    guided = [min(run(task, GUIDED, 64, seed)) for seed in range(6)]
    random = [min(run(task, "random", 64, seed)) for seed in range(6)]
    assert np.mean(guided) < np.mean(random)
    assert np.mean(guided) <= 1.4 * task.best


def test_a_search_ends_when_its_space_is_used_up() -> None:
    task = Synthetic()
    small = task.space.__class__(
        task.space.workload,
        task.space.target,
        "contraction",
        (*task.space.knobs[2:],),
        (),
        task.space.recipe,
    )
    search = Search(small, factory("random", OnlineModel(), 8), 0)
    proposals = search.ask(100)
    assert len(proposals) == small.size() == 8
    assert search.exhausted


def test_what_was_measured_before_is_not_proposed_again() -> None:
    task = Synthetic()
    known = [c for c in task.space.enumerate() if c["order"] == "nm"]
    search = search_of(task, GUIDED)
    for config in known:
        search.add(config, task.latency(config))
    search.add(known[0], 1.0)
    assert len(search) == len(known)
    assert all(p.config["order"] == "mn" for p in search.ask(20))


def test_a_suggested_candidate_is_the_one_that_comes_back() -> None:
    task = Synthetic()
    search = search_of(task, GUIDED)
    config = task.space.default()
    proposal = search.suggest(config)
    assert proposal.trial.params == KnobParameters(task.space).of(config)
    search.tell(proposal, 10.0)
    assert config in search
    assert len(search) == 1


def test_parameters_and_configurations_convert_both_ways() -> None:
    parameters = KnobParameters(Synthetic().space)
    for config in parameters.space.random(np.random.default_rng(0), 20):
        assert parameters.config(parameters.of(config)) == config


class Counting(optuna.samplers.RandomSampler):  # type: ignore[misc]  # Optuna is read without its types
    """A user's own sampler."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)


@pytest.mark.parametrize(
    ("sampler", "name"),
    [
        (optuna.samplers.TPESampler(seed=1, multivariate=True), "TPESampler"),
        (Counting(3), "Counting"),
        (Counting, "Counting"),
        (lambda seed: Counting(seed), "<lambda>"),
        (lambda: Counting(), "<lambda>"),
    ],
)
def test_a_sampler_of_ones_own_searches(sampler: Any, name: str) -> None:
    make = factory(sampler, OnlineModel(), 8)
    assert name_of(sampler) == name
    for task in (Synthetic("a"), Synthetic("b")):  # one sampler would mix up two spaces
        search = Search(task.space, make, 5)
        seen = [config_to_json(p.config) for _ in range(3) for p in _told(search, task)]
        assert len(seen) == len(set(seen)) == 24


def _told(search: Search, task: Synthetic) -> list[Proposal]:
    proposals = search.ask(8)
    for proposal in proposals:
        ns = task.measurement(proposal.config).latency_ns
        search.tell(proposal, ns if np.isfinite(ns) else None)
    return proposals


def test_what_is_no_sampler_is_refused() -> None:
    two = optuna.create_study(directions=["minimize", "minimize"], study_name="two")
    with pytest.raises(UsageError, match="the study 'two' must minimise one value, the latency"):
        factory(two, OnlineModel(), 8)
    not_one: Any = 3
    with pytest.raises(UsageError, match="unknown sampler 3; known samplers: guided, tpe"):
        factory(not_one, OnlineModel(), 8)
    wrong: Any = lambda: "tpe"  # noqa: E731
    with pytest.raises(UsageError, match="<lambda> made a str, which is no Optuna sampler"):
        Search(Synthetic().space, factory(wrong, OnlineModel(), 8), 0)

    class Locked(Counting):
        def __deepcopy__(self, memo: object) -> None:
            raise TypeError("cannot pickle a lock")

    with pytest.raises(
        UsageError, match=r"Locked cannot be copied \(cannot pickle a lock\), .* sampler=lambda seed"
    ):
        Search(Synthetic().space, factory(Locked(), OnlineModel(), 8), 0)
    with pytest.raises(UsageError, match="nsga2, qmc, grid; did you mean 'guided'"):
        factory("giuded", OnlineModel(), 8)


def test_unknown_and_missing_samplers_are_usage_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as caught:
        factory("annealing", OnlineModel(), 8)
    assert str(caught.value) == (
        "unknown sampler 'annealing'; known samplers: guided, tpe, random, cmaes, gp, nsga2, qmc, grid"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"'cmaes' needs cmaes: pip install 'autotune-compiler\[cmaes\]'"
    ):
        factory("cmaes", OnlineModel(), 8)
    with pytest.raises(MissingExtraError, match=r"'gp' needs torch: pip install 'autotune-compiler\[gp\]'"):
        factory("gp", OnlineModel(), 8)


def test_the_first_proposals_are_spread_out() -> None:
    task = Synthetic()

    def nearest(configs: list[Any]) -> float:
        """The mean distance to the nearest other one."""
        population = task.space.of(configs)
        apart = population.distances(population) + np.diag(np.full(len(population), np.inf))
        return float(apart.min(axis=1).mean())

    first = [[p.config for p in search_of(task, GUIDED, seed=seed).ask(8)] for seed in range(8)]
    random = [[p.config for p in search_of(task, "random", seed=seed).ask(8)] for seed in range(8)]
    assert np.mean([nearest(some) for some in first]) > 1.2 * np.mean([nearest(some) for some in random])


def test_a_cost_model_learns_from_each_batch_at_first_and_later_less_often() -> None:
    task, cost_model = Synthetic(), OnlineModel()
    configs = task.space.random(np.random.default_rng(0), 8)
    learned = []
    for _ in range(40):
        cost_model.observe(task.space, configs, [float(n) for n in range(1, 9)])
        learned.append(cost_model.learn())
    assert all(learned[:16])
    assert 4 <= sum(learned[-12:]) <= 6


def test_the_guide_learns_only_when_enough_is_new() -> None:
    task, cost_model = Synthetic(), OnlineModel(every=4)
    configs = task.space.random(np.random.default_rng(0), 4)
    population = task.space.of(configs)
    rows = cost_model.features(task.space, population)
    before = cost_model.score(task.space, population, rows)
    cost_model.observe(task.space, configs[:3], [1.0, 2.0, 3.0])
    assert not cost_model.learn()
    cost_model.observe(task.space, configs[3:], [4.0])
    assert cost_model.learn()
    assert not np.array_equal(before, cost_model.score(task.space, population, rows))
