"""Every sampler proposes new, legal candidates of real spaces, and each trial is what was measured."""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from autotune.compiler import divide
from autotune.schedule.knob import Config, Knob, config_to_json
from autotune.target import Target
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.parameters import KnobParameters
from autotune.tuning.search.samplers import GUIDED, NEEDS, SAMPLERS, factory
from autotune.tuning.search.study import Search
from cost_models import analytic
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.tuning.synthetic import Synthetic

TRIALS = 32


@cache
def real_spaces() -> tuple[Space, ...]:
    """Twelve spaces of two models with constraints: 4 to 20 % of the combinations of their knobs are legal."""
    target = Target.parse("x86-64-v4", threads=2)
    found: dict[str, Space] = {}
    for model in ("zoo:squeezenet", "zoo:mobilenetv2"):
        here = 0
        for dispatch in divide(model).dispatches:
            space = space_for(dispatch.workload, target)
            combinations = np.prod([float(len(knob.values)) for knob in space.knobs])
            if space.size() / combinations < 0.2 and space.key not in found and here < 6:
                found[space.key] = space
                here += 1
    return tuple(found.values())


class LargeFirst(optuna.samplers.RandomSampler):  # type: ignore[misc]  # Optuna is read without its types
    """A user's own: the larger of two random values of each knob."""

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        draws = [
            super(LargeFirst, self).sample_independent(study, trial, param_name, param_distribution)
            for _ in "12"
        ]
        return max(draws, key=str)


def latency_ns(space: Space, config: Config) -> float | None:
    """The analytic model's, as if it was measured; a few candidates fail."""
    if config_to_json(config).encode()[-9] % 11 == 0:
        return None
    return float(analytic.predict(space, [config])[0])


def searched(space: Space, sampler: Any, trials: int = TRIALS) -> tuple[Search, list[Config]]:
    search = Search(space, factory(sampler, OnlineModel(None), 8), 1)
    found: list[Config] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(found) < trials:
            for proposal in search.ask(8):
                found.append(proposal.config)
                search.tell(proposal, latency_ns(space, proposal.config))
    return search, found


SAMPLED = [GUIDED, *SAMPLERS, LargeFirst]


def test_there_are_enough_real_spaces() -> None:
    assert len(real_spaces()) >= 10
    assert {space.family for space in real_spaces()} >= {"convolution", "pool", "depthwise"}


@pytest.mark.parametrize("sampler", SAMPLED, ids=str)
def test_all_trials_are_legal_and_new_in_real_spaces(sampler: Any) -> None:
    if NEEDS.get(sampler) and importlib.util.find_spec(NEEDS[sampler]) is None:
        pytest.skip(f"{NEEDS[sampler]} is not installed")
    for space in real_spaces():
        search, found = searched(space, sampler)
        assert len({config_to_json(config) for config in found}) == len(found) == TRIALS
        assert space.legal_among(found)[1].all()
        parameters = KnobParameters(space)
        trials = search.study.get_trials(deepcopy=False)
        measured = [trial for trial in trials if "repeats" not in trial.user_attrs]
        assert [parameters.config(trial.params) for trial in measured] == found
        for trial in trials:
            assert {*trial.params} == {*space.names}
            expected = latency_ns(space, parameters.config(trial.params))
            assert trial.state == (TrialState.FAIL if expected is None else TrialState.COMPLETE)
            assert trial.values == (None if expected is None else [expected])
        assert sum("repeats" in trial.user_attrs for trial in trials) <= 4 * TRIALS


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2", LargeFirst], ids=str)
def test_a_trial_is_the_legal_candidate_nearest_to_the_draw(sampler: Any) -> None:
    space = real_spaces()[0]
    parameters, everything = KnobParameters(space), space.enumerate()
    search, _ = searched(space, sampler)
    drawn = 0
    for trial in search.study.get_trials(deepcopy=False):
        draw = parameters.config({**trial.params, **trial.user_attrs.get("drawn", {})})
        costs = [knob.costs(draw[knob.name]) for knob in space.knobs]
        total = np.sum([cost[everything.indexes[:, i]] for i, cost in enumerate(costs)], axis=0)
        mine = parameters.config(trial.params)
        cost = sum(c[knob.index(mine[knob.name])] for c, knob in zip(costs, space.knobs, strict=True))
        if trial.user_attrs.get("drawn"):
            drawn += 1
            at = int(np.flatnonzero(np.isclose(total, cost))[0])
            assert (total < total[at] - 1e-9).sum() <= TRIALS  # those before it were measured already
        else:
            assert cost == 0
    assert drawn > 0


def test_numbers_keep_their_values_and_names_theirs() -> None:
    space = Synthetic().space
    changed = (
        Knob("rows", (1, 2, 4, 8)),
        Knob("block", (0, 1, 2, 4), zero_is_all=True),
        Knob("ahead", (0, 256, 512, 2048)),
        Knob("width", (4, 8, 12)),
        Knob("order", ("mn", "nm")),
        Knob("flag", (False, True)),
    )
    parameters = KnobParameters(space.__class__(space.workload, space.target, "x", changed, (), space.recipe))
    ints, categories = optuna.distributions.IntDistribution, optuna.distributions.CategoricalDistribution
    assert parameters.distributions == {
        "rows": ints(1, 8, log=True),
        "block": categories([1, 2, 4, "all"]),
        "ahead": categories([0, 256, 512, 2048]),
        "width": ints(4, 12, step=4),
        "order": categories(["mn", "nm"]),
        "flag": categories([False, True]),
    }
    config: Config = {"rows": 4, "block": 0, "ahead": 512, "width": 8, "order": "nm", "flag": True}
    params = {"rows": 4, "block": "all", "ahead": 512, "width": 8, "order": "nm", "flag": True}
    assert parameters.of(config) == params
    assert parameters.config(params) == config
    assert parameters.config({**params, "rows": 7})["rows"] == 8


def test_a_sampler_that_repeats_itself_is_told_the_known_result_and_goes_on() -> None:
    class Stubborn(optuna.samplers.RandomSampler):  # type: ignore[misc]  # Optuna is read without its types
        """It always draws the same."""

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return {"rows": 3, "vectors": 5, "unroll": 2, "order": "nm"}[param_name]

    task = Synthetic()
    search = Search(task.space, factory(Stubborn, OnlineModel(None), 8), 0)
    found = []
    for _ in range(6):
        (proposal,) = search.ask(1)
        found.append(proposal.config)
        search.tell(proposal, task.latency(proposal.config))
    assert found[0] == {"rows": 3, "vectors": 5, "unroll": 2, "order": "nm"}
    assert len({config_to_json(config) for config in found}) == 6
    moved = [sum(config[k] != found[0][k] for k in config) for config in found[1:]]
    assert moved == [1] * 5
    repeats = [trial for trial in search.study.trials if "repeats" in trial.user_attrs]
    assert len(repeats) == 4 * 5
    assert {trial.value for trial in repeats} == {task.latency(found[0])}
    drawn = [
        trial.user_attrs.get("drawn") for trial in search.study.trials if "repeats" not in trial.user_attrs
    ]
    assert drawn[0] is None
    assert all(drawn[1:])
