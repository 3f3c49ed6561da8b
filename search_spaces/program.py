"""The space of a program of a user's own: what their schedule function declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune import te
from autotune.errors import InternalError
from autotune.schedule.knob import Columns, Config
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.program import ProgramWorkload
    from autotune.graph.region import RegionProgram
    from autotune.schedule.schedule import Schedule
    from autotune.target import Target
    from search_spaces.nest import LoopNest
    from search_spaces.sketch import Sketch

FAMILY = "program"


@dataclass(frozen=True)
class SketchRecipe:
    """Schedules of a sketch."""

    sketch: Sketch

    def schedule(self, program: RegionProgram, config: Config) -> Schedule:
        """The steps of ``config`` on a fresh schedule of the program."""
        schedule: Schedule = te.create_schedule(list(program.outputs))
        return self.sketch.bind(config).apply(schedule)

    def loop_nest(self, columns: Columns) -> LoopNest:
        """Not known: see :attr:`~search_spaces.space.Space.described`."""
        raise InternalError("the loops of a user's sketch are not derived")


def space(workload: ProgramWorkload, target: Target, sketch: Sketch) -> Space:
    """The space of a sketch; raises KnobError where its knobs or constraints contradict each other."""
    return Space(
        workload, target, FAMILY, sketch.knobs, sketch.constraints, SketchRecipe(sketch), sketch=sketch
    )


__all__ = ["FAMILY", "SketchRecipe", "space"]
