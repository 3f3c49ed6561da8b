"""Samplers whose proposals are legal candidates of a space, and any other sampler made one of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import InternalError
from autotune.schedule.knob import Config, Value
from autotune.tuning.search.parameters import KnobParameters
from search_spaces.population import Population

if TYPE_CHECKING:
    from search_spaces.space import Space

_ROUNDS = 3
"""Steps from a candidate within which one that was not proposed yet is looked for before the whole space."""
_MORE = 64


class SpaceSampler(BaseSampler):  # type: ignore[misc]  # Optuna is read without its types
    """A sampler that chooses all knobs of one space together, and proposes legal candidates only."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parameters = KnobParameters(space)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all knobs."""
        return self.parameters.distributions

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: every knob is in the relative search space."""
        raise InternalError(f"the space {self.space.family!r} has no knob {param_name!r}")


class UniformSampler(SpaceSampler):
    """Proposes legal candidates in random order, each as likely as the others, none twice."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space)
        self._rng = np.random.default_rng(seed)
        self._queue: list[dict[str, Value]] = []

    def reseed_rng(self) -> None:
        """Draw other candidates from now on."""
        self._rng = np.random.default_rng()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the next candidate."""
        if not self._queue:
            self._queue = unproposed(self.parameters, study, self._rng, _MORE).configs()
        return self.parameters.of(self._queue.pop(0))


class LegalSampler(SpaceSampler):
    """Proposes, for each draw of another sampler, the legal candidate nearest to it that may be proposed.

    The other sampler draws every knob from its whole range, as Optuna's samplers do. Constraints are then propagated
    to all knobs at once: of the legal candidates the nearest is taken, by the knobs' own distances (octaves between
    numbers, one for another name), which is the draw itself where that is legal. The trial has the candidate's
    parameters from the beginning, so that the other sampler learns from what was measured. ``moved`` has the knobs
    of the latest draw that were moved, with what was drawn.

    ``may_propose`` says which candidates may be; where the nearest may not, the nearest that may is taken.
    """

    def __init__(self, space: Space, sampler: BaseSampler, may_propose: Callable[[Config], bool]) -> None:
        super().__init__(space)
        self.sampler = sampler
        self.moved: dict[str, Value] = {}
        self._may_propose = may_propose
        self._rng = np.random.default_rng(0)

    def reseed_rng(self) -> None:
        """Draw other candidates from now on."""
        self.sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the other sampler."""
        self.sampler.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell the other sampler."""
        self.sampler.after_trial(study, trial, state, values)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the candidate."""
        drawn = self._draw(study, trial, search_space)
        params = self.parameters.of(self._nearest(study, self.parameters.config(drawn)))
        self.moved = {name: value for name, value in drawn.items() if params[name] != value}
        return params

    def _draw(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the draw of the other sampler, the knobs included that it draws one by one."""
        together = self.sampler.infer_relative_search_space(study, trial)
        drawn = self.sampler.sample_relative(study, trial, together)
        seen = copy.copy(study._storage.get_trial(trial._trial_id))  # with what before_trial has noted
        seen.params, seen.distributions = {}, {}
        for name, of in search_space.items():
            if name not in drawn:
                drawn[name] = self.sampler.sample_independent(study, seen, name, of)
            seen.params = {**seen.params, name: drawn[name]}
            seen.distributions = {**seen.distributions, name: of}
        return {name: drawn[name] for name in search_space}

    def _nearest(self, study: Study, wanted: Config) -> Config:
        costs = {knob.name: knob.costs(wanted[knob.name]) for knob in self.space.knobs}
        found = self.space.settled(self.space.of([self.space.nearest(costs)]))
        if len(found) and self._may_propose(found.config(0)):
            return found.config(0)
        around = found
        for _ in range(_ROUNDS):
            around = self.space.neighbourhood(around) if len(around) else around
            if (config := self._first(around, wanted)) is not None:
                return config
        rest = unproposed(self.parameters, study, self._rng, _MORE)
        config = self._first(rest, wanted)
        return rest.config(0) if config is None else config

    def _first(self, candidates: Population, wanted: Config) -> Config | None:
        """Return the candidate nearest to what is wanted that may be proposed."""
        total = np.zeros(len(candidates))
        for position, knob in enumerate(self.space.knobs):
            total += knob.costs(wanted[knob.name])[candidates.indexes[:, position]]
        ordered = (candidates.config(row) for row in np.argsort(total, kind="stable"))
        return next((config for config in ordered if self._may_propose(config)), None)


def unproposed(parameters: KnobParameters, study: Study, rng: np.random.Generator, count: int) -> Population:
    """Return at least one legal candidate of a space and up to about ``count``, at random: none that has a trial,
    unless all have."""
    seen = parameters.population(parameters.known(study))
    drawn = parameters.space.population(rng, len(seen) + count)
    fresh = drawn.take(~np.isin(drawn.codes(), seen.codes()))
    return fresh if len(fresh) else drawn.take([0])


__all__ = ["LegalSampler", "SpaceSampler", "UniformSampler", "unproposed"]
