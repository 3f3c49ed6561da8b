"""Our sampler: an Optuna sampler guided by the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.schedule.knob import Config
from autotune.tuning.search.aim import Aim
from autotune.tuning.search.legal import SpaceSampler, unproposed
from cost_models import proposals
from search_spaces.population import Population

if TYPE_CHECKING:
    from search_spaces.space import Space

GUIDED = "guided"
_BLIND = 8
"""So many are random at first: without readings the cost model's favourites are all much like the default.

One that was trained before needs none: with scores that correlate by 0.55 with the logarithm of the latency, the
recorded spaces take 6.5 trials to 95 % of the best (geometric mean), 10.8 with random ones first, 13.7 without it."""
_FIRST, _TRIED = 0.5, 24
"""Then so large a share is random, and half of what it is more than later after so many trials."""
_APART = 4
"""A random proposal is the one of so many that is farthest from all before (best-candidate sampling, Mitchell 1991)."""
_RANDOM = 512
_PARENTS = 12
_LINE = 64
"""Bytes that make no difference: nothing needs none at all."""
_LEAST = 1e-3
"""A latency in µs that none is below: a nanosecond."""
_ROUNDS = 2


class Scorer(Protocol):
    """Scores candidates for a search; features are computed once a candidate, scores again and again.

    One that is ``trained`` has learnt from readings before the search begins: its favourites are worth trying at once.
    """

    @property
    def trained(self) -> bool:
        """Return whether it has learnt from readings of other workloads or jobs."""

    def features(self, space: Space, population: Population) -> NDArray[Any]:
        """Return one row a candidate."""

    def score(self, space: Space, population: Population, features: NDArray[Any]) -> NDArray[Any]:
        """Return scores [n] of candidates of one space; the higher, the faster."""


@dataclass(frozen=True)
class _Pool:
    """Candidates and their features."""

    population: Population
    features: NDArray[Any]


class GuidedSampler(SpaceSampler):
    """Proposes the candidates that a cost model likes best, among many.

    For every batch it scores a random population and, in a few rounds, the neighbours of the best
    measured and the best scored candidates: the evolutionary search of Ansor (Zheng et al., OSDI
    2020) with a neighbourhood for its mutations. Of each batch, a share ``local`` is the best scored
    among the neighbours of the best measured, and a share ``explore``, all of the first unless the scorer is trained,
    is random and spread out: both find what the model is wrong about.
    Of a study with several objectives each batch has random weights (:mod:`autotune.tuning.search.aim`).
    All of its memory is the study, so that a rebuilt study continues where it was.
    """

    def __init__(
        self,
        space: Space,
        scorer: Scorer,
        seed: int,
        batch: int = 8,
        *,
        local: float = 0.3,
        explore: float = 0.1,
    ) -> None:
        super().__init__(space)
        self._scorer = scorer
        self._batch = batch
        self._local = local
        self._explore = explore
        self._rng = np.random.default_rng(seed)
        self._queue: list[Config] = []
        self._aim = Aim(np.ones(1), space.of([]), np.zeros((0, 1)))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the next candidate of the batch; a new batch when it is used up."""
        if not self._queue:
            self._queue = self._propose(study)
        return self.parameters.of(self._queue.pop(0))

    def _propose(self, study: Study) -> list[Config]:
        done = self.parameters.known(study)
        seen = self.parameters.population(done)
        self._aim = self._aimed(done, len(study.directions))
        best = self._aim.measured.take(self._aim.best[:_PARENTS])
        fresh = self.space.population(self._rng, _RANDOM)
        pool = _Pool(fresh, self._scorer.features(self.space, fresh))
        pool = self._unseen(self._grow(pool, best), seen)
        if not len(pool.population):
            return [unproposed(self.parameters, study, self._rng, 1).config(0)]
        order = self._ranked(pool) if len(done) >= _BLIND else self._apart(pool)
        near = order[self._is_near(pool.population.take(order), best)]
        more = max(0.0, _FIRST - self._explore) * _TRIED / (_TRIED + len(done))
        explore = 1.0 if len(done) < _BLIND else self._explore + more
        explore = self._explore if self._scorer.trained else explore
        picked: list[int] = []
        for kind in self._rng.random(min(self._batch, len(order))):
            source = order
            if kind < explore:
                source = self._spread(pool.population, picked, seen)
            elif kind < explore + self._local:
                source = near
            picked.append(next(int(row) for row in chain(source, order) if int(row) not in picked))
        return [pool.population.config(row) for row in picked]

    def _spread(self, pool: Population, picked: list[int], seen: Population) -> NDArray[np.intp]:
        """Return a few random rows of those that are not picked, the farthest from picked and seen ones first."""
        before = Population.concatenate([seen, pool.take(np.asarray(picked, np.intp))])
        few = self._rng.permutation(np.setdiff1d(np.arange(len(pool)), picked))[:_APART]
        if not len(before):
            return few
        return few[np.argsort(-pool.take(few).distances(before).min(axis=1), kind="stable")]

    def _ranked(self, pool: _Pool) -> NDArray[np.intp]:
        """Return rows of the pool, the best scored first."""
        return np.argsort(-self._worth(pool), kind="stable")

    def _apart(self, pool: _Pool) -> NDArray[np.intp]:
        """Return the same, but first a batch of the best that are not all alike, while no reading says what the
        scores are wrong about: later, the best are found sooner among those that are."""
        worth = self._worth(pool)
        order = np.argsort(-worth, kind="stable")
        apart = proposals.first(worth, pool.population.indexes, self._batch)
        return np.concatenate([apart, order[~np.isin(order, apart)]])

    def _worth(self, pool: _Pool) -> NDArray[Any]:
        """Return the worth of the candidates of a pool, by their scores and the objective of the batch."""
        scores = self._scorer.score(self.space, pool.population, pool.features)
        return self._aim.worth(pool.population, scores)

    def _grow(self, pool: _Pool, best: Population) -> _Pool:
        """Add the neighbours of what is best so far, round by round."""
        pool = self._add(self._add(pool, best), self.space.neighbourhood(best))
        for _ in range(_ROUNDS):
            parents = pool.population.take(self._ranked(pool)[:_PARENTS])
            pool = self._add(pool, self.space.neighbourhood(parents))
        return pool

    def _add(self, pool: _Pool, more: Population) -> _Pool:
        """Return the pool with the candidates of ``more`` that are new."""
        new = more.take(~np.isin(more.codes(), pool.population.codes())) if len(more) else more
        if not len(new):
            return pool
        features = np.vstack([pool.features, self._scorer.features(self.space, new)])
        return _Pool(Population.concatenate([pool.population, new]), features)

    def _is_near(self, pool: Population, best: Population) -> NDArray[np.bool_]:
        """Return which candidates are neighbours of the few best measured ones."""
        near = self.space.neighbourhood(best.take(np.arange(min(len(best), 2))))
        return np.isin(pool.codes(), near.codes()) if len(near) else np.zeros(len(pool), np.bool_)

    def _aimed(self, done: list[FrozenTrial], objectives: int) -> Aim:
        """Return the objective of the next batch, and all that was measured."""
        weights = np.ones(1) if objectives == 1 else self._rng.dirichlet(np.ones(objectives))
        timed = [t for t in done if t.state == TrialState.COMPLETE]
        values = np.asarray([t.values for t in timed], np.float64).reshape(-1, objectives)
        values[:, 1:] += _LINE
        return Aim(weights, self.parameters.population(timed), np.log2(np.maximum(values, _LEAST)))

    def _unseen(self, pool: _Pool, seen: Population) -> _Pool:
        fresh = ~np.isin(pool.population.codes(), seen.codes())
        return _Pool(pool.population.take(fresh), pool.features[fresh])


__all__ = ["GUIDED", "GuidedSampler", "Scorer"]
