"""Winograd's three steps in one dispatch, by blocks of tiles: what lies between them stays in the caches.

A block is some rows of tiles, or part of them. Its windows are transformed, multiplied position by position, with
sums in registers and weights in panels, and the products of some or all output channels are transformed and go on with
what follows. Tiles of neighbouring blocks share nothing, so nothing is computed twice. Where there are few tiles and
large weights, workers may share the output channels too, each with windows of its own (share: "parts"). Knobs:
block_rows and block_tiles, block_vectors (of output channels), share, those of a register tile, window_walk (as walk in
:mod:`search_spaces.families.winograd`), window_vectors and result_vectors (of a transform), parallel.
Results go tile by tile:
their products are near.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autotune.schedule.knob import Columns, Knob, Value
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import Structure, structure
from search_spaces.constraint import Constraint
from search_spaces.families.plain import schedule_plain
from search_spaces.families.winograd import transform_of
from search_spaces.families.winograd_transform import ROW, TILE, Transform, TransformLoops, Walk
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import column, ints, parallel_knob, tile_constraints, tile_knobs
from search_spaces.tile.schedule import schedule_products
from search_spaces.tile.shape import TileShape, tile_shape

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "winograd_blocks"
_TILE_KNOBS = ("rows", "vectors", "outer_rows", "unroll", "tile_order")
BLOCKS, PARTS = "blocks", "parts"
_ROWS = (1, 2, 3, 4, 6, 8, 14)
_LEAST_TILES = 7
"""Tiles of a part of a row: with fewer, register tiles are cut short."""


@dataclass(frozen=True)
class WinogradBlocksRecipe:
    """The stages of the products, those around them, and both transforms."""

    shape: TileShape
    result: Structure
    windows: Transform
    results: Transform

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Schedule the result by blocks, and in them the products and the windows."""
        plan = self.result
        for op in (*plan.side, *plan.epilogue):
            if op.name != plan.stored.name:
                schedule[op.name].compute_inline()
        if plan.stored is not plan.anchor:
            schedule[plan.anchor.name].compute_inline()
        *before, _, columns = plan.producers
        *padding, rows, windows = before
        out = schedule[plan.stored.name]
        walk = Walk(TILE, config["result_vectors"])
        block, part, loops = self._results(out, walk, config)
        self.results.first_of_results(schedule[columns.name], out, loops, walk)
        chosen = {name: config[name] for name in _TILE_KNOBS if name in config}
        schedule_products(schedule, self.shape, chosen).compute_at(out, part)
        self._windows(schedule[windows.name], schedule[rows.name], out, block, config)
        for op in (*padding, *plan.rest):
            schedule_plain(schedule[op.name], self.windows.width, inline=True)

    def _results(self, stage: Stage, walk: Walk, config: Choices) -> tuple[IterVar, IterVar, TransformLoops]:
        """Return the loops of the result: over blocks, over parts of a block's channels, and those of the transform."""
        assert isinstance(stage.op, ComputeOp)
        image, *_, channel = stage.op.axis
        height, width = self.results.tiles(stage)
        rows, row = stage.split(height.place, factor=config["block_rows"], tail="overlap")
        tiles, tile = stage.split(width.place, factor=config["block_tiles"], tail="overlap")
        parts, channel = stage.split(channel, factor=config["block_vectors"] * self.results.width)
        around = [image, rows, tiles]
        loops = self.results.results(
            stage, walk, [*around, parts, row], [tile], [height.inside, width.inside], channel
        )
        if config.get("share", BLOCKS) == PARTS:
            block = parts = stage.fuse(*around, parts)
        else:
            block = stage.fuse(*around)
        stage.parallel(block, when=config["parallel"])
        return block, parts, loops

    def _windows(self, stage: Stage, first: Stage, out: Stage, block: IterVar, config: Choices) -> None:
        stage.compute_at(out, block)
        assert isinstance(first.op, ComputeOp)
        assert isinstance(stage.op, ComputeOp)
        walk = Walk(config["window_walk"], config["window_vectors"])
        whole = config["block_tiles"] == stage.op.axis[4].extent
        padded = first.op.input_tensors[0].op if whole else None
        loops = self.windows.windows(stage, walk, padded)
        self.windows.first_of_windows(first, stage, loops, walk, padded)


def fits(workload: Workload) -> bool:
    """Return whether a chain of anchors is that of the three steps."""
    return [node.op for node in workload.region.anchors] == ["WinogradInput", "MatMul", "WinogradOutput"]


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a convolution by Winograd's algorithm in one dispatch."""
    result = structure(workload.expressions)
    products = next(op for op in result.producers if op.reduction is not None)
    shape = tile_shape(structure(result.program, products), target)
    assert shape is not None
    *_, images, height, width, outer = products.shape
    inner = products.reduce_axis[0].extent
    first, _, last = workload.region.anchors
    windows, results = (transform_of(workload.region.graph, node, target) for node in (first, last))
    recipe = WinogradBlocksRecipe(shape, result, windows, results)
    inner, outer = math.ceil(inner / windows.width), math.ceil(outer / results.width)
    knobs = [
        Knob.of("block_rows", _rows(height), 1, "rows of tiles in a block"),
        Knob.of("block_tiles", _row_parts(width), width, "tiles of a row in a block"),
        Knob.of("block_vectors", _channel_parts(outer), outer, "vectors of output channels at a time"),
        *(knob for knob in tile_knobs(shape, target) if knob.name in _TILE_KNOBS),
        *_share_knob(images * height, outer, target),
        Knob.of("window_walk", (TILE, ROW), TILE, "whether few positions of windows go through all tiles"),
        _vectors_knob("window", inner),
        _vectors_knob("result", outer),
        parallel_knob(target, True, "share the blocks among workers"),
    ]
    rules = [rule for rule in tile_constraints(shape, target) if rule.name in ("registers", "body")]
    return Space(workload, target, FAMILY, tuple(knobs), (*rules, _panels(outer)), recipe)


def _share_knob(rows: int, vectors: int, target: Target) -> list[Knob]:
    """Return the knob of sharing, where there are few ``rows`` of tiles for the workers."""
    if target.threads == 1 or rows > 2 * target.threads or len(_channel_parts(vectors)) == 1:
        return []
    return [
        Knob.of("share", (BLOCKS, PARTS), BLOCKS, "whether workers share the parts of output channels too")
    ]


def _vectors_knob(name: str, vectors: int) -> Knob:
    counts = ints(v for v in (4, 8, 16) if v < 2 * vectors) or (vectors,)
    return Knob.of(f"{name}_vectors", counts, counts[0], f"vectors of the channels of {name}s at a time")


def _rows(height: int) -> tuple[Value, ...]:
    return ints(rows for rows in (*_ROWS, height) if rows <= height)


def _row_parts(width: int) -> tuple[Value, ...]:
    """Return all tiles of a row, or parts of it."""
    parts = (math.ceil(width / number) for number in (2, 4, 8))
    return ints([width, *(part for part in parts if part >= _LEAST_TILES)])


def _channel_parts(vectors: int) -> tuple[Value, ...]:
    """Return all vectors of output channels, or a number of them that divides all."""
    return ints(v for v in (1, 2, 4, 6, 8, 12, 16, 32, vectors) if vectors % v == 0)


def _panels(vectors: int) -> Constraint:
    def holds(c: Columns) -> object:
        size = column(c, "block_vectors", vectors)
        return (size == vectors) | (np.mod(size, column(c, "vectors", 1)) == 0)

    return Constraint("panels", ("block_vectors", "vectors"), holds, "register tiles would cross panels")


__all__ = ["FAMILY", "WinogradBlocksRecipe", "fits", "space"]
