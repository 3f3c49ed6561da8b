"""The cost model during a job: what was known before it, and what it measures on top of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Config
from search_spaces.population import Population

Matrix = NDArray[np.float32]

if TYPE_CHECKING:
    from autotune.tuning.search.prior import PriorModel
    from search_spaces.space import Space

EVERY = 8
"""The ranker is trained again after so many new runs at least, those of a batch."""
_SHARE = 1 / 16
"""And when so large a share is new: much is learned from the first runs, and training on many takes longer."""
_ROUNDS = 60
_ROWS = 6000
"""The ranker is trained on the newest rows only: training must stay a small part of a turn."""


@dataclass
class _TimedRuns:
    """The timed runs of one workload: its candidates as feature rows, and their latencies in ns."""

    space: Space
    configs: list[Config] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)


class OnlineModel:
    """Scores candidates, and learns from measured ones.

    Before anything is measured the score is that of ``prior``, a model trained in earlier jobs, or the analytic
    model's without one. It stays for the whole job: what the job learns corrects it, and its ranking keeps a
    share that shrinks with what was measured. The ranker of a job sees the loop nest's features and the knobs
    themselves, a column a knob name; the prior sees the features only. ``every`` is how many new runs at least
    make it worth training again.
    """

    def __init__(self, prior: PriorModel | None = None, every: float = EVERY) -> None:
        self._prior = prior
        self._every = every
        self._groups: dict[str, _TimedRuns] = {}
        self._new = 0
        self._booster: Any = None
        self._knobs: tuple[str, ...] = ()

    @property
    def trained(self) -> bool:
        """Return whether there is a model of earlier jobs."""
        return self._prior is not None

    def observe(self, space: Space, configs: Sequence[Config], latency_ns: Sequence[float]) -> None:
        """Keep timed runs for the next training."""
        group = self._groups.setdefault(space.workload.key, _TimedRuns(space))
        group.configs.extend(configs)
        group.latency.extend(latency_ns)
        self._new += len(configs)

    def learn(self) -> bool:
        """Train again if enough is new; says whether it did."""
        known = sum(len(group.latency) for group in self._groups.values())
        if self._new < max(self._every, _SHARE * known):
            return False
        groups = [group for group in self._groups.values() if len(set(group.latency)) > 1]
        if not groups:
            return False
        knobs = tuple(sorted({name for group in groups for name in group.space.names}))
        self._booster = self._train(groups, knobs)
        self._knobs, self._new = knobs, 0
        return True

    def _train(self, groups: Sequence[_TimedRuns], knobs: tuple[str, ...]) -> Any:
        """Return a booster over the newest runs of workloads that have some to compare."""
        share = max(32, _ROWS // len(groups))
        parts, before, latency, number = [], [], [], []
        for index, group in enumerate(groups):
            population = group.space.of(group.configs[-share:])
            features = self.features(group.space, population)
            parts.append(np.hstack([features, population.encoded(knobs)]))
            before.append(self._before(features))
            latency.extend(group.latency[-share:])
            number.extend([index] * len(population))
        return _train(np.vstack(parts), np.asarray(latency), np.asarray(number), np.concatenate(before))

    def _before(self, features: Matrix) -> NDArray[Any]:
        """Return scores [n] of what was known before the job."""
        from cost_models.ranker import analytic_scores

        return analytic_scores(features) if self._prior is None else self._prior.predict(features)

    def features(self, space: Space, population: Population) -> Matrix:
        """Return the rows that :meth:`score` reads, float32 [n, F]."""
        from cost_models import features

        return features.extract(space, population)

    def score(self, space: Space, population: Population, features: Matrix) -> NDArray[Any]:
        """Return scores [n], the higher the faster: what was known before and what was learned, by how
        much that was."""
        before = self._before(features)
        if self._booster is None:
            return before
        rows = np.hstack([features, population.encoded(self._knobs)])
        learned = self._booster.inplace_predict(rows, validate_features=False, base_margin=before)
        group = self._groups.get(space.workload.key)
        measured = len(group.latency) if group else 0
        trust = (measured + 8) / (measured + 16)
        return (1 - trust) * _standard(before) + trust * _standard(learned)


def _train(
    x: Matrix, latency: NDArray[np.float64], groups: NDArray[np.int64], before: NDArray[np.float32]
) -> Any:
    """Return a ranking booster that starts from the scores ``before``, small enough to be trained in a turn.

    On one thread: those of so small a job wait for each other, which on a busy machine made 50 ms three seconds.
    """
    import xgboost

    from cost_models.objectives import LAMBDARANK, TREES, graded

    rows = xgboost.DMatrix(x, label=graded(latency, groups), qid=groups, base_margin=before)
    return xgboost.train({**TREES, **LAMBDARANK}, rows, num_boost_round=_ROUNDS)


def _standard(values: NDArray[Any]) -> NDArray[Any]:
    """Return it with zero mean and unit spread, so that two models can be added."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else values * 0.0


__all__ = ["EVERY", "OnlineModel"]
