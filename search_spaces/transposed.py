"""Regions that walk across an input's lines: blocks of both axes, transposed in registers.

Where the output's last axis is not the one along which an input is contiguous, a block of ``tile`` lines of the
output by some vectors is read along the input's lines (:mod:`autotune.codegen.llvm.blocks`). Knobs: tile, vectors, walk
(which way the innermost blocks go: along the input's lines, or along the output's), ahead (bytes of each of the
input's lines that are fetched ahead), stream, parallel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.lower.ir import NONTEMPORAL
from autotune.schedule.knob import Columns, Config, Knob
from autotune.strides import dense_strides
from autotune.target import GROUP_BYTES, ITEM_BYTES
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.ahead import ahead_knob, hidden, iterations
from search_spaces.analysis import ReadForm, operations, read_forms
from search_spaces.constraint import Constraint
from search_spaces.flat_recipe import FlatRecipe, parallel_knob
from search_spaces.nest import CACHE_LINE, STREAMS, Access, Body, Loop, LoopNest, Numbers
from search_spaces.space import Space
from search_spaces.tile_common import item_bytes
from search_spaces.tile_knobs import ceil_div, column, ints

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target

_IMAGE, _LINE, _COLUMN = "image", "line", "column"
_DISTANCES = (128, 256, 512)


@dataclass(frozen=True)
class TransposedRecipe(FlatRecipe):
    """``crossed`` is what is read across its lines, ``lines`` the output's axis along which they are contiguous."""

    crossed: ReadForm
    lines: str
    line_extent: int

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
        if config.get("ahead", 0):
            tensor = stage.schedule[self.crossed.tensor.op.name].tensor
            stage.prefetch(tensor, block, iterations(int(config["ahead"]), int(config["tile"]) * self._item))
        stage.unroll(vectors)
        stage.unroll(line)
        stage.vectorize(lanes)

    @property
    def _item(self) -> int:
        return item_bytes(self.crossed.tensor)

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
        loads = registers * pieces
        ahead = hidden(columns, self.width)
        if ahead is not None:
            fetched = vectors * self.width * ceil_div(tile * self._item, CACHE_LINE)
            loads = loads + np.where(ahead > 0, fetched, 0.0)
        return LoopNest(
            family=self.family,
            lanes=self.lanes,
            flops=float(self.workload.flops),
            extents={_IMAGE: images, _LINE: self.line_extent, _COLUMN: self.columns},
            loops=loops,
            accesses=self._accesses(images, item, _streamed(columns), ahead),
            body=Body(
                steps=images * blocks * steps,
                arithmetic=arithmetic,
                loads=loads,
                stores=registers,
                chains=arithmetic,
                registers=one * min(self.width, GROUP_BYTES / item) + 2,
                instructions=arithmetic + loads + registers,
            ),
            serial=~columns["parallel"].astype(np.bool_),
            tags={"vectors": vectors, "unroll": registers, "rows": tile},
        )

    @property
    def _pitch(self) -> int:
        """Bytes from one of the input's lines to the next."""
        last = self.output.axis[-1].name
        strides = dense_strides(self.crossed.tensor.shape)
        dims = zip(strides, self.crossed.dims, strict=True)
        return abs(sum(s * c for s, terms in dims for a, c in terms if a == last)) * self._item

    def _accesses(
        self, images: int, item: int, streamed: NDArray[np.bool_], ahead: Numbers | None
    ) -> tuple[Access, ...]:
        image, line, along = ((_IMAGE, 1),), ((_LINE, 1),), ((_COLUMN, 1),)
        written = (images, self.line_extent, self.columns)
        read = (images, self.columns, self.line_extent)
        return (
            Access(self.output.name, item, (image, line, along), written, write=True, streamed=streamed),
            Access("crossed", self._item, (image, along, line), read, row_bytes=self._pitch, ahead=ahead),
        )


def _streamed(columns: Columns) -> NDArray[np.bool_]:
    """Whether stores go past the caches [n]."""
    if "stream" in columns:
        return columns["stream"].astype(np.bool_)
    return np.zeros(len(columns["tile"]), np.bool_)


def crossed_lines(recipe: FlatRecipe) -> tuple[ReadForm, str, int] | None:
    """What is read across its lines: the read, the output's axis that walks along them, and its extent.

    None where the last axis walks along all lines, or that axis is too short for a block.
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
                    return read, axis.name, axis.extent
    return None


def transposed_space(recipe: FlatRecipe, target: Target, crossed: ReadForm, lines: str, extent: int) -> Space:
    """The schedules of a region that crosses an input's lines along axis ``lines``; see :func:`crossed_lines`."""
    blocked = TransposedRecipe(recipe.workload, recipe.family, recipe.lanes, crossed, lines, extent)
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
    rules = []
    # Asked where the output does not stay in a core's own cache.
    if math.prod(recipe.output.shape) * item_bytes(recipe.output.output(0)) >= target.l2_bytes:
        large = recipe.workload.bytes > target.l3_bytes
        knobs.append(Knob.of("stream", (False, True), large, "store past the caches"))
    if recipe.workload.bytes > target.l3_bytes and crossed.affine:
        knobs.append(ahead_knob(_DISTANCES))
        rules.append(Constraint("ahead", ("ahead", "walk"), _along_lines, "lines are not walked along"))
    return Space(recipe.workload, target, recipe.family, tuple(knobs), tuple(rules), blocked)


def _along_lines(columns: Columns) -> object:
    return (column(columns, "ahead", 0) == 0) | (columns["walk"] == "input")


__all__ = ["TransposedRecipe", "crossed_lines", "transposed_space"]
