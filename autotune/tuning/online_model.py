"""The cost model during a job: analytic at first, then a ranker trained on what was measured."""

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
    from cost_models.ranker import Ranker
    from search_spaces.space import Space

EVERY = 8
"""The ranker is trained again after so many new runs at least, those of a batch."""
_SHARE = 1 / 16
"""And when so large a share is new: much is learned from the first runs, and training on many takes longer."""
_ROUNDS = 60
_ROWS = 6000
"""The ranker is trained on the newest rows only: training must stay a small part of a turn."""


@dataclass
class _Group:
    """The timed runs of one workload: its candidates as feature rows, and their latencies in ns."""

    space: Space
    configs: list[Config] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)


class OnlineModel:
    """Scores candidates, and learns from measured ones.

    The ranker of a job sees the loop nest's features and the knobs themselves, a column a knob name;
    ``prior``, a model trained in earlier jobs (None for none), sees the features only. ``every`` is
    how many new runs at least make it worth training again.
    """

    def __init__(self, prior: Ranker | None = None, every: int = EVERY) -> None:
        self._prior = prior
        self._every = every
        self._groups: dict[str, _Group] = {}
        self._new = 0
        self._booster: Any = None
        self._knobs: tuple[str, ...] = ()

    def observe(self, space: Space, configs: Sequence[Config], latency_ns: Sequence[float]) -> None:
        """Keep timed runs for the next training."""
        group = self._groups.setdefault(space.workload.key, _Group(space))
        group.configs.extend(configs)
        group.latency.extend(latency_ns)
        self._new += len(configs)

    def learn(self) -> bool:
        """Train again if enough is new; says whether it did."""
        known = sum(len(group.latency) for group in self._groups.values())
        if self._new < max(self._every, _SHARE * known):
            return False
        knobs = tuple(sorted({name for g in self._groups.values() for name in g.space.names}))
        x, latency, groups = self._table(knobs)
        self._booster = _train(x, latency, groups)
        self._knobs, self._new = knobs, 0
        return True

    def _table(self, knobs: tuple[str, ...]) -> tuple[Matrix, NDArray[np.float64], NDArray[np.int64]]:
        """Rows, latencies and group numbers of the newest runs of every workload."""
        share = max(32, _ROWS // max(1, len(self._groups)))
        parts, latency, number = [], [], []
        for index, group in enumerate(self._groups.values()):
            population = group.space.of(group.configs[-share:])
            parts.append(np.hstack([self.features(group.space, population), _columns(population, knobs)]))
            latency.extend(group.latency[-share:])
            number.extend([index] * len(population))
        return np.vstack(parts), np.asarray(latency), np.asarray(number)

    def features(self, space: Space, population: Population) -> Matrix:
        """The rows that :meth:`score` reads, float32 [n, F]."""
        from cost_models import features

        return features.extract(space, population)

    def score(self, space: Space, population: Population, features: Matrix) -> NDArray[Any]:
        """Scores [n], the higher the faster: analytic and learned, by how much was learned here."""
        from cost_models.features import names

        analytic = -features[:, names().index("log_total")]
        if self._booster is not None:
            rows = np.hstack([features, _columns(population, self._knobs)])
            learned = self._booster.inplace_predict(rows, validate_features=False)
            group = self._groups.get(space.workload.key)
            measured = len(group.latency) if group else 0
        elif self._prior is not None:
            learned, measured = self._prior.predict(features), 0
        else:
            return np.asarray(analytic)
        trust = (measured + 8) / (measured + 16)
        return (1 - trust) * _standard(analytic) + trust * _standard(learned)


def _train(x: Matrix, latency: NDArray[np.float64], groups: NDArray[np.int64]) -> Any:
    """A ranking booster as :class:`cost_models.ranker.Ranker` trains it, small enough for each turn.

    On one thread: the threads of so small a job wait for each other most of the time, and on a busy
    machine that made a training of 50 ms take three seconds.
    """
    import xgboost

    from cost_models.ranker import PARAMETERS, graded

    rows = xgboost.DMatrix(x, label=graded(latency, groups), qid=groups)
    return xgboost.train({**PARAMETERS, "nthread": 1}, rows, num_boost_round=_ROUNDS)


def _columns(population: Population, knobs: tuple[str, ...]) -> Matrix:
    """The encoded knobs called ``knobs`` [n, len(knobs)]; NaN where the space has no such knob."""
    columns = np.full((len(population), len(knobs)), np.nan, dtype=np.float32)
    for position, knob in enumerate(population.knobs):
        if knob.name in knobs:
            codes = np.asarray([knob.encode(value) for value in knob.values], dtype=np.float32)
            columns[:, knobs.index(knob.name)] = codes[population.indexes[:, position]]
    return columns


def _standard(values: NDArray[Any]) -> NDArray[Any]:
    """Zero mean and unit spread, so that two models can be added."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else values * 0.0


__all__ = ["EVERY", "OnlineModel"]
