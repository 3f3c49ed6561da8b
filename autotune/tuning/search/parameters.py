"""Configurations of a space as the parameters of Optuna trials: by the names of the knobs, with their values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.schedule.knob import Config, Knob, Value
from search_spaces.population import Population

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from search_spaces.space import Space

WHOLE = "all"
"""The value 0 of a knob that stands for the whole extent, beside numbers of elements or tiles."""


class KnobParameters:
    """The parameters of a space.

    A knob of numbers is an integer range, logarithmic where they are not evenly spaced, so that samplers know which
    are near. Names, flags, and numbers with 0 among them that lie in no such range are categories.

    >>> from autotune.schedule.knob import Knob
    >>> _values(Knob("block", (0, 1, 2, 4), zero_is_all=True))
    ['all', 1, 2, 4]
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.distributions: dict[str, BaseDistribution] = {knob.name: _range(knob) for knob in space.knobs}
        self._values = {knob.name: _values(knob) for knob in space.knobs}
        self._indexes = {
            name: {value: index for index, value in enumerate(values)}
            for name, values in self._values.items()
        }

    def of(self, config: Config) -> dict[str, Value]:
        """Return a configuration as parameters."""
        return {
            knob.name: self._values[knob.name][knob.index(config[knob.name])] for knob in self.space.knobs
        }

    def config(self, params: Mapping[str, Any]) -> dict[str, Value]:
        """Return parameters as a configuration; a number between two values of a knob becomes the nearer one."""
        return {knob.name: knob.values[self._index(knob, params[knob.name])] for knob in self.space.knobs}

    def _index(self, knob: Knob, param: Any) -> int:
        found = self._indexes[knob.name].get(param)
        if found is not None:
            return found
        return min(range(len(knob.values)), key=lambda index: _octaves(int(knob.values[index]), int(param)))

    def known(self, study: Study) -> list[FrozenTrial]:
        """Return the trials with a value for every knob: the one that is being asked for has part of them."""
        return [t for t in study.get_trials(deepcopy=False) if len(t.params) == len(self.space.knobs)]

    def population(self, trials: Iterable[FrozenTrial]) -> Population:
        """Return the candidates of trials."""
        tables = list(self._indexes.items())
        rows = [[table[params[name]] for name, table in tables] for params in (t.params for t in trials)]
        return Population(self.space.knobs, np.asarray(rows, np.int16).reshape(-1, len(tables)))


def _has_whole(knob: Knob) -> bool:
    return knob.zero_is_all and knob.values[0] == 0 and len(knob.values) > 1


def _values(knob: Knob) -> list[Value]:
    """Return the parameter of each of the knob's values."""
    return [WHOLE, *knob.values[1:]] if _has_whole(knob) else list(knob.values)


def _range(knob: Knob) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if _has_whole(knob):
        return CategoricalDistribution([*knob.values[1:], WHOLE])
    if not knob.ordered:
        return CategoricalDistribution(knob.values)
    values = [int(value) for value in knob.values]
    steps = {after - before for before, after in pairwise(values)}
    if len(steps) <= 1:
        return IntDistribution(values[0], values[-1], step=min(steps, default=1))
    if values[0] >= 1:
        return IntDistribution(values[0], values[-1], log=True)
    return CategoricalDistribution(values)


def _octaves(one: int, other: int) -> float:
    return abs(math.log2((1 + one) / (1 + other)))


__all__ = ["WHOLE", "KnobParameters"]
