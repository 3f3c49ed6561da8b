"""Work that compilations and predictions of models alike have in common, done once.

Models that differ in the precisions of a few products have most of their workloads in common: the options of these are
estimated once, their schedules applied once, and their machine code is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from autotune.compiler.assemble import BuiltWorkload
    from autotune.compiler.planned import Planned
    from autotune.database.goal import Goal
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition
    from autotune.passes.preference import Preference
    from autotune.target import Target

Key = tuple[Hashable, ...]
Ranking = TypeVar("Ranking")
Made = TypeVar("Made")
_MODELS = 2
"""So many models are remembered, which hold their weights: one in float32, and the one that is looked at."""


class LastModels(Generic[Made]):
    """A memory of the last models that were asked for: the made value of each, by its key."""

    def __init__(self) -> None:
        self._made: dict[Key, Made] = {}

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """Return what ``make`` returns, or has returned when this key was one of the last."""
        made = self._made.pop(key) if key in self._made else make()
        self._made[key] = made
        while len(self._made) > _MODELS:
            del self._made[next(iter(self._made))]
        return made


class SharedWork:
    """Rankings, schedules and machine code of workloads, and the last models in parts.

    It is right while the database says the same: a new one is made after something was measured.
    """

    def __init__(self) -> None:
        self._rankings: dict[Key, Any] = {}
        self._schedules: dict[Key, Planned] = {}
        self._parts: LastModels[tuple[Any, Partition]] = LastModels()
        self.built: dict[Key, BuiltWorkload] = {}
        """Code by the keys of target, workload and trace."""

    def rankings(
        self,
        workloads: Sequence[Workload],
        target: Target,
        preference: Preference,
        rank: Callable[[Sequence[Workload]], Mapping[str, Ranking]],
    ) -> dict[str, Ranking]:
        """Return the rankings of workloads with several options by their keys; ``rank`` makes those that are new."""
        new = self.new(workloads, target, preference)
        made = rank(new) if new else {}
        self._rankings |= {_asked(each, target, preference): made.get(each.key) for each in new}
        known = {each.key: self._rankings[_asked(each, target, preference)] for each in workloads}
        return {key: ranking for key, ranking in known.items() if ranking is not None}

    def new(self, workloads: Sequence[Workload], target: Target, preference: Preference) -> list[Workload]:
        """Return the workloads without a ranking."""
        return [each for each in workloads if _asked(each, target, preference) not in self._rankings]

    def schedule(
        self,
        workload: Workload,
        target: Target,
        goal: Goal,
        stale: Collection[int],
        make: Callable[[], Planned],
    ) -> Planned:
        """Return the schedule of a workload, which ``make`` makes the first time."""
        key = (workload.key, target.key, goal, frozenset(stale))
        if key not in self._schedules:
            self._schedules[key] = make()
        return self._schedules[key]

    def parts(self, model: Any, options: Key, divide: Callable[[], Partition]) -> Partition:
        """Return a model in parts: those made before where it is the same object, and divided by the same
        ``options``."""
        # With the model, so that no other one has its identity.
        return self._parts.get((id(model), *options), lambda: (model, divide()))[1]


def _asked(workload: Workload, target: Target, preference: Preference) -> Key:
    """Return what the ranking of a workload follows from."""
    tolerance = preference.tolerance_of(workload.key)
    return workload.key, target.key, tolerance, preference.algorithm, preference.goal, preference.finite


__all__ = ["LastModels", "SharedWork"]
