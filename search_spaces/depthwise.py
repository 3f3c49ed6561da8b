"""Depthwise convolutions: channels in vectors, a register tile of pixels, the window unrolled.

Knobs: the common ones of a register tile, ``stage`` (where the padded input is stored, or ``inline``, nowhere:
:mod:`search_spaces.tile_border`), ``unroll_window``, and ``ahead`` (:mod:`search_spaces.tile_ahead`) for images that
are read where they lie, beyond the second cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from autotune.schedule.knob import Columns, Knob
from search_spaces.constraint import Constraint
from search_spaces.space import Space
from search_spaces.tile_ahead import image_knob
from search_spaces.tile_border import INLINE, STORED, inline_rule
from search_spaces.tile_knobs import column
from search_spaces.tiled import TileSteps, stage_knob, tiled_space

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target
    from search_spaces.tile_shape import TileShape

FAMILY = "depthwise"
_MAX_WINDOW_BODY = 512


def space(workload: Workload, target: Target, shape: TileShape) -> Space:
    """The schedules of a depthwise convolution around ``shape``."""
    return windowed(FAMILY, workload, target, shape)


def windowed(family: str, workload: Workload, target: Target, shape: TileShape) -> Space:
    """A register-tiled space whose window loops may be unrolled."""
    window = math.prod(shape.extents[axis] for axis in shape.window)
    short = 1 < window <= 49
    knobs = [
        *stage_knob(shape, ("block", INLINE) if short else (STORED, "block")),
        *image_knob(shape, target),
    ]
    constraints = [inline_rule(shape, target)] if short and shape.staged else []
    if short:
        knobs.append(Knob.of("unroll_window", (False, True), window <= 9, "unroll the outer window loops"))
        reads = ["rows", "vectors", "unroll", "unroll_window"]
        if len(shape.spatial) == 2:
            reads.append("outer_rows")

        def small(c: Columns) -> object:
            tile = column(c, "rows", 1) * column(c, "outer_rows", 1) * column(c, "vectors", 1)
            body = tile * column(c, "unroll", 1) * window
            return ~c["unroll_window"].astype(bool) | (body <= _MAX_WINDOW_BODY)

        constraints.append(
            Constraint("window_body", tuple(reads), small, "the unrolled window would be too long")
        )
    return tiled_space(family, workload, target, shape, knobs, constraints, TileSteps(shape))


__all__ = ["FAMILY", "space", "windowed"]
