"""A space of which only the recorded candidates exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search_spaces.group import Costs
from search_spaces.population import Indexes, Population
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.schedule.knob import Config, Value

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


__all__ = ["RecordedSpace"]
