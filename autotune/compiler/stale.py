"""Timings belong to code: the runs of a plan that were measured with other code than their schedules give now.

A run has the key of the code that was measured (:class:`autotune.codegen.code.DispatchCode`). What compiles a plan
generates its code anyway and compares; a run of other code, or of none that is known, is *stale*. Then the plan is made
again without it as an answer: what was measured is expected of the new code, as it is of other sizes and targets, and
nothing is claimed of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from autotune.compiler.assemble import BuiltWorkload
from autotune.compiler.build.build import Building, generated_key
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.tiers import Tier
from autotune.database.query import Hit
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.compiler.plan import Plan
    from autotune.compiler.planned import Planned

T = TypeVar("T")
NO_RUNS: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CurrentPlan:
    """A plan whose measured schedules are those of their code, and the code by workload key."""

    plan: Plan
    built: dict[str, BuiltWorkload]


def current_plan(
    planned: Callable[[frozenset[int]], Plan],
    target: Target,
    workers: BuildWorkers,
    meanwhile: Callable[[Plan], T],
) -> tuple[CurrentPlan, T]:
    """Return the plan that follows where no run is used that is stale, built, and what was done ``meanwhile`` with it.

    ``planned`` gives a plan by the numbers of the runs that are stale. What is in the shared work of the ``workers``,
    as what two plans have in common, is built once.
    """
    stale, known = NO_RUNS, workers.shared.built

    def name(one: Planned) -> tuple[str, str, str]:
        return target.key, *_name(one)

    def key_of(one: Planned) -> str:
        return known[name(one)].code.key

    while True:
        plan = planned(stale)
        missing = [one for one in plan.schedules.values() if name(one) not in known]
        building = Building(missing, target, workers)
        result = meanwhile(plan)
        known.update({name(one.planned): one for one in building.finish().values()})
        built = {key: replace(known[name(one)], planned=one) for key, one in plan.schedules.items()}
        found = stale_runs(plan, key_of) - stale
        if not found:
            return CurrentPlan(plan, built), result
        stale |= found


class CodeCheck:
    """Finds the runs that are stale by code that is generated and not compiled, and remembers what was generated."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._keys: dict[tuple[str, str], str] = {}
        self._stale = NO_RUNS

    def plan(self, planned: Callable[[frozenset[int]], Plan]) -> Plan:
        """Return the plan that follows where no run is used that is stale; ``planned`` gives one by those that are."""
        while True:
            plan = planned(self._stale)
            found = stale_runs(plan, self._key_of) - self._stale
            if not found:
                return plan
            self._stale |= found

    def _key_of(self, planned: Planned) -> str:
        name = _name(planned)
        if name not in self._keys:
            self._keys[name] = generated_key(planned, self._target)
        return self._keys[name]


def stale_runs(plan: Plan, key_of: Callable[[Planned], str]) -> frozenset[int]:
    """Return the numbers of the runs that a plan uses as measured though their schedules give other code."""
    return frozenset(
        one.found.best.id
        for one in plan.schedules.values()
        if one.tier is Tier.EXACT
        and isinstance(one.found, Hit)
        and one.found.best.id is not None
        and one.found.best.code != key_of(one)
    )


def _name(planned: Planned) -> tuple[str, str]:
    return planned.workload.key, planned.trace.key


__all__ = ["NO_RUNS", "CodeCheck", "CurrentPlan", "current_plan", "stale_runs"]
