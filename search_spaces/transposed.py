"""Regions that walk across an input's lines: blocks of both axes, transposed in registers.

Where the output's last axis is not the one along which an input is contiguous, a block of ``tile`` lines of the
output by some vectors is read along the input's lines (:mod:`autotune.codegen.blocks`). Knobs: tile, vectors, walk
(which way the innermost blocks go: along the input's lines, or along the output's), stream, parallel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.lower.ir import NONTEMPORAL
from autotune.strides import dense_strides
from autotune.target import GROUP_BYTES, ITEM_BYTES
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.analysis import ReadForm, operations, read_forms
from search_spaces.flat_recipe import FlatRecipe, parallel_knob
from search_spaces.knob import Columns, Config, Knob
from search_spaces.nest import STREAMS, Access, Body, Loop, LoopNest
from search_spaces.space import Space
from search_spaces.tile_common import item_bytes
from search_spaces.tile_knobs import ceil_div, column, ints

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target

_IMAGE, _LINE, _COLUMN = "image", "line", "column"


@dataclass(frozen=True)
class TransposedRecipe(FlatRecipe):
    """``lines`` is the output's axis along which an input is contiguous, ``pitch`` the bytes between its lines."""

    lines: str
    line_extent: int
    pitch: int

    def _output(self, stage: Stage, config: Config) -> None:
        assert isinstance(stage.op, ComputeOp)
        *outer, last = stage.op.axis
        along = next(axis for axis in outer if axis.name == self.lines)
        outer.remove(along)
        step, inner = stage.split(last, factor=self.width * int(config["vectors"]), tail="overlap")
        vectors, lanes = stage.split(inner, factor=self.width)
        block, line = stage.split(along, factor=int(config["tile"]), tail="overlap")
        first, second = (step, block) if config["walk"] == "input" else (block, step)
        outer.append(first)
        stage.reorder(*outer, second, vectors, line, lanes)
        fused = stage.fuse(*outer) if len(outer) > 1 else outer[0]
        if config["parallel"]:
            stage.parallel(fused)
        if config.get("stream", False):
            stage.pragma(fused, NONTEMPORAL)
        stage.unroll(vectors)
        stage.unroll(line)
        stage.vectorize(lanes)

    def loop_nest(self, columns: Columns) -> LoopNest:
        """The loop nests of a population."""
        vectors, tile = column(columns, "vectors", 1), column(columns, "tile", 1)
        along_input = columns["walk"] == "input"
        one = np.ones(len(vectors))
        steps = ceil_div(self.columns, vectors * self.width)
        blocks = ceil_div(self.line_extent, tile)
        images = self.rows // self.line_extent
        loops = (
            Loop(_IMAGE, one * images, "parallel"),
            Loop(_COLUMN, np.where(along_input, steps, 1.0), "parallel"),
            Loop(_LINE, np.where(along_input, 1.0, blocks), "parallel"),
            Loop(_LINE, np.where(along_input, blocks, 1.0)),
            Loop(_COLUMN, np.where(along_input, 1.0, steps)),
            Loop(_COLUMN, vectors, "unrolled"),
            Loop(_LINE, tile, "unrolled"),
            Loop(_COLUMN, one * self.width, "vectorized"),
        )
        work = float(sum(max(1, operations(op)) for op in self.wide_stages))
        item = item_bytes(self.output.output(0))
        registers = vectors * tile
        # A register is put together of pieces of lines, and interleaved with others a few times.
        pieces, stages = max(1.0, self.width * item / GROUP_BYTES), np.log2(GROUP_BYTES / item)
        arithmetic = registers * (work + stages)
        return LoopNest(
            family=self.family,
            lanes=self.lanes,
            flops=float(self.workload.flops),
            extents={_IMAGE: images, _LINE: self.line_extent, _COLUMN: self.columns},
            loops=loops,
            accesses=self._accesses(images, item, _streamed(columns)),
            body=Body(
                steps=images * blocks * steps,
                arithmetic=arithmetic,
                loads=registers * pieces,
                stores=registers,
                chains=arithmetic,
                registers=one * min(self.width, GROUP_BYTES / item) + 2,
                instructions=arithmetic + registers * (pieces + 1),
            ),
            serial=~columns["parallel"].astype(np.bool_),
            tags={"vectors": vectors, "unroll": registers, "rows": tile},
        )

    def _accesses(self, images: int, item: int, streamed: NDArray[np.bool_]) -> tuple[Access, ...]:
        image, line, along = ((_IMAGE, 1),), ((_LINE, 1),), ((_COLUMN, 1),)
        written = (images, self.line_extent, self.columns)
        read = (images, self.columns, self.line_extent)
        return (
            Access(self.output.name, item, (image, line, along), written, write=True, streamed=streamed),
            Access("crossed", item, (image, along, line), read, row_bytes=self.pitch),
        )


def _streamed(columns: Columns) -> NDArray[np.bool_]:
    """Whether stores go past the caches [n]."""
    if "stream" in columns:
        return columns["stream"].astype(np.bool_)
    return np.zeros(len(columns["tile"]), np.bool_)


def crossed_lines(recipe: FlatRecipe) -> tuple[str, int, int] | None:
    """The output's axis that walks along an input's lines where the last axis does not, and its extent.

    The third value is the bytes between neighbouring lines. None where there is no such axis, or it is too
    short for a block.
    """
    if recipe.plain:
        return None
    for op in recipe.wide_stages:
        for read in read_forms(op):
            along, last = read.contiguous, op.axis[-1].name
            outer = [axis.name for axis in op.axis[:-1]]
            if isinstance(read.tensor.op, PlaceholderOp) and along in outer and last in read.axes:
                axis = recipe.output.axis[outer.index(along)]
                least = GROUP_BYTES // ITEM_BYTES[read.tensor.dtype]
                if axis.extent >= least:
                    return axis.name, axis.extent, _pitch(read, last)
    return None


def _pitch(read: ReadForm, axis: str) -> int:
    """Bytes of the input that a step of an axis moves on by."""
    strides = dense_strides(read.tensor.shape)
    steps = (s * c for s, terms in zip(strides, read.dims, strict=True) for a, c in terms if a == axis)
    return abs(sum(steps)) * ITEM_BYTES[read.tensor.dtype]


def transposed_space(recipe: FlatRecipe, target: Target, lines: str, extent: int, pitch: int) -> Space:
    """The schedules of a region that crosses an input's lines along axis ``lines``; see :func:`crossed_lines`."""
    blocked = TransposedRecipe(recipe.workload, recipe.family, recipe.lanes, lines, extent, pitch)
    least = GROUP_BYTES // ITEM_BYTES[recipe.output.body[0].dtype]
    tiles = ints(t * least for t in (1, 2, 4, 8) if t * least <= extent) or (extent,)
    # As many lines are read at once as a block has columns: prefetchers follow so many streams.
    most = min(-(-recipe.columns // recipe.lanes), max(1, STREAMS // recipe.lanes))
    vectors = ints(v for v in (1, 2, 4) if v <= most)
    knobs = [
        Knob.of("tile", tiles, tiles[min(2, len(tiles) - 1)], "lines of a block"),
        Knob.of("vectors", vectors, 1, "vectors of a block"),
        Knob.of("walk", ("input", "output"), "input", "along whose lines the innermost blocks go"),
        parallel_knob(recipe),
    ]
    # Asked where the output does not stay in a core's own cache.
    if math.prod(recipe.output.shape) * item_bytes(recipe.output.output(0)) >= target.l2_bytes:
        large = recipe.workload.bytes > target.l3_bytes
        knobs.append(Knob.of("stream", (False, True), large, "store past the caches"))
    return Space(recipe.workload, target, recipe.family, tuple(knobs), (), blocked)


__all__ = ["TransposedRecipe", "crossed_lines", "transposed_space"]
