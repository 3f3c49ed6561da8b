"""Direct convolutions: a register tile of pixels × output channels, weights packed in visiting order.

Knobs: those of a contraction, with ``outer_rows`` (a second spatial axis in the register tile),
``reduce_order`` (window or channels outermost) and ``stage`` (where the padded input is stored).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.contraction import pack_knob
from search_spaces.space import Space
from search_spaces.tiled import stage_knob, tiled_space

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target
    from search_spaces.tile_shape import TileShape

FAMILY = "convolution"


def space(workload: Workload, target: Target, shape: TileShape) -> Space:
    """The schedules of a direct convolution around ``shape``."""
    return tiled_space(FAMILY, workload, target, shape, [*pack_knob(shape), *stage_knob(shape)])


__all__ = ["FAMILY", "space"]
