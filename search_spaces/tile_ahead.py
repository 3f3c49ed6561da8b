"""An image larger than the second cache, fetched ahead of the tiles whose windows read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autotune.schedule.knob import Columns, Config, Knob
from autotune.te.tensor import PlaceholderOp
from search_spaces.ahead import ahead_knob, hidden, iterations
from search_spaces.analysis import ReadForm
from search_spaces.nest import CACHE_LINE, Numbers
from search_spaces.tile_common import Tile, item_bytes
from search_spaces.tile_shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar


_DISTANCES = (512, 1024, 2048)
_MOST_TAPS = 64  # of a larger window an iteration would fetch more lines than a core can wait for
_BUFFERS = 10.0
"""Lines that a core waits for at a time. Cascade Lake, an average pool of 3x3 on 143 MiB: tiles of two pixels of four
lines take 0.85 of the time without fetching ahead, tiles of three 0.91, of five 0.92."""


def image_knob(shape: TileShape, target: Target) -> list[Knob]:
    """How far ahead the image is fetched, where it does not stay in the second cache and its windows are small."""
    read = image_read(shape)
    if math.prod(shape.extents[axis] for axis in (*shape.window, shape.main)) > _MOST_TAPS:
        return []
    far = read is not None and math.prod(read.tensor.shape) * item_bytes(read.tensor) >= target.l2_bytes
    return [ahead_knob(_DISTANCES)] if far else []


def fetch_image(stored: Stage, shape: TileShape, tiles: Sequence[IterVar], config: Config) -> None:
    """Fetch the windows of a tile some tiles ahead."""
    read = image_read(shape)
    loop = next((tile for tile in reversed(tiles) if tile.extent > 1), None)
    if not config.get("ahead", 0) or read is None or loop is None:
        return
    along = tiles[-2] if config.get("tile_order", "vector") == "rows" else tiles[-1]
    rows = int(config["rows"]) if loop is along else 1
    width = int(config["vectors"]) * shape.lanes * item_bytes(read.tensor)
    image = stored.schedule[read.tensor.op.name].tensor
    stored.prefetch(image, loop, iterations(int(config["ahead"]), rows * _stride(shape, read) * width))


def image_ahead(shape: TileShape, read: ReadForm, columns: Columns, tile: Tile) -> Numbers | None:
    """The share of the way to the image [n] that fetching hides; None for other reads."""
    share = hidden(columns) if read == image_read(shape) else None
    if share is None:
        return None
    new = _lines(shape, read, tile) * tile.rows[shape.spatial[-1]] * _stride(shape, read)
    return share * np.minimum(_BUFFERS / new, 1.0)


def image_fetches(shape: TileShape, columns: Columns, tile: Tile) -> Numbers:
    """Instructions [n] that fetch the windows of a tile, for each of its bodies."""
    read, share = image_read(shape), hidden(columns)
    if read is None or share is None:
        return np.zeros(len(tile.vectors))
    lines = _lines(shape, read, tile)
    reduced = (*shape.window, shape.main)
    for terms in read.dims[:-1]:
        span = np.ones(len(tile.vectors))
        for axis, coefficient in terms:
            size = tile.rows.get(axis, float(shape.extents[axis]) if axis in reduced else 1.0)
            span = span + abs(coefficient) * (size - 1)
        lines = lines * span
    taps = math.prod(shape.extents[axis] for axis in reduced)
    bodies = np.maximum(taps / (tile.unroll * tile.window_unroll), 1.0)
    return np.where(share > 0, lines / bodies, 0.0)


def _lines(shape: TileShape, read: ReadForm, tile: Tile) -> Numbers:
    """Cache lines [n] that a tile reads of a pixel."""
    return np.ceil(tile.vectors * shape.lanes * item_bytes(read.tensor) / CACHE_LINE)


def image_read(shape: TileShape) -> ReadForm | None:
    """The read of an image in memory whose lines are the tile's vectors."""
    for read in shape.reads:
        moved = set(shape.spatial) & read.axes
        if moved and read.contiguous == shape.vector and isinstance(read.tensor.op, PlaceholderOp):
            return read
    return None


def _stride(shape: TileShape, read: ReadForm) -> int:
    """Pixels between the windows of neighbouring results in a row."""
    steps = [abs(c) for terms in read.dims for axis, c in terms if axis == shape.spatial[-1]]
    return max(steps, default=1)


__all__ = ["fetch_image", "image_ahead", "image_fetches", "image_knob"]
