"""Discovery of what a schedule function declares: knobs and constraints, on all of its paths.

The function runs with the defaults, then once for each other answer to each guard that was met: as many runs as
branches, not as combinations of branches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError, KnobError
from autotune.schedule.knob import Columns, Config, Knob, Value
from autotune.schedule.knob_expression import Expression, evaluate, knobs_in
from autotune.schedule.knob_value import KnobRecord, Requirement
from search_spaces.constraint import Constraint

Run = Callable[[Config], tuple[KnobRecord, AutotuneError | None]]
"""Runs the function and says what it asked for, and what it refused."""

_MAX_COMBINATIONS = 4096
"""Values of the knobs in one guard that are looked through for another answer."""


@dataclass
class Discovery:
    """The declarations of the runs so far."""

    found: dict[str, Knob] = field(default_factory=dict)
    required: dict[tuple[str, tuple[Expression, ...]], Requirement] = field(default_factory=dict)
    covered: set[tuple[Expression, Value]] = field(default_factory=set)

    @staticmethod
    def of(run: Run) -> Discovery:
        """Return everything that is declared on any path; raises what the function raises with the defaults."""
        known = Discovery()
        waiting: list[Config] = [{}]
        while waiting:
            config = waiting.pop(0)
            record, error = run(config)
            if error is not None and not config:
                raise error
            known._note(record)
            waiting += known._other_answers({**known.default, **config}, record.guards)
        return known

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The knobs, in the order in which they were met."""
        return tuple(self.found.values())

    @property
    def default(self) -> dict[str, Value]:
        """Their defaults."""
        return {knob.name: knob.default for knob in self.knobs}

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Return the requirements on knobs."""
        return tuple(made for r in self.required.values() if (made := constraint_of(r)).knobs)

    def _note(self, record: KnobRecord) -> None:
        for name in record.used:
            if self.found.setdefault(name, record.knobs[name]) != record.knobs[name]:
                raise KnobError(
                    f"knob {name!r} is declared with other values on another path; declare all of them everywhere, "
                    "and say with s.require which go together"
                )
        for requirement in record.requirements:
            place = (requirement.name, requirement.expressions)
            before = self.required.get(place, requirement)
            common = dict(before.guards.items() & requirement.guards.items())
            self.required[place] = Requirement(*place, requirement.rule, requirement.help, common)
        self.covered |= record.guards.items()

    def _other_answers(self, config: Config, guards: Mapping[Expression, Value]) -> Iterator[Config]:
        """Yield configurations that lead to the same guard and answer it as none did before."""
        asked = list(guards.items())
        for number, (question, _) in enumerate(asked):
            columns = self._variants(config, question)
            mask = self._legal(columns)
            for earlier, outcome in asked[:number]:
                mask = mask & (evaluate(earlier, columns) == outcome)
            answers = np.broadcast_to(evaluate(question, columns), mask.shape)
            for answer in np.unique(answers[mask]):
                if (question, answer.item()) not in self.covered:
                    self.covered.add((question, answer.item()))
                    row = int(np.flatnonzero(mask & (answers == answer))[0])
                    yield {name: column[row].item() for name, column in columns.items()}

    def _variants(self, config: Config, question: Expression) -> dict[str, NDArray[np.generic]]:
        """Return all values of the knobs in a question, the others as in ``config``."""
        names = list(dict.fromkeys(knobs_in(question)))
        values = [self.found[name].values for name in names]
        rows = list(itertools.islice(itertools.product(*values), _MAX_COMBINATIONS))
        columns = {name: np.full(len(rows), config[name]) for name in config if name not in names}
        return columns | {
            name: np.asarray(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
        }

    def _legal(self, columns: Columns) -> NDArray[np.bool_]:
        """Return the candidates that keep the constraints that are known."""
        mask = np.ones(len(next(iter(columns.values()))), dtype=np.bool_)
        for constraint in self.constraints:
            mask &= constraint.mask(columns)
        return mask


def constraint_of(requirement: Requirement) -> Constraint:
    """Return a requirement as a constraint on the knobs that it and its guards read."""
    guards, expressions = requirement.guards, requirement.expressions
    names = dict.fromkeys(name for e in (*expressions, *guards) for name in knobs_in(e))

    def holds(columns: Columns) -> object:
        applies: NDArray[np.bool_] = np.ones(len(next(iter(columns.values()))), dtype=np.bool_)
        for question, outcome in guards.items():
            applies &= evaluate(question, columns) == outcome
        try:
            return ~applies | np.asarray(requirement.rule(*(evaluate(e, columns) for e in expressions)))
        except ValueError as error:
            raise KnobError(
                f"the rule of {requirement.name!r} does not take arrays ({error}); write & for and, | for or"
            ) from error

    return Constraint(requirement.name, tuple(names), holds, requirement.help)


__all__ = ["Discovery", "constraint_of"]
