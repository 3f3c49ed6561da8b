"""Groups of connected knobs: counted and sampled each on its own.

Two knobs are connected when one constraint reads both. The legal candidates of a space are the product of the
legal rows of its groups, so a uniform sample needs no rejection and a size is exact, however few candidates
survive. A group is enumerated by joining one knob after the other and filtering as soon as a constraint is
covered; only a group with more than ``MAX_ROWS`` rows is sampled by rejection from its enumerated prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.errors import KnobError
from autotune.schedule.knob import Columns, Knob
from search_spaces.constraint import Constraint
from search_spaces.population import Indexes

MAX_ROWS = 1 << 18
_MAX_PROPOSALS = 1 << 23

_NEAREST = 1024
"""So many rows of a group that is too large to enumerate are followed at each of its knobs."""
_SAMPLES = 4096

Costs = Mapping[str, NDArray[np.float64]]
"""The cost of each value of a knob, by its name."""


@dataclass(frozen=True)
class KnobGroup:
    """Connected knobs; ``rows`` enumerates the first ``covered``, ``open_constraints`` are the rest."""

    knobs: tuple[Knob, ...]
    rows: Indexes
    covered: int
    open_constraints: tuple[Constraint, ...]

    @property
    def exact(self) -> bool:
        """Return whether ``rows`` holds all legal candidates of the group."""
        return self.covered == len(self.knobs)

    def size(self) -> float:
        """Return the legal candidates: exact, or an estimate from 65,536 proposals."""
        if self.exact:
            return float(len(self.rows))
        total = float(len(self.rows)) * float(
            np.prod([float(len(knob.values)) for knob in self.knobs[self.covered :]])
        )
        proposals = self._propose(np.random.default_rng(0), 1 << 16)
        return total * float(self._legal(proposals).mean())

    def sample(self, rng: np.random.Generator, n: int) -> Indexes:
        """Return ``n`` legal rows drawn uniformly with replacement; raises KnobError where none is found."""
        if self.exact:
            return self._propose(rng, n)
        found: list[Indexes] = []
        have, proposed, batch = 0, 0, max(1024, n)
        while have < n:
            if proposed >= _MAX_PROPOSALS and not have:
                names = ", ".join(knob.name for knob in self.knobs)
                raise KnobError(f"no legal candidate in {proposed} proposals of the knobs {names}")
            proposals = self._propose(rng, batch)
            kept = proposals[self._legal(proposals)]
            proposed, have = proposed + batch, have + len(kept)
            found.append(kept)
            rate = max(have, 1) / proposed
            batch = int(min(1 << 20, max(1024, 1.2 * (n - have) / rate)))
        return np.concatenate(found)[:n]

    def _propose(self, rng: np.random.Generator, n: int) -> Indexes:
        head = self.rows[rng.integers(0, len(self.rows), n)]
        tail = [rng.integers(0, len(knob.values), n, dtype=np.int16) for knob in self.knobs[self.covered :]]
        return np.column_stack([head, *tail]) if tail else head

    def _legal(self, rows: Indexes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        columns = columns_of(self.knobs, rows)
        legal = np.ones(len(rows), dtype=np.bool_)
        for constraint in self.open_constraints:
            legal &= constraint.mask(columns)
        return legal


def columns_of(knobs: Sequence[Knob], rows: Indexes) -> Columns:
    """Return one array of values a knob for the leading columns of ``rows``."""
    return {knob.name: knob.array[rows[:, i]] for i, knob in enumerate(knobs) if i < rows.shape[1]}


def partition(knobs: Sequence[Knob], constraints: Sequence[Constraint]) -> list[list[Knob]]:
    """Return the connected components of the knobs, in declaration order."""
    leader = {knob.name: knob.name for knob in knobs}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for constraint in constraints:
        first = find(constraint.knobs[0])
        for name in constraint.knobs[1:]:
            leader[find(name)] = first
    parts: dict[str, list[Knob]] = {}
    for knob in knobs:
        parts.setdefault(find(knob.name), []).append(knob)
    return list(parts.values())


def enumerate_group(knobs: Sequence[Knob], constraints: Sequence[Constraint]) -> KnobGroup:
    """Join knob after knob, filtering as early as possible, until done or past ``MAX_ROWS``."""
    waiting = [c for c in constraints if c.knobs[0] in {knob.name for knob in knobs}]
    rows: Indexes = np.zeros((1, 0), dtype=np.int16)
    for position, knob in enumerate(knobs):
        count = len(knob.values)
        if len(rows) * count > MAX_ROWS:
            return KnobGroup(tuple(knobs), rows, position, tuple(waiting))
        values = np.tile(np.arange(count, dtype=np.int16), len(rows))
        rows = np.column_stack([np.repeat(rows, count, axis=0), values])
        covered = {k.name for k in knobs[: position + 1]}
        ready = [c for c in waiting if set(c.knobs) <= covered]
        waiting = [c for c in waiting if c not in ready]
        columns = columns_of(knobs, rows)
        keep = np.ones(len(rows), dtype=np.bool_)
        for constraint in ready:
            keep &= constraint.mask(columns)
        rows = rows[keep]
    return KnobGroup(tuple(knobs), rows, len(knobs), ())


def groups_of(knobs: Sequence[Knob], constraints: Sequence[Constraint]) -> tuple[KnobGroup, ...]:
    """Return all groups of a space; raises KnobError where a group has no legal row at all."""
    groups = tuple(enumerate_group(part, constraints) for part in partition(knobs, constraints))
    for group in groups:
        if not len(group.rows):
            names = ", ".join(knob.name for knob in group.knobs)
            raise KnobError(f"the constraints leave no legal values of the knobs {names}")
    return groups


def nearest_row(group: KnobGroup, costs: Costs) -> Indexes:
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


__all__ = [
    "MAX_ROWS",
    "Costs",
    "KnobGroup",
    "columns_of",
    "enumerate_group",
    "groups_of",
    "nearest_row",
    "partition",
]
