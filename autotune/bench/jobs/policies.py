"""Policies to compare with that of jobs: each takes the same actions, chosen by another rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.tuning.jobs.actions import Action, ActionKind
from autotune.tuning.jobs.policy import Policy

_OF_OPTIONS = (ActionKind.DEFAULTS, ActionKind.OPTIONS)


@dataclass
class InTurn(Policy):
    """Takes actions in turn: what was taken the least often comes next."""

    _turns: Counter[tuple[str, str]] = field(default_factory=Counter)

    def pick(self, actions: Sequence[Action]) -> Action:
        """Return the action of the kind, and of the subject, that had the fewest turns."""
        found = min(actions, key=lambda a: (self._turns[a.work, ""], self._turns[a.work, a.what]))
        self._turns.update([(found.work, ""), (found.work, found.what)])
        return found


@dataclass
class ByChance(Policy):
    """Takes any action, each as likely as the others."""

    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.beliefs.seed)

    def pick(self, actions: Sequence[Action]) -> Action:
        """Return one of them."""
        return actions[int(self._rng.integers(len(actions)))]


@dataclass
class OptionsOnly(Policy):
    """Searches nothing: compares options with their default schedules."""

    def pick(self, actions: Sequence[Action]) -> Action | None:
        """Return the best of those that concern options."""
        mine = [action for action in actions if action.work in _OF_OPTIONS]
        return super().pick(mine) if mine else None


@dataclass
class LargestGain(Policy):
    """Takes what promises most, whatever time it takes."""

    def pick(self, actions: Sequence[Action]) -> Action:
        """Return the action with the largest expected gain."""
        return max(actions, key=lambda action: action.gain)


POLICIES: Mapping[str, type[Policy]] = {
    "policy": Policy,
    "in-turn": InTurn,
    "by-chance": ByChance,
    "options-only": OptionsOnly,
    "largest-gain": LargestGain,
}
"""Policies by the name used on the command line; the first is that of jobs."""

__all__ = ["POLICIES"]
