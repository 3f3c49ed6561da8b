"""What the reads of a register tile cost in one execution of its body: load instructions, and lost cycles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search_spaces.analysis import ReadForm, row_bytes
from search_spaces.nest import CACHE_LINE, PAGE_BYTES, Numbers
from search_spaces.tile_common import Tile, item_bytes
from search_spaces.tile_shape import TileShape

# Matrix products of sizes 128 to 320 on Cascade Lake, with the operand at multiples of a line against 16 bytes beside.
_SPLIT_CYCLES = 1.1
# NumPy places arrays at multiples of this.
_ALIGNED = 16
# Fitted to matrix products of sizes 197 to 1024 on the same machine, packed against not packed.
_PAGE_CYCLES = 2.5
_NEAR_PAGES = 64


def loads_of(
    shape: TileShape,
    read: ReadForm,
    tile: Tile,
    pack: NDArray[np.bool_],
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Load instructions of one read in one step, and whether some of them serve several positions.

    A load is a vector, a broadcast, or part of a gather of single elements. Equal elements of an unrolled
    body are loaded once.
    """
    one = np.ones(len(tile.vectors))
    repeats = {**tile.rows, shape.main: tile.unroll}
    count, shared = one, one < 0
    for terms in read.dims:
        every, span = one, one
        for axis, coefficient in terms:
            times = repeats.get(axis, one)
            every = every * times
            span = span + abs(coefficient) * (times - 1)
        count = count * np.minimum(every, span)
        shared = shared | (span < every)
    if shape.vector not in read.axes:
        return count, shared
    count = count * tile.vectors
    if read.contiguous == shape.vector:
        return count, shared
    packed = pack & (read == shape.weights)
    return np.where(packed, count, count * shape.lanes), shared


def stalls_of(
    shape: TileShape, read: ReadForm, tile: Tile, loads: Numbers, pack: NDArray[np.bool_]
) -> Numbers:
    """Cycles [n] that vector loads from rows of a matrix lose, where ``loads`` are their number.

    A vector that crosses a cache line is loaded in two parts: most of them where the vector does not divide the
    rows, else of an operand given at the call all or none, as it happens to lie: the mean over the places that an
    allocator takes counts. And each row of a tall matrix is on a page of its own, whose address the first level
    of translation no longer knows when the next tile comes by. Panels have neither.
    """
    none = np.zeros(len(loads))
    if shape.vector not in read.axes or read.contiguous != shape.vector:
        return none
    row = row_bytes(read.tensor, shape.structure.program.strides)
    row = row or read.tensor.shape[-1] * item_bytes(read.tensor)
    vector = shape.lanes * item_bytes(read.tensor)
    given = read == shape.weights and not shape.weights_constant
    crossing = vector if row % vector else max(vector - _ALIGNED, 0) if given else 0
    stalls = _SPLIT_CYCLES * min(1.0, crossing / CACHE_LINE) * loads
    down = any(shape.main == axis for terms in read.dims[:-1] for axis, _ in terms)
    if down and row * shape.extents[shape.main] > _NEAR_PAGES * PAGE_BYTES:
        stalls = stalls + _PAGE_CYCLES * min(1.0, row / PAGE_BYTES) * tile.unroll
    return np.where(pack & (read == shape.weights), 0.0, stalls)


__all__ = ["loads_of", "stalls_of"]
