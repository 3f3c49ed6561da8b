"""Products on tensor cores: a schedule whose blocks copy tiles of the factors, and whose warps multiply them.

A block computes a tile of the result, its warps (threadIdx.y and threadIdx.z) parts of it in registers. At each step
along the depth all threads copy what the block needs into shared memory, 16 bytes at a time, in rows that are padded so
that the eight rows an instruction reads lie in different banks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.errors import ScheduleError
from autotune.target import ITEM_BYTES
from autotune.te.operations import thread_axis
from autotune.te.tensor_cores import COLUMNS, DEPTHS, ROWS, tensor_core

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.te.tensor import Tensor

VECTOR_BYTES = 16
WARP = 32


@dataclass(frozen=True)
class WarpTiles:
    """Sizes: of a block's tile in rows and columns, warps along each, and instructions along the depth a step."""

    rows: int = 64
    columns: int = 64
    row_warps: int = 2
    column_warps: int = 2
    steps: int = 2


def on_tensor_cores(
    schedule: Schedule, product: Tensor, tiles: WarpTiles | None = None, *, transposed: bool = False
) -> None:
    """Schedule ``product[i, j]``, the sum over ``k`` of ``a[i, k] * b[k, j]`` in float32, on tensor cores.

    The factors are inputs in float16, bfloat16 or float32 (then rounded to TF32), converted to float32 where they are
    narrower; with ``transposed`` the right one is ``b[j, k]``. Raises ScheduleError where tiles do not divide sizes.
    """
    tiles = tiles or WarpTiles()
    stage = schedule[product]
    left, right = stage.op.input_tensors
    (rows, columns), (depth,) = (
        (axis.extent for axis in stage.op.axis),
        [k.extent for k in stage.op.reduce_axis],
    )
    step = DEPTHS[left.dtype]
    _check(tiles, {"rows": rows, "columns": columns, "depth": depth}, step)
    copies = [schedule.cache_read(tensor, "shared", [product]) for tensor in (left, right)]
    row_axis, column_axis = stage.op.axis
    i, j, ii, jj = stage.tile(row_axis, column_axis, tiles.rows, tiles.columns)
    row_warp, ii = stage.split(ii, nparts=tiles.row_warps)
    column_warp, jj = stage.split(jj, nparts=tiles.column_warps)
    m, mm = stage.split(ii, factor=ROWS)
    n, nn = stage.split(jj, factor=COLUMNS)
    outer, inner = stage.split(stage.op.reduce_axis[0], factor=step * tiles.steps)
    k, kk = stage.split(inner, factor=step)
    stage.reorder(i, j, row_warp, column_warp, outer, k, m, n, mm, nn, kk)
    bound = {i: "blockIdx.y", j: "blockIdx.x", row_warp: "threadIdx.z", column_warp: "threadIdx.y"}
    for loop, tag in bound.items():
        stage.bind(loop, thread_axis(tag))
    for loop in (k, m, n):
        stage.unroll(loop)
    stage.tensorize(mm, tensor_core(left.dtype, transposed=transposed))
    for copy in copies:
        schedule[copy].compute_at(stage, outer)
        _copied_by_block(schedule, copy, tiles)


def _check(tiles: WarpTiles, sizes: Mapping[str, int], step: int) -> None:
    parts = {"rows": tiles.rows, "columns": tiles.columns, "depth": step * tiles.steps}
    for name, size in sizes.items():
        if size % parts[name]:
            raise ScheduleError(
                f"on_tensor_cores: the product's {size} {name} are not a multiple of the tile's {parts[name]}; choose "
                f"other tiles, or pad the factors"
            )
    for name, size, warps, least in (
        ("rows", tiles.rows, tiles.row_warps, ROWS),
        ("columns", tiles.columns, tiles.column_warps, COLUMNS),
    ):
        if size % (warps * least):
            raise ScheduleError(
                f"on_tensor_cores: {warps} warps cannot share a tile of {size} {name}, as each takes {least} at a time"
            )


def _copied_by_block(schedule: Schedule, copy: Tensor, tiles: WarpTiles) -> None:
    """Copy a tile by all threads of the block, each 16 bytes at a time, neighbours next to one another."""
    stage = schedule[copy]
    lanes = VECTOR_BYTES // ITEM_BYTES[copy.dtype]
    row, column = stage.op.axis
    stage.storage_align(row, 2 * lanes, lanes)
    pieces, vector = stage.split(column, factor=lanes)
    rest, lane = stage.split(stage.fuse(row, pieces), factor=WARP)
    rest, column_warp = stage.split(rest, factor=tiles.column_warps)
    rest, row_warp = stage.split(rest, factor=tiles.row_warps)
    stage.reorder(row_warp, column_warp, lane, rest, vector)
    for loop, tag in ((row_warp, "threadIdx.z"), (column_warp, "threadIdx.y"), (lane, "threadIdx.x")):
        stage.bind(loop, thread_axis(tag))
    stage.unroll(rest)
    stage.vectorize(vector)


__all__ = ["WarpTiles", "on_tensor_cores"]
