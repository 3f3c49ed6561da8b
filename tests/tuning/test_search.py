"""Searches of one workload: no repeats, legal proposals, and guided beats random."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from autotune.errors import MissingExtraError, UsageError
from autotune.tuning.guide import Guide
from autotune.tuning.sampler import GUIDED, OPTUNA, factory
from autotune.tuning.search import Search, to_config, to_params
from search_spaces.knob import config_to_json
from tests.tuning.synthetic import Synthetic


def search_of(task: Synthetic, sampler: str, guide: Guide | None = None, seed: int = 0) -> Search:
    return Search(task.space, factory(sampler, guide or Guide(), batch=8), seed)


def run(task: Synthetic, sampler: str, trials: int, seed: int = 0) -> list[float]:
    """The latencies found, in order; failed ones are infinite."""
    guide = Guide(every=8)
    search = search_of(task, sampler, guide, seed)
    found: list[float] = []
    while len(found) < trials:
        proposals = search.ask(8)
        if not proposals:
            break
        for proposal in proposals:
            ns = task.measurement(proposal.config).latency_ns
            search.tell(proposal, ns if np.isfinite(ns) else None)
            if np.isfinite(ns):
                guide.observe(task.space, [proposal.config], [ns])
            found.append(ns)
        guide.learn()
    return found


AVAILABLE = [GUIDED, *(name for name in OPTUNA if name not in ("cmaes", "gp"))]


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
    search = Search(small, factory("random", Guide(), 8), 0)
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
    assert proposal.trial.params == to_params(task.space, config)
    search.tell(proposal, 10.0)
    assert config in search
    assert len(search) == 1


def test_parameters_and_configurations_convert_both_ways() -> None:
    space = Synthetic().space
    for config in space.random(np.random.default_rng(0), 20):
        assert to_config(space, to_params(space, config)) == config


def test_unknown_and_missing_samplers_are_usage_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as caught:
        factory("annealing", Guide(), 8)
    assert str(caught.value) == (
        "unknown sampler 'annealing'; known samplers: guided, tpe, random, cmaes, gp, nsga2, qmc, grid"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"'cmaes' needs cmaes: pip install 'autotune\[cmaes\]'"):
        factory("cmaes", Guide(), 8)
    with pytest.raises(MissingExtraError, match=r"'gp' needs torch: pip install 'autotune\[gp\]'"):
        factory("gp", Guide(), 8)


def test_the_guide_learns_only_when_enough_is_new() -> None:
    task, guide = Synthetic(), Guide(every=4)
    configs = task.space.random(np.random.default_rng(0), 4)
    population = task.space.of(configs)
    rows = guide.features(task.space, population)
    before = guide.score(task.space, population, rows)
    guide.observe(task.space, configs[:3], [1.0, 2.0, 3.0])
    assert not guide.learn()
    guide.observe(task.space, configs[3:], [4.0])
    assert guide.learn()
    assert not np.array_equal(before, guide.score(task.space, population, rows))
