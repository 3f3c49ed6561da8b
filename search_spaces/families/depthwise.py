"""Depthwise convolutions: channels in vectors, a register tile of pixels, the window unrolled.

Knobs: the common ones of a register tile, ``stage`` (where the padded input is stored, or ``inline``, nowhere:
:mod:`search_spaces.tile.border`), ``unroll_window``, and ``ahead`` (:mod:`search_spaces.tile.prefetch`) for images that
are read where they lie, beyond the second cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from autotune.schedule.knob import Columns, Knob
from search_spaces.analysis import is_view
from search_spaces.constraint import Constraint
from search_spaces.families.contraction import pack_knob
from search_spaces.space import Space
from search_spaces.tile.border import INLINE, STORED, inline_rule, inside, whole_rows
from search_spaces.tile.knobs import column
from search_spaces.tile.prefetch import image_knob
from search_spaces.tile.tiled import stage_knob, tiled_space

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.target import Target
    from search_spaces.tile.shape import TileShape

FAMILY = "depthwise"
_MAX_WINDOW = 49
_MAX_WINDOW_BODY = 512
_SMALL_WINDOW = 9


def space(workload: AnyWorkload, target: Target, shape: TileShape) -> Space:
    """Return the schedules of a depthwise convolution around ``shape``."""
    return windowed(FAMILY, workload, target, shape)


def windowed(family: str, workload: AnyWorkload, target: Target, shape: TileShape) -> Space:
    """Return a register-tiled space whose window loops may be unrolled."""
    window = math.prod(shape.extents[axis] for axis in shape.window)
    short = 1 < window <= _MAX_WINDOW
    knobs = [
        *(pack_knob(shape) if shape.taps is not None else ()),
        *stage_knob(shape, _places(shape, target, window)),
        *image_knob(shape, target),
    ]
    constraints = [inline_rule(shape, target)] if short and shape.staged else []
    if short:
        knobs.append(
            Knob.of("unroll_window", (False, True), window <= _SMALL_WINDOW, "unroll the outer window loops")
        )
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
    return tiled_space(family, workload, target, shape, knobs, constraints)


def _places(shape: TileShape, target: Target, window: int) -> tuple[str, ...]:
    """Return the places where padding may be stored.

    Pools with padding stored in blocks took 1.1 to 2.5 times as long as the others, on Zen 4 with one and two workers.
    But what is computed before the padding would be computed again for each window that reads it.
    """
    if not 1 < window <= _MAX_WINDOW or shape.taps is not None:  # instructions read what is stored
        return (STORED, "block")
    copied = all(is_view(op) or inside(op) for op in shape.structure.producers)
    only = copied and len(shape.reads) == 1 and window <= _SMALL_WINDOW and whole_rows(shape, target)
    return (INLINE,) if only else ("block", INLINE)


__all__ = ["FAMILY", "space", "windowed"]
