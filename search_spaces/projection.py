"""A configuration of one space in another: of the same workload for another target, or of a workload of other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Config, Knob, Value
from search_spaces.group import KnobGroup, columns_of
from search_spaces.population import Indexes

if TYPE_CHECKING:
    from search_spaces.space import Space

_NEAREST = 1024
"""So many rows of a group that is too large to enumerate are followed at each of its knobs."""
_SAMPLES = 4096

Costs = Mapping[str, NDArray[np.float64]]
"""The cost of each value of a knob, by its name."""


def projected(space: Space, config: Config, otherwise: Config) -> dict[str, Value]:
    """Return the legal configuration of ``space`` that is nearest to one of another space, knob by knob
    of the same name.

    Knobs that the other space does not have are as in ``otherwise``, a configuration of this one, as far as that
    is legal. Octaves between the values of a knob count, and one for an alternative that is another.
    """
    return space.nearest({knob.name: knob.costs(_wanted(knob, config, otherwise)) for knob in space.knobs})


def nearest(space: Space, costs: Costs) -> dict[str, Value]:
    """Return the nearest configuration, as :meth:`search_spaces.space.Space.nearest` describes."""
    found: dict[str, Value] = {}
    least = {knob.name: knob.values[int(costs[knob.name].argmin())] for knob in space.knobs}
    if space.broken(least) is None:
        return least
    for group in space.groups:
        row = _nearest(group, costs)
        found |= {knob.name: knob.values[index] for knob, index in zip(group.knobs, row, strict=True)}
    return space.check(found)


def _wanted(knob: Knob, config: Config, otherwise: Config) -> Value:
    """Return the other space's value where it means something here: any int of an int knob, else one that is legal."""
    value = config.get(knob.name, otherwise[knob.name])
    known = type(value) is int if knob.ordered else value in knob.values
    return value if known else otherwise[knob.name]


def _nearest(group: KnobGroup, costs: Costs) -> Indexes:
    """Return the nearest legal row of a group; of one that is too large to enumerate, a near one."""
    if group.exact:
        return np.asarray(group.rows[_total(group.rows, group.knobs, costs).argmin()])
    rows, covered = _first(group.rows, group.knobs, costs), group.covered
    while covered < len(group.knobs) and len(rows):
        rows = _first(_extended(rows, group, covered), group.knobs, costs)
        covered += 1
    if not len(rows):
        rows = _first(group.sample(np.random.default_rng(0), _SAMPLES), group.knobs, costs)
    return np.asarray(rows[0])


def _extended(rows: Indexes, group: KnobGroup, covered: int) -> Indexes:
    """Return the rows with each value of the next knob, as far as the constraints that are then covered allow."""
    count = len(group.knobs[covered].values)
    values = np.tile(np.arange(count, dtype=np.int16), len(rows))
    longer = np.column_stack([np.repeat(rows, count, axis=0), values])
    names = {knob.name for knob in group.knobs[: covered + 1]}
    columns = columns_of(group.knobs, longer)
    keep = np.ones(len(longer), dtype=np.bool_)
    for constraint in group.open_constraints:
        if set(constraint.knobs) <= names:
            keep &= constraint.mask(columns)
    return np.asarray(longer[keep])


def _first(rows: Indexes, knobs: tuple[Knob, ...], costs: Costs) -> Indexes:
    """Return the nearest rows, nearest first."""
    return np.asarray(rows[np.argsort(_total(rows, knobs, costs), kind="stable")[:_NEAREST]])


def _total(rows: Indexes, knobs: tuple[Knob, ...], costs: Costs) -> NDArray[np.float64]:
    total = np.zeros(len(rows))
    for position in range(rows.shape[1]):
        total += costs[knobs[position].name][rows[:, position]]
    return total


__all__ = ["Costs", "nearest", "projected"]
