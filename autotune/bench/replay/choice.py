"""Workloads to record: of a model, or of operators of the suite."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from autotune.bench.suites import operators
from autotune.errors import UsageError
from autotune.suggest import listing
from autotune.tuning.jobs.subject import Subject
from cost_models import analytic

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model

_OPERATORS = "op:"
_CHOICE = 12
"""A space of fewer candidates says little about a ranking."""
_LONGEST_S = 0.03
"""A workload that takes longer takes the time of several others."""


def models(text: str) -> list[Model]:
    """The model of that name or, for ``op:C2D`` or ``op:GMM:1,512,512,512``, a graph for each operator of the suite.

    Raises UsageError for an operator that is none.
    """
    if not text.startswith(_OPERATORS):
        return [text]
    cases = operators.named(text.removeprefix(_OPERATORS))
    return [case.build().graph.replace(name=f"{case.family} {case.name}") for case in cases]


def named(subjects: Sequence[Subject], names: Sequence[str]) -> list[Subject]:
    """Those whose dispatches have one of the names, shell patterns; without any, all.

    Raises UsageError for a name that none has.
    """
    known = [subject.names[0] for subject in subjects]
    for name in names:
        if not any(fnmatchcase(one, name) for one in known):
            raise UsageError(f"no dispatch is called {name!r}; there are: {listing(name, known)}")
    return [s for s in subjects if not names or any(fnmatchcase(s.names[0], name) for name in names)]


def diverse(subjects: Sequence[Subject], most: int, seed: int) -> list[Subject]:
    """Up to ``most`` of them by chance, the families of their spaces in turn.

    Those with next to no choice, and those that take tens of milliseconds, are left out.
    """
    families: dict[str, list[Subject]] = {}
    for subject in subjects:
        if subject.space.size() >= _CHOICE and analytic.default_seconds(subject.space) <= _LONGEST_S:
            families.setdefault(subject.space.family, []).append(subject)
    rng = np.random.default_rng(seed)
    shuffled = [[members[i] for i in rng.permutation(len(members))] for members in families.values()]
    turns = [
        member
        for turn in range(max(map(len, shuffled), default=0))
        for members in shuffled
        for member in members[turn : turn + 1]
    ]
    return turns[:most]


__all__ = ["diverse", "models", "named"]
