"""The space of a program of a user's own: what their schedule function declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.program import ProgramWorkload
    from autotune.schedule.schedule import Schedule
    from autotune.target import Target
    from search_spaces.sketch import Choices, Sketch

FAMILY = "program"


@dataclass(frozen=True)
class SketchRecipe:
    """Schedules of a sketch; its own tensors are not those of the workload, so its steps are replayed by name."""

    sketch: Sketch

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Apply the steps of ``config``."""
        self.sketch.bind(config).apply(schedule)


def space(workload: ProgramWorkload, target: Target, sketch: Sketch) -> Space:
    """Return the space of a sketch; raises KnobError where its knobs or constraints contradict each other."""
    return Space(
        workload, target, FAMILY, sketch.knobs, sketch.constraints, SketchRecipe(sketch), sketch=sketch
    )


__all__ = ["FAMILY", "SketchRecipe", "space"]
