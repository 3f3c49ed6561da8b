"""Lhs packing: the left operand of a matrix product that is much larger than the second cache.

The knob ``left`` says how a tile reads it: ``rows`` where it lies, ``ahead`` where it lies with prefetches, ``panels``
packed before the kernel, ``block`` packed for each block. Panels of a register tile's rows, in the order of the
reduction, are those of Goto and van de Geijn (TOMS 2008). Readings of all of them are in docs/kernels/matmul.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from autotune.schedule.index_map import IndexMap
from autotune.schedule.knob import Columns, Knob
from autotune.target import Target
from autotune.te.expr import Var
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.constraint import Constraint
from search_spaces.families.plain import schedule_plain, worth_sharing
from search_spaces.sketch import Choices
from search_spaces.tile.common import item_bytes
from search_spaces.tile.library import TILES
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.te.expr import IterVar
    from search_spaces.analysis import ReadForm

ROWS, PREFETCH, PANELS, BLOCK = "rows", "ahead", "panels", "block"
_LARGE = 4
_BODIES = 2
"""Bodies of the reduction from a fetch to its use: 8 lose more, by 1 to 3 %."""


def lhs_knob(shape: TileShape, target: Target) -> list[Knob]:
    """Return the knob of lhs packing, where the left operand is a stored matrix of several times the second cache."""
    read = _lhs(shape)
    if read is None or math.prod(read.tensor.shape) * item_bytes(read.tensor) <= _LARGE * target.l2_bytes:
        return []
    about = "lhs packing: none, none but prefetches, panels packed before, or packed for each block"
    return [Knob.of("left", (ROWS, PREFETCH, PANELS, BLOCK), ROWS, about)]


def lhs_constraints(shape: TileShape, knobs: list[Knob]) -> list[Constraint]:
    """Return panels begin where tiles do, and a library kernel has its own."""
    names = [knob.name for knob in knobs]
    if "left" not in names:
        return []
    kernel = ("kernel",) if "kernel" in names else ()

    def holds(c: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        aligned = (c["tail"] == "peel") | (np.mod(shape.extents[shape.spatial[0]], c["rows"]) == 0)
        ours = (c["left"] == PREFETCH) | aligned
        if kernel:
            ours = ours & (c["kernel"] == TILES)
        return np.asarray((c["left"] == ROWS) | ours)

    why = "panels begin where tiles do (tail=peel), and a library kernel packs by itself"
    return [Constraint("left", ("left", "rows", "tail", *kernel), holds, why)]


def pack_lhs(schedule: Schedule, shape: TileShape, accumulator: Stage, config: Choices) -> Stage | None:
    """Return the stage that makes panels of the left operand, at the root; None where the rows are read
    where they lie."""
    if config.get("left", ROWS) not in (PANELS, BLOCK):
        return None
    read = _lhs(shape)
    assert read is not None
    *batch, row, step = (Var(f"i{dim}") for dim in range(len(read.dims)))
    packed = schedule.cache_read(schedule[read.tensor.op.name].tensor, "global", [accumulator])
    rows = config["rows"]
    panels = IndexMap.from_indices((*batch, row // rows, step, row % rows))
    return schedule[schedule.transform_layout(packed, panels)]


def place_lhs(panels: Stage | None, shape: TileShape, stored: Stage, block: IterVar, config: Choices) -> None:
    """Transpose a vector of steps at a time, before the kernel or for each block."""
    if panels is None:
        return
    assert isinstance(panels.op, ComputeOp)
    whole = config["left"] == PANELS
    if not whole:
        panels.compute_at(stored, block)
    *batch, panel, step, row = panels.op.axis
    if step.extent < shape.lanes:
        schedule_plain(panels, shape.lanes, inline=False, parallel=whole)
        return
    steps, lanes = panels.split(step, factor=shape.lanes)
    panels.reorder(*batch, panel, steps, row, lanes)
    panels.unroll(row)
    panels.vectorize(lanes)
    if whole and worth_sharing(panels.op):
        panels.parallel(panels.fuse(*batch, panel) if batch else panel)


def prefetch_lhs(accumulator: Stage, shape: TileShape, steps: IterVar, config: Choices) -> None:
    """Prefetch what the body will read of the left operand, one instruction a row."""
    read = _lhs(shape)
    if config.get("left") == PREFETCH and read is not None:
        mine = next(tensor for tensor in accumulator.op.input_tensors if tensor.name == read.tensor.name)
        accumulator.prefetch(mine, steps, _BODIES)


def _lhs(shape: TileShape) -> ReadForm | None:
    """Return the read of rows by steps of the reduction, if that is how it lies in memory."""
    if len(shape.spatial) != 1 or shape.window or len(shape.reads) != 2 or shape.dot is not None:
        return None
    for read in shape.reads:
        last = [read.single(dim) for dim in range(len(read.dims))][-2:]
        if last == [shape.spatial[0], shape.main] and isinstance(read.tensor.op, PlaceholderOp):
            return read
    return None


__all__ = [
    "lhs_constraints",
    "lhs_knob",
    "pack_lhs",
    "place_lhs",
    "prefetch_lhs",
]
