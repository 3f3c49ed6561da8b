"""The loop nests of matrix products in register tiles, whole populations at once.

It mirrors :mod:`search_spaces.tile_schedule`: a loop slot that a candidate does not have gets extent 1, and a
loop whose place depends on a knob has a slot in each place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Columns
from search_spaces.analysis import ReadForm, operations, read_forms, row_bytes
from search_spaces.nest import Access, Body, Loop, LoopNest, Numbers
from search_spaces.tile_blocked import reduction_blocks
from search_spaces.tile_common import Tile, equals, flag, item_bytes, whole
from search_spaces.tile_knobs import WHOLE, ceil_div, column, row_tiles, vector_tiles
from search_spaces.tile_left import left_fetches, left_pass
from search_spaces.tile_library import library_stalls
from search_spaces.tile_loads import loads_of, stalls_of
from search_spaces.tile_shape import TileShape
from search_spaces.tile_staging import outside_operations, passes, scratch_of


def tile_nest(shape: TileShape, family: str, flops: int, columns: Columns) -> LoopNest:
    """The loop nests of the candidates in ``columns``."""
    tile = _tile(shape, columns)
    loops = _loops(shape, columns, tile)
    pack = flag(columns, "pack")
    block = equals(columns, "stage", "block")
    parallel = columns["parallel"].astype(np.bool_)
    body, *rests = _bodies(shape, columns, tile, loops)
    return LoopNest(
        family=family,
        lanes=shape.lanes,
        flops=float(flops),
        extents=shape.extents,
        loops=tuple(loops),
        accesses=tuple(_accesses(shape, columns, tile, pack, block)),
        body=body,
        rests=tuple(rests),
        passes=(*passes(shape, pack, block), *left_pass(shape, columns)),
        tail_operations=outside_operations(shape, columns, tile, block),
        serial=~parallel,
        scratch=scratch_of(shape, columns, block),
        tags=_tags(shape, columns, tile, pack, block),
    )


def _tile(shape: TileShape, columns: Columns) -> Tile:
    knobs = zip(reversed(shape.spatial), ("rows", "outer_rows"), strict=False)
    return Tile(
        rows={axis: column(columns, knob, 1) for axis, knob in knobs},
        vectors=column(columns, "vectors", 1),
        unroll=column(columns, "unroll", 1),
    )


def _loops(shape: TileShape, columns: Columns, tile: Tile) -> list[Loop]:
    one = np.ones(len(tile.vectors))
    extents, vector, main = shape.extents, shape.vector, shape.main
    rows_total, vectors_total = row_tiles(shape, columns), vector_tiles(shape, columns)
    row_block = whole(column(columns, "row_block", WHOLE), rows_total)
    vector_block = whole(column(columns, "vector_block", WHOLE), vectors_total)
    vector_blocks = vectors_total / vector_block
    blocks_by_vector = equals(columns, "block_order", "vector")
    tiles_by_vector = ~equals(columns, "tile_order", "rows")
    loops = [Loop(axis, one * extents[axis], "parallel") for axis in shape.batch]
    loops.append(Loop(vector, np.where(blocks_by_vector, vector_blocks, 1.0), "parallel"))
    if shape.spatial:
        loops.append(Loop(shape.spatial[0], rows_total / row_block, "parallel"))
    loops.append(Loop(vector, np.where(blocks_by_vector, 1.0, vector_blocks), "parallel"))
    loops.append(Loop(main, one * reduction_blocks(shape, columns)))
    loops.append(Loop(vector, np.where(tiles_by_vector, vector_block, 1.0)))
    if shape.spatial:
        loops.append(Loop(shape.spatial[0], row_block))
    if len(shape.spatial) == 2:
        last = shape.spatial[1]
        loops.append(Loop(last, ceil_div(extents[last], tile.rows[last])))
    loops.append(Loop(vector, np.where(tiles_by_vector, 1.0, vector_block)))
    # Features are of levels by their number, and stored runs have one more here: a window was a level once.
    loops.append(Loop(main, one))
    loops.append(Loop(main, _steps(shape, columns, tile)))
    loops.append(Loop(main, tile.unroll, "unrolled"))
    loops += [Loop(axis, tile.rows[axis], "unrolled") for axis in shape.spatial]
    loops.append(Loop(vector, tile.vectors * shape.lanes, "vectorized"))
    if shape.group > 1:  # one instruction
        loops.append(Loop(main, one * shape.group, "vectorized"))
    return loops


def _steps(shape: TileShape, columns: Columns, tile: Tile) -> Numbers:
    """Iterations of the innermost reduction loop."""
    block = shape.extents[shape.main] / reduction_blocks(shape, columns)
    return ceil_div(block, tile.unroll * shape.group)


def _bodies(shape: TileShape, columns: Columns, tile: Tile, loops: list[Loop]) -> list[Body]:
    """The body of whole tiles, and those of the last tiles where they are narrower or lower: `steps` 0 if not."""
    steps = np.ones(len(tile.vectors))
    for loop in loops:
        if loop.kind in ("parallel", "serial"):
            steps = steps * loop.extent
    # The steps of the reduction that an unrolled body leaves over have a smaller one.
    block = shape.extents[shape.main] / reduction_blocks(shape, columns)
    steps = steps * block / (tile.unroll * shape.group) / _steps(shape, columns, tile)
    peeled = equals(columns, "tail", "peel")
    tiles = vector_tiles(shape, columns)
    last = ceil_div(shape.extents[shape.vector], shape.lanes) - (tiles - 1) * tile.vectors
    # The last vector tile is peeled wherever weights are packed.
    narrower = ((peeled | flag(columns, "pack")) & (last < tile.vectors)) / tiles
    bodies = [_body(shape, columns, replace(tile, vectors=last), steps * narrower)]
    steps = steps * (1 - narrower)
    if shape.spatial:
        axis = shape.spatial[-1]
        tiles = ceil_div(shape.extents[axis], tile.rows[axis])
        last = shape.extents[axis] - (tiles - 1) * tile.rows[axis]
        lower = (peeled & (last < tile.rows[axis])) / tiles
        bodies.append(_body(shape, columns, replace(tile, rows={**tile.rows, axis: last}), steps * lower))
        steps = steps * (1 - lower)
    return [_body(shape, columns, tile, steps), *bodies]


def _body(shape: TileShape, columns: Columns, tile: Tile, steps: Numbers) -> Body:
    source = max(1, operations(shape.structure.anchor))
    arithmetic = tile.accumulators * tile.unroll * source
    pack = flag(columns, "pack")
    loads, narrow, shared, stalls = (np.zeros(len(tile.vectors)) for _ in range(4))
    for read in shape.reads:
        mine, saved = loads_of(shape, read, tile, pack)
        loads = loads + mine
        narrow = narrow + (0.0 if shape.vector in read.axes else mine)
        shared = shared + np.where(saved, mine, 0.0)
        stalls = stalls + stalls_of(shape, read, tile, mine, pack)
    if shape.spatial:
        fetches = left_fetches(shape, columns, tile.rows[shape.spatial[-1]])
        loads, narrow = loads + fetches, narrow + fetches
    return Body(
        steps=steps,
        arithmetic=arithmetic,
        loads=loads,
        stores=np.zeros(len(steps)),
        chains=tile.accumulators,
        registers=tile.accumulators + tile.vectors + 1,
        instructions=arithmetic + loads,
        stalls=stalls + library_stalls(shape, columns, arithmetic),
        narrow=narrow,
        shared=shared,
    )


def _accesses(
    shape: TileShape, columns: Columns, tile: Tile, pack: NDArray[np.bool_], block: NDArray[np.bool_]
) -> list[Access]:
    anchor, plan = shape.structure.anchor, shape.structure
    reduce = frozenset({shape.main})
    strides = plan.program.strides
    found = [_access(read, {}, strides, panel=_in_order(shape, read, pack, block)) for read in shape.reads]
    names = {axis.name: axis.name for axis in anchor.axis}
    output = tuple(((axis.name, 1),) for axis in anchor.axis)
    stored = plan.stored.output(0)
    found.append(
        Access(
            stored.name,
            item_bytes(stored),
            output,
            anchor.shape,
            write=True,
            outside=reduce,
            row_bytes=row_bytes(stored, strides),
        )
    )
    inner = {id(op) for op in (*plan.epilogue, *plan.side, anchor)}
    for op in plan.epilogue:
        rename = dict(zip((axis.name for axis in op.axis), names, strict=True))
        for read in read_forms(op):
            if id(read.tensor.op) not in inner and set(read.axes) <= rename.keys():
                found.append(_access(read, rename, strides, outside=reduce))
    return found


def _in_order(
    shape: TileShape, read: ReadForm, pack: NDArray[np.bool_], block: NDArray[np.bool_]
) -> NDArray[np.bool_] | None:
    """Where what is read was laid out for the tiles: packed weights, and what a block of its own holds."""
    if read == shape.weights:
        return pack
    name = read.tensor.op.name
    return block if name in shape.staged and name not in shape.whole else None


def _access(
    read: ReadForm,
    rename: Mapping[str, str],
    strides: Mapping[str, tuple[int, ...]],
    *,
    panel: NDArray[np.bool_] | None = None,
    outside: frozenset[str] = frozenset(),
) -> Access:
    dims = tuple(tuple((rename.get(axis, axis), c) for axis, c in terms) for terms in read.dims)
    tensor = read.tensor
    return Access(
        tensor.name,
        item_bytes(tensor),
        dims,
        tensor.shape,
        panel=panel,
        outside=outside,
        row_bytes=row_bytes(tensor, strides),
    )


def _tags(
    shape: TileShape,
    columns: Columns,
    tile: Tile,
    pack: NDArray[np.bool_],
    block: NDArray[np.bool_],
) -> dict[str, Numbers]:
    useful = float(shape.elements)
    computed = vector_tiles(shape, columns) * tile.vectors * shape.lanes
    for axis in shape.spatial:
        computed = computed * ceil_div(shape.extents[axis], tile.rows[axis]) * tile.rows[axis]
    computed = computed * math.prod(shape.extents[axis] for axis in shape.batch)
    order = equals(columns, "tile_order", "rows") + 2.0 * equals(columns, "block_order", "vector")
    return {
        "rows": tile.accumulators / tile.vectors,
        "vectors": tile.vectors,
        "unroll": tile.unroll,
        "packed": pack.astype(np.float64),
        "order": order,
        "inline": block.astype(np.float64),
        "split": equals(columns, "tail", "peel").astype(np.float64),
        "waste": computed / useful,
    }


__all__ = ["tile_nest"]
