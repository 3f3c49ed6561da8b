"""The pace of a tuning job: what its actions take, by what those of their kinds have taken."""

from __future__ import annotations

from autotune.tuning.jobs.actions import Action, ActionKind
from autotune.tuning.jobs.worth import LEARNT, PROCESS_S, TRIAL_S, VERSION_S


class ActionPace:
    """The time that actions took over that which was expected, by their kinds and models."""

    def __init__(self) -> None:
        self._known: dict[tuple[ActionKind, str], float] = {}

    def took(self, action: Action, seconds: float) -> None:
        """Learn what an action took."""
        before = self._of(action.work, action.model)
        now = before * seconds / max(1e-9, action.seconds)
        self._known[action.work, action.model] = min(20.0, (1 - LEARNT) * before + LEARNT * now)

    def seconds(
        self, work: ActionKind, trials: int = 0, versions: int = 0, processes: int = 0, model: str = ""
    ) -> float:
        """Return the time that an action is expected to take."""
        nominal = TRIAL_S * trials + VERSION_S * versions + PROCESS_S * processes
        return max(1e-6, nominal * self._of(work, model))

    def _of(self, work: ActionKind, model: str) -> float:
        """Return the pace of a kind of action in a model, or its mean over the models if it is not known there."""
        known = {where: pace for (kind, where), pace in self._known.items() if kind is work}
        return known.get(model, sum(known.values()) / len(known)) if known else 1.0


__all__ = ["ActionPace"]
