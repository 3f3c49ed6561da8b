"""Prefetch of what is larger than the second cache: an image, for the tiles whose windows read it, and weights that are
read once."""

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
_OF_PANELS = (1024, 4096)
_FEW = 2  # rows of a tile that no matrix unit takes: weights are read once then, in one stream
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


def weights_knob(shape: TileShape, target: Target) -> list[Knob]:
    """Return the prefetch distance of panels of weights for dot products, which one tile of rows reads once.

    One row of 768 by 768 x 6144 bytes, two threads of a Xeon with AMX, minima of eight interleaved rounds: 70 us
    without, 54 and 56 with prefetches 1024 and 4096 bytes ahead. Of float32 none was faster.
    """
    rows = math.prod(shape.extents[axis] for axis in (*shape.batch, *shape.spatial))
    if shape.weights is None or not shape.weights_constant or shape.dot is None or rows > _FEW:
        return []
    far = math.prod(shape.weights.tensor.shape) * item_bytes(shape.weights.tensor) >= target.l2_bytes
    return [prefetch_knob(_OF_PANELS, always=True)] if far else []


def fetch_weights(
    accumulator: Stage, panels: Stage | None, shape: TileShape, steps: IterVar | None, config: Choices
) -> None:
    """Prefetch what later iterations over the ``steps`` of the reduction read of the ``panels``."""
    if panels is None or steps is None or shape.weights is None or "ahead" not in config:
        return
    nbytes = config["vectors"] * (shape.lanes * item_bytes(shape.weights.tensor) * shape.group)
    distance = iterations(config["ahead"], nbytes * config["unroll"])
    accumulator.prefetch(panels.tensor, steps, distance, when=config["ahead"] != 0)


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


__all__ = ["fetch_image", "fetch_weights", "image_knob", "weights_knob"]
