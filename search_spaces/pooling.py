"""Pooling windows: channels in vectors, a register tile of pixels, the window unrolled.

Knobs: those of a depthwise convolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.depthwise import windowed
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target
    from search_spaces.tile_shape import TileShape

FAMILY = "pool"


def space(workload: Workload, target: Target, shape: TileShape) -> Space:
    """The schedules of a pooling window around ``shape``."""
    return windowed(FAMILY, workload, target, shape)


__all__ = ["FAMILY", "space"]
