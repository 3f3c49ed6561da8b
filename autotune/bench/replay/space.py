"""A space of which only the recorded candidates exist, and Optuna's samplers in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import UsageError
from autotune.schedule.knob import Config
from autotune.tuning.search.study import distribution, known_trials, population_of, to_config, to_params
from search_spaces.population import Indexes, Population
from search_spaces.projection import Costs
from search_spaces.space import Space

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autotune.schedule.knob import Value

_NEIGHBOURS = 8
"""So many of the nearest candidates are neighbours: those one step away are seldom recorded."""


@dataclass(frozen=True)
class RecordedSpace(Space):
    """A space with a finite ``pool`` of candidates, as if there were no others.

    What is drawn is drawn from the pool, and the neighbours of a candidate are the nearest of the pool.
    """

    pool: Population = field(kw_only=True)

    @staticmethod
    def among(space: Space, configs: Sequence[Config]) -> RecordedSpace:
        """The given candidates of a space."""
        whole = {f.name: getattr(space, f.name) for f in fields(Space)}
        return RecordedSpace(**whole, pool=space.of(configs).distinct())

    @property
    def exact(self) -> bool:
        """The pool is counted."""
        return True

    def size(self) -> int:
        """The number of candidates."""
        return len(self.pool)

    def enumerate(self) -> Population:
        """The pool."""
        return self.pool

    def sample(self, rng: np.random.Generator, n: int) -> Population:
        """``n`` of the pool, with replacement."""
        return self.pool.take(rng.integers(len(self.pool), size=n))

    def neighbourhood(self, centre: Population) -> Population:
        """The nearest of the pool to any of ``centre``, without these."""
        near = [np.argsort(self.distances(row), kind="stable")[: _NEIGHBOURS + 1] for row in centre.indexes]
        rows = np.unique(np.concatenate([np.zeros(0, np.intp), *near]))
        found = self.pool.take(rows)
        return found.take(~np.isin(found.codes(), centre.codes())) if len(found) else found

    def nearest(self, costs: Costs) -> dict[str, Value]:
        """The candidate of the pool whose values cost least together."""
        total = np.zeros(len(self.pool))
        for position, knob in enumerate(self.knobs):
            total += costs[knob.name][self.pool.indexes[:, position]]
        return self.pool.config(int(total.argmin()))

    def distances(self, candidate: Indexes) -> NDArray[np.float64]:
        """Return the distance of each of the pool from a candidate."""
        return self.pool.distances(Population(self.knobs, candidate[np.newaxis]))[:, 0]


class PoolSampler(BaseSampler):  # type: ignore[misc]  # Optuna is read without its types
    """Proposes candidates of a pool: the one nearest to what another sampler proposes of those that it has not
    proposed yet or, without another, any of them.

    The other sampler sees the candidates of the pool as its own proposals.
    """

    def __init__(self, space: RecordedSpace, seed: int, other: BaseSampler | None = None) -> None:
        self._space = space
        self._other = other
        self._rng = np.random.default_rng(seed)

    def reseed_rng(self) -> None:
        """Draw other numbers from now on."""
        self._rng = np.random.default_rng()
        if self._other is not None:
            self._other.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All knobs: one proposal chooses them together."""
        return {knob.name: distribution(knob) for knob in self._space.knobs}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next candidate."""
        left = np.flatnonzero(~self._proposed(study))
        if not len(left):
            left = np.arange(len(self._space.pool))
        if self._other is None:
            row = int(self._rng.choice(left))
        else:
            config = to_config(self._space, self._asked(self._other, study, trial, search_space))
            far = self._space.distances(self._space.of([config]).indexes[0])
            row = int(left[far[left].argmin()])
        return to_params(self._space, self._space.pool.config(row))

    def _proposed(self, study: Study) -> NDArray[np.bool_]:
        """Return a mask of those of the pool that a study knows."""
        seen = population_of(self._space, known_trials(study, self._space))
        return np.isin(self._space.pool.codes(), seen.codes())

    @staticmethod
    def _asked(
        other: BaseSampler, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Value]:
        """Return the proposal of another sampler, the knobs that it draws one by one included."""
        params = other.sample_relative(study, trial, other.infer_relative_search_space(study, trial))
        return {
            name: params[name] if name in params else other.sample_independent(study, trial, name, of)
            for name, of in search_space.items()
        }

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never needed: every knob is in the relative search space."""
        raise UsageError(f"there is no recorded parameter {param_name!r}")

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """The other sampler hears of it."""
        if self._other is not None:
            self._other.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """The other sampler hears of it."""
        if self._other is not None:
            self._other.after_trial(study, trial, state, values)


__all__ = ["PoolSampler", "RecordedSpace"]
