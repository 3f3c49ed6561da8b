"""Prefetch of an image larger than the second cache, for the tiles whose windows read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from autotune.te.tensor import PlaceholderOp
from search_spaces.analysis import ReadForm
from search_spaces.prefetch import iterations, prefetch_knob
from search_spaces.sketch import Choices
from search_spaces.tile.common import item_bytes
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar


_DISTANCES = (512, 1024, 2048)
_MOST_TAPS = 64  # of a larger window an iteration would fetch more lines than a core can wait for


def image_knob(shape: TileShape, target: Target) -> list[Knob]:
    """Return the prefetch distance, where the image does not stay in the second cache and its windows are small."""
    read = image_read(shape)
    if math.prod(shape.extents[axis] for axis in (*shape.window, shape.main)) > _MOST_TAPS:
        return []
    far = read is not None and math.prod(read.tensor.shape) * item_bytes(read.tensor) >= target.l2_bytes
    return [prefetch_knob(_DISTANCES)] if far else []


def fetch_image(
    stored: Stage, shape: TileShape, tiles: Sequence[IterVar], along: IterVar, config: Choices
) -> None:
    """Prefetch the windows of later tiles, in the innermost loop over tiles that repeats.

    Of the ``tiles``, those ``along`` rows are as wide as the tile has rows.
    """
    read = image_read(shape)
    if "ahead" not in config or read is None:
        return
    image = stored.schedule[read.tensor.op.name].tensor
    width = config["vectors"] * shape.lanes * item_bytes(read.tensor)
    chosen = config["ahead"] != 0
    for loop in reversed(tiles):
        rows = config["rows"] if loop is along else 1
        distance = iterations(config["ahead"], rows * _stride(shape, read) * width)
        stored.prefetch(image, loop, distance, when=chosen & (loop.extent > 1))
        chosen = chosen & (loop.extent == 1)


def image_read(shape: TileShape) -> ReadForm | None:
    """Return the read of an image in memory whose lines are the tile's vectors."""
    for read in shape.reads:
        moved = set(shape.spatial) & read.axes
        if moved and read.contiguous == shape.vector and isinstance(read.tensor.op, PlaceholderOp):
            return read
    return None


def _stride(shape: TileShape, read: ReadForm) -> int:
    """Return pixels between the windows of neighbouring results in a row."""
    steps = [abs(c) for terms in read.dims for axis, c in terms if axis == shape.spatial[-1]]
    return max(steps, default=1)


__all__ = ["fetch_image", "image_knob"]
