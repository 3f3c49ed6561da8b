"""Register tiles of products with weights of few bits: sums over a block in registers, scaled once a block.

The weights of a word are unpacked in registers, a vector of columns at a time, for all rows of the tile. Sums of all
blocks are touched once a block: they may be in memory, where those of a block take the registers. Words are read once
where there are few rows, at the speed of the memory: they are fetched ahead (knob ``ahead``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from autotune import te
from autotune.schedule.index_map import IndexMap
from autotune.schedule.knob import Knob
from autotune.te.expr import Var
from autotune.te.nibbles import nibbles_name
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor
from search_spaces.analysis import read_forms
from search_spaces.families.plain import worth_sharing
from search_spaces.prefetch import iterations, prefetch_knob
from search_spaces.rows.vectors import attach, partial_vectors
from search_spaces.sketch import Choices
from search_spaces.tile.common import item_bytes
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

_DISTANCES = (1024, 2048, 4096)
_OF_STREAMS = (16384, 32768)
_PANEL_RANK = 3
"""Panels, rows and columns."""
_FEW = 8
"""Rows that one tile has: words are read once then, by one worker in one stream. Zen 3, layers of 4096 in four bits by
two threads, one row, interleaved: 13 % less time with prefetches 1024 to 4096 bytes ahead, 4096 4 % less than 1024. A
loaded Xeon with AMX, layers of 2048 and 8192: 16384 took 18 to 24 % less than 4096, and 34 % less with scales fetched
ahead as well (medians). Decode of sixteen such layers there, alone: 9 to 10 % less time where they are fetched into the
second cache only, at 16384 bytes; 8192, 32768 and 65536 took 5, 8 and 1 % more."""


def words_knob(shape: TileShape, target: Target) -> list[Knob]:
    """Return the prefetch distance of words that do not stay in the second cache."""
    assert shape.blocks is not None
    words = _words(shape.blocks)
    if math.prod(words.shape) * item_bytes(words) < target.l2_bytes:
        return []
    return [prefetch_knob(_OF_STREAMS, always=True) if _once(shape) else prefetch_knob(_DISTANCES)]


def _once(shape: TileShape) -> bool:
    """Return whether each word is read once."""
    return shape.extents[shape.spatial[0]] <= _FEW


def pack_blocks(schedule: Schedule, shape: TileShape, accumulator: Stage, config: Choices) -> None:
    """Lay words, scales and zero points out as panels of the columns of a tile."""
    assert shape.blocks is not None
    width = config["vectors"] * shape.lanes
    row, column = Var("i0"), Var("i1")
    panels = IndexMap.from_indices((column // width, row, column % width))
    for op, reader in ((shape.structure.anchor, accumulator.op.name), (shape.blocks, shape.blocks.name)):
        for tensor in _matrices(op):
            packed = schedule.cache_read(schedule[tensor.op.name].tensor, "global", [schedule[reader]])
            schedule.transform_layout(packed, panels)


def _matrices(op: ComputeOp) -> list[Tensor]:
    """Return the inputs that a stage reads along its last axis."""
    forms = [form for form in read_forms(op) if form.contiguous == op.axis[-1].name]
    return [form.tensor for form in forms if isinstance(form.tensor.op, PlaceholderOp)]


def _words(op: ComputeOp) -> Tensor:
    """Return the integers among what a stage reads, packed or not."""
    return next(tensor for tensor in op.input_tensors if tensor.dtype == "int32")


def tile_blocks(stage: Stage, blocks: Stage, shape: TileShape, config: Choices) -> None:
    """Order the loops: blocks outside, in each its sums, some words at a time, and then what adds them up."""
    assert isinstance(stage.op, ComputeOp)
    assert isinstance(blocks.op, ComputeOp)
    (block,) = stage.op.reduce_axis
    stage.vectorize(_tile(stage, [block], stage.op.axis, shape.lanes))
    blocks.compute_at(stage, block)
    blocks.set_scope("local")
    at, *results = blocks.op.axis
    words, places = blocks.op.reduce_axis
    words, step = blocks.split(words, factor=config["unroll"])
    lanes = _tile(blocks, [at, words, step, places], results, shape.lanes)
    blocks.unroll(step)
    if shape.nibbles is not None:
        blocks.reorder(*(iv for iv in blocks.leaf_iter_vars if iv is not places), places)
        blocks.tensorize(lanes, te.intrinsic_named(nibbles_name(shape.nibbles)))
    else:
        blocks.unroll(places)
        blocks.vectorize(lanes)
    if "ahead" in config:
        matrix = _words(blocks.op)
        nbytes = config["vectors"] * (shape.lanes * item_bytes(matrix) * shape.steps)
        for tensor in (matrix, *_panels_of_blocks(stage, blocks)):
            distance, level = iterations(config["ahead"], nbytes), 2 if _once(shape) else 1
            stage.prefetch(tensor, block, distance, level, when=config["ahead"] != 0)


def _panels_of_blocks(stage: Stage, blocks: Stage) -> list[Tensor]:
    """Return scales and zero points, which are read once as well, in lines too far apart for a prefetcher."""
    assert isinstance(stage.op, ComputeOp)
    read = [tensor for tensor in stage.op.input_tensors if stage.schedule[tensor] is not blocks]
    return [tensor for tensor in read if len(tensor.shape) == _PANEL_RANK]


def sum_inputs(schedule: Schedule, stage: Stage, lanes: int) -> None:
    """Sum the input over blocks by vectors along each block, rows shared among the workers."""
    assert isinstance(stage.op, ComputeOp)
    share = worth_sharing(stage.op)
    attach(partial_vectors(schedule, stage, lanes, 1), stage, stage.op.axis[-1])
    stage.parallel(stage.op.axis[0], when=share)


def _tile(stage: Stage, outside: list[IterVar], results: Any, lanes: int) -> IterVar:
    """Unroll what a stage computes, rows and vectors of columns, inside of the loops ``outside``; the loop of lanes."""
    *rows, column = results
    vectors, inner = stage.split(column, factor=lanes)
    stage.reorder(*outside, *rows, vectors, inner)
    for loop in (*rows, vectors):
        stage.unroll(loop)
    return inner


__all__ = ["pack_blocks", "sum_inputs", "tile_blocks", "words_knob"]
