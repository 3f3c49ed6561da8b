"""The report of a search space: sizes, and the candidates that each constraint removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.schedule.knob import Knob
from search_spaces.constraint import Constraint
from search_spaces.group import columns_of
from search_spaces.population import Indexes

_EXACT_LIMIT = 1 << 18
_SAMPLES = 1 << 16


@dataclass(frozen=True)
class ConstraintReport:
    """Shares of all combinations: those that break this rule, and those that only this one removes."""

    name: str
    help: str
    removed: float
    only: float


@dataclass(frozen=True)
class SpaceReport:
    """Sizes of a space; ``exact`` is False where they were estimated from a sample."""

    family: str
    knobs: tuple[tuple[str, int], ...]
    combinations: int
    legal: int
    exact: bool
    constraints: tuple[ConstraintReport, ...]

    def __str__(self) -> str:
        mark = "" if self.exact else "about "
        lines = [
            f"space {self.family}: {mark}{self.legal:,} of {self.combinations:,} combinations are legal",
            "  knobs: " + ", ".join(f"{name} ({count})" for name, count in self.knobs),
        ]
        for rule in self.constraints:
            lines.append(
                f"  {rule.name}: removes {rule.removed:.1%} ({rule.only:.1%} on its own)"
                + (f" – {rule.help}" if rule.help else "")
            )
        return "\n".join(lines)


def report(
    family: str,
    knobs: Sequence[Knob],
    constraints: Sequence[Constraint],
    legal: int,
    exact: bool,
) -> SpaceReport:
    """Evaluate every constraint on all combinations, or on a fixed sample of a large space."""
    combinations = 1
    for knob in knobs:
        combinations *= len(knob.values)
    rows = _combinations(knobs, combinations)
    columns = columns_of(knobs, rows)
    broken = np.asarray([~c.mask(columns) for c in constraints], dtype=np.bool_)
    times = broken.sum(axis=0) if len(constraints) else np.zeros(len(rows))
    rules = tuple(
        ConstraintReport(c.name, c.help, float(bad.mean()), float((bad & (times == 1)).mean()))
        for c, bad in zip(constraints, broken, strict=True)
    )
    sizes = tuple((knob.name, len(knob.values)) for knob in knobs)
    return SpaceReport(family, sizes, combinations, legal, exact, rules)


def _combinations(knobs: Sequence[Knob], total: int) -> Indexes:
    if total <= _EXACT_LIMIT:
        number = np.arange(total)
        digits = []
        for knob in knobs:
            digits.append((number % len(knob.values)).astype(np.int16))
            number = number // len(knob.values)
        return np.column_stack(digits)
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, len(knob.values), _SAMPLES, dtype=np.int16) for knob in knobs])


__all__ = ["ConstraintReport", "SpaceReport", "report"]
