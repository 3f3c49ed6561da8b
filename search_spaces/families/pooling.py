"""Pooling windows: channels in vectors, a register tile of pixels, the window unrolled.

Knobs: those of a depthwise convolution. Tiles of padded images span both axes of the image, so that those at the border
have code of their own (:mod:`search_spaces.tile.border`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.families.depthwise import windowed
from search_spaces.space import Space

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.target import Target
    from search_spaces.tile.shape import TileShape

FAMILY = "pool"


def space(workload: AnyWorkload, target: Target, shape: TileShape) -> Space:
    """Return the schedules of a pooling window around ``shape``."""
    return windowed(FAMILY, workload, target, _both_axes(shape) if shape.staged else shape)


def _both_axes(shape: TileShape) -> TileShape:
    """Return the shape with the two innermost axes that a window slides along as those of a tile."""
    slid = {axis for read in shape.reads for terms in read.dims if len(terms) > 1 for axis, _ in terms}
    axes = [axis for axis in (*shape.batch, *shape.spatial) if axis in slid and shape.extents[axis] > 1][-2:]
    if not set(shape.spatial) <= set(axes):
        return shape
    return replace(shape, batch=tuple(axis for axis in shape.batch if axis not in axes), spatial=tuple(axes))


__all__ = ["FAMILY", "space"]
