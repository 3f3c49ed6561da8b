"""A search space: knobs, constraints and the recipe that turns a configuration into a schedule."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune import te
from autotune.errors import KnobError, ScheduleError
from autotune.schedule import legality
from autotune.schedule.knob import Columns, Config, Knob, Value
from autotune.suggest import did_you_mean
from search_spaces.constraint import Constraint
from search_spaces.group import Costs, KnobGroup, groups_of, nearest_row
from search_spaces.population import Population
from search_spaces.report import SpaceReport, report

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.graph.region import RegionProgram
    from autotune.schedule import Schedule
    from autotune.target import Target
    from search_spaces.nest import LoopNest
    from search_spaces.nest.derive import Nests
    from search_spaces.sketch import Choices, Sketch


class Recipe(Protocol):
    """A schedule function with knobs: what it does is the sketch of a space."""

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Apply the primitives of ``config``, whose values may be those of knobs."""


class _Knobs(Mapping[str, Any]):
    """The knobs of a space as a schedule function looks them up."""

    def __init__(self, schedule: Schedule, names: Sequence[str]) -> None:
        self._schedule = schedule
        self._names = names

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._schedule.knob(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Space:
    """The legal schedules of one workload on one target.

    ``key`` covers the knobs, their values and the names of the constraints; with the keys of workload and target it
    looks up the tuning database. What code a configuration gives is no part of it: each run has the key of its own.
    """

    workload: AnyWorkload
    target: Target
    family: str
    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...]
    recipe: Recipe
    sketch: Sketch | None = None
    """The user's schedule function, for a program of a user's own."""

    def __post_init__(self) -> None:
        names = [knob.name for knob in self.knobs]
        if len(set(names)) != len(names):
            raise KnobError(f"space {self.family!r} declares a knob twice: {', '.join(names)}")
        for constraint in self.constraints:
            if not constraint.knobs or not set(constraint.knobs) <= set(names):
                raise KnobError(
                    f"constraint {constraint.name!r} reads the knobs {constraint.knobs}, "
                    f"allowed: {', '.join(names)}"
                )

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of everything that gives a stored configuration its meaning."""
        parts = {
            "family": self.family,
            "knobs": [knob.fingerprint for knob in self.knobs],
            "constraints": [constraint.name for constraint in self.constraints],
        }
        if self.sketch is not None:
            parts["function"] = self.sketch.fingerprint
        text = json.dumps(parts, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def groups(self) -> tuple[KnobGroup, ...]:
        """The groups of connected knobs; raises KnobError for a space without candidates."""
        return groups_of(self.knobs, self.constraints)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        joined = [knob.name for group in self.groups for knob in group.knobs]
        return np.asarray([joined.index(knob.name) for knob in self.knobs], dtype=np.intp)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the knobs, in order."""
        return tuple(knob.name for knob in self.knobs)

    @property
    def exact(self) -> bool:
        """Return whether :meth:`size` is a count and not an estimate."""
        return all(group.exact for group in self.groups)

    def size(self) -> int:
        """Return the number of legal configurations (an estimate unless :attr:`exact`)."""
        total = 1.0
        for group in self.groups:
            total *= group.size()
        return round(total)

    def explain(self) -> SpaceReport:
        """Return sizes, and what each constraint removed."""
        return report(self.family, self.knobs, self.constraints, self.size(), self.exact)

    def sample(self, rng: np.random.Generator, n: int) -> Population:
        """Return ``n`` legal candidates drawn uniformly, with replacement."""
        parts = [group.sample(rng, n) for group in self.groups]
        return Population(self.knobs, np.column_stack(parts)[:, self._order])

    def enumerate(self) -> Population:
        """Return all legal candidates, in a fixed order; raises KnobError for a space of over 2^20."""
        if not self.exact or self.size() > 1 << 20:
            raise KnobError(f"space {self.family!r} is too large to enumerate: {self.size():,}")
        rows = self.groups[0].rows
        for group in self.groups[1:]:
            left = np.repeat(rows, len(group.rows), axis=0)
            rows = np.column_stack([left, np.tile(group.rows, (len(rows), 1))])
        return Population(self.knobs, rows[:, self._order])

    def population(self, rng: np.random.Generator, n: int) -> Population:
        """Return ``n`` *distinct* legal candidates in random order; all of them where there are no more than n."""
        if self.exact and self.size() <= max(n, 256):
            everything = self.settled(self.enumerate())
            return everything.take(rng.permutation(len(everything))[:n])
        found = self.settled(self.sample(rng, n)).distinct()
        for _ in range(16):
            if len(found) >= n:
                break
            found = Population.concatenate([found, self.settled(self.sample(rng, n))]).distinct()
        return found.take(np.arange(min(n, len(found))))

    def random(self, rng: np.random.Generator, n: int) -> list[dict[str, Value]]:
        """Return ``n`` distinct legal configurations (fewer where the space has fewer)."""
        return self.population(rng, n).configs()

    def of(self, configs: Sequence[Config]) -> Population:
        """Return configurations as a population; raises KnobError as :meth:`check` does, except for constraints."""
        for config in configs:
            self._check_names(config)
        return Population.of(self.knobs, configs)

    def legal(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which of n candidates keep all constraints, bool [n]."""
        result = np.ones(len(next(iter(columns.values()))), dtype=np.bool_)
        for constraint in self.constraints:
            result &= constraint.mask(columns)
        return result

    def broken(self, config: Config) -> Constraint | None:
        """Return the first constraint that ``config`` breaks, or None."""
        columns = self.of([config]).columns()
        return next((c for c in self.constraints if not c.mask(columns)[0]), None)

    def check(self, config: Config) -> dict[str, Value]:
        """Return the configuration with its knobs in order; raises KnobError unless it is legal here."""
        self._check_names(config)
        checked = {knob.name: knob.values[knob.index(config[knob.name])] for knob in self.knobs}
        for constraint in self.constraints:
            constraint.check(checked)
        return checked

    def legal_among(self, configs: Sequence[Config]) -> tuple[Population, NDArray[np.bool_]]:
        """Return those of ``configs`` that are legal here, in order, and which of them are, bool [n]."""
        rows = [self._indexes(config) for config in configs]
        known = [row for row in rows if row is not None]
        found = np.asarray([row is not None for row in rows], np.bool_)
        population = Population(self.knobs, np.asarray(known, np.int16).reshape(-1, len(self.knobs)))
        kept = self.legal(population.columns())
        found[found] = kept
        return population.take(kept), found

    def _indexes(self, config: Config) -> list[int] | None:
        """Return the indexes of a configuration's values; None where it has other knobs or values."""
        try:
            self._check_names(config)
            return [knob.index(config[knob.name]) for knob in self.knobs]
        except KnobError:
            return None

    def _check_names(self, config: Config) -> None:
        if config.keys() != set(self.names):
            missing = sorted(set(self.names) - config.keys())
            unknown = sorted(config.keys() - set(self.names))
            raise KnobError(
                f"a configuration of space {self.family!r} "
                + "; ".join(
                    f"{what} {', '.join(names)}"
                    for what, names in (("lacks", missing), ("has unknown", unknown))
                    if names
                )
                + f" (knobs: {', '.join(self.names)})"
                + "".join(did_you_mean(name, self.names) for name in unknown[:1])
            )

    def neighbourhood(self, centre: Population) -> Population:
        """Return all legal candidates one step of one knob away from any of ``centre``, without repeats."""
        tables = [knob.steps for knob in self.knobs]
        positions = np.repeat(np.arange(len(tables)), [table.shape[1] for table in tables])
        others = np.concatenate([t[centre.indexes[:, i]] for i, t in enumerate(tables)], axis=1)
        rows, steps = np.nonzero(others >= 0)
        changed = centre.indexes[rows]
        changed[np.arange(len(rows)), positions[steps]] = others[rows, steps]
        population = Population(self.knobs, changed)
        return self.settled(population.take(self.legal(population.columns()))).distinct()

    def settled(self, population: Population) -> Population:
        """Return the candidates of a user's function, with the defaults for knobs that make no difference."""
        if self.sketch is None or not len(population):
            return population
        indexes = population.indexes.copy()
        taken = np.ones(len(indexes), dtype=np.bool_)
        for rows, path in self.sketch.paths(population.columns()):
            taken[rows] = path.error is None
            for position, knob in enumerate(self.knobs):
                if path.error is None and knob.name not in path.active:
                    indexes[rows, position] = knob.default_index
        return Population(self.knobs, indexes).take(taken)

    def default(self) -> dict[str, Value]:
        """Return the declared defaults where legal, else the legal candidate of each group nearest to them."""
        picked = np.zeros(len(self.knobs), dtype=np.int16)
        names = self.names
        for group in self.groups:
            want = np.asarray([knob.default_index for knob in group.knobs])
            rows = group.rows if group.exact else group.sample(np.random.default_rng(0), 4096)
            best = rows[int(np.abs(rows - want).sum(axis=1).argmin())]
            for knob, index in zip(group.knobs, best, strict=True):
                picked[names.index(knob.name)] = index
        return Population(self.knobs, picked[None, :]).config(0)

    def nearest(self, costs: Costs) -> dict[str, Value]:
        """Return the legal configuration whose values cost least together, or nearly so where a group of
        knobs is large."""
        found: dict[str, Value] = {}
        least = {knob.name: knob.values[int(costs[knob.name].argmin())] for knob in self.knobs}
        if self.broken(least) is None:
            return least
        for group in self.groups:
            row = nearest_row(group, costs)
            found |= {knob.name: knob.values[index] for knob, index in zip(group.knobs, row, strict=True)}
        return self.check(found)

    def schedule(self, config: Config) -> Schedule:
        """Return a fresh, scheduled program of the workload; raises KnobError for an illegal configuration."""
        return self.apply(self.workload.program(), config)

    def apply(self, program: RegionProgram, config: Config) -> Schedule:
        """Schedule a fresh ``program`` of the workload, whose tensors are then arguments of the code.

        Raises KnobError for an illegal configuration, ScheduleError where the code would take its arguments, whose
        values are compared with those of the program, in another layout.
        """
        checked = self.check(config)
        schedule: Schedule = te.create_schedule([tensor.op for tensor in program.outputs])
        self.recipe.steps(schedule, checked)
        for tensor in program.args:
            if tensor.op in schedule and schedule[tensor].op.shape != tensor.op.shape:
                raise ScheduleError(
                    f"transform_layout of {tensor.name}, an argument of the program: in a search arguments keep their "
                    f"layout {tensor.op.shape}; transform a copy (cache_read, cache_write), or write the program so"
                )
        return schedule

    def loop_nests(self, population: Population) -> Iterator[tuple[NDArray[np.intp], LoopNest]]:
        """Yield rows of a population and their loop nests, each row once."""
        for chunk in population.chunks():
            rows, columns = np.arange(len(population))[chunk], population.take(chunk).columns()
            for some, nest in self._nests.parts(columns):
                yield rows[some], nest

    @cached_property
    def _nests(self) -> Nests:
        """The loop nests that follow from the steps."""
        from search_spaces.nest.derive import About, Nests

        program = self.workload.expressions
        about = About(self.family, self.workload.flops, self.target, program.constants, program.strides)
        return Nests(self.sketch or self._of_recipe(program), about)

    def _of_recipe(self, program: RegionProgram) -> Sketch:
        """Return the sketch that the recipe's function is."""
        from search_spaces.sketch import Sketch

        def steps(schedule: Schedule) -> None:
            schedule.replaying = True  # judged as a whole: the function is ours
            self.recipe.steps(schedule, _Knobs(schedule, self.names))
            schedule.replaying = False
            schedule.step = f"the steps of {self.family}"  # what is looked at from here on is no guard
            legality.check(schedule, schedule.step)
            schedule.step = ""

        return Sketch(steps, program.outputs, self.knobs, self.constraints)

    def to_json(self) -> dict[str, Any]:
        """Return a description for the database: knobs and constraint names."""
        return {
            "family": self.family,
            "knobs": [knob.to_json() for knob in self.knobs],
            "constraints": [constraint.name for constraint in self.constraints],
        }


__all__ = ["Recipe", "Space"]
