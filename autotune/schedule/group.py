"""Several stages that are placed together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.te.expr import IterVar

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage


@dataclass(frozen=True)
class Group:
    """Stages in the order of the program; a step of a group is that step of each stage, and the trace has those."""

    stages: tuple[Stage, ...]

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute all stages inside a loop of a stage that reads them, readers first."""
        for stage in reversed(self.stages):
            stage.compute_at(parent, scope)

    def compute_root(self) -> None:
        """Compute all stages apart, before those that read them."""
        for stage in self.stages:
            stage.compute_root()


def group_between(schedule: Schedule, outputs: Any, inputs: Any, include_inputs: bool) -> Group:
    """Return the stages that ``outputs`` need and that need one of ``inputs``, these themselves where
    they are included."""
    last, first = _stages(schedule, outputs), _stages(schedule, inputs)
    found = [
        stage
        for stage in schedule.order()
        if any(stage is o or schedule.reads_from(o, stage) for o in last)
        and (include_inputs if stage in first else any(schedule.reads_from(stage, i) for i in first))
    ]
    if not found:
        names = (", ".join(stage.op.name for stage in stages) for stages in (first, last))
        raise ScheduleError("create_group: no stage lies between {} and {}".format(*names))
    return Group(tuple(found))


def _stages(schedule: Schedule, given: Any) -> list[Stage]:
    return [schedule[t] for t in (given if isinstance(given, list | tuple) else [given])]


__all__ = ["Group", "group_between"]
