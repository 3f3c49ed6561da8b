"""Register-tiled spaces: contraction, convolution, depthwise and pooling are declarations of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from search_spaces.constraint import Constraint
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import tile_constraints, tile_knobs
from search_spaces.tile.matrix_unit import for_units, unit_knob
from search_spaces.tile.schedule import schedule_tile
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.schedule.schedule import Schedule
    from autotune.target import Target


_LONG_EPILOGUE = 10


@dataclass(frozen=True)
class TileSteps:
    """Schedules of a register-tiled anchor, from which its loop nests follow."""

    shape: TileShape

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Apply the tile of ``config``."""
        schedule_tile(schedule, self.shape, config)


def tiled_space(
    family: str,
    workload: AnyWorkload,
    target: Target,
    shape: TileShape,
    knobs: Sequence[Knob] = (),
    constraints: Sequence[Constraint] = (),
) -> Space:
    """Return a register-tiled space with the common knobs and the family's own."""
    every = (*tile_knobs(shape, target), *knobs, *unit_knob(shape), *_epilogue_knob(shape))
    rules = [*tile_constraints(shape, target), *constraints]
    return Space(
        workload=workload,
        target=target,
        family=family,
        knobs=every,
        constraints=tuple(for_units(shape, every, rules)),
        recipe=TileSteps(shape),
    )


def _epilogue_knob(shape: TileShape) -> list[Knob]:
    """Return the knob of a long epilogue, which need not be unrolled over the rows of a tile: that makes
    ten times the code."""
    plan = shape.structure
    if plan.stored is plan.anchor or plan.epilogue_operations < _LONG_EPILOGUE:
        return []
    return [Knob.of("epilogue", ("looped", "unrolled"), "looped", "how the rows of a tile are finished")]


def stage_knob(shape: TileShape, places: Sequence[str] = ("root", "block")) -> list[Knob]:
    """Return the knob of padding and prologues: stored whole, before the kernel, once a block, or not at all."""
    if not shape.staged:
        return []
    return [Knob.of("stage", tuple(places), places[0], "where padding and prologues are stored")]


__all__ = ["TileSteps", "stage_knob", "tiled_space"]
