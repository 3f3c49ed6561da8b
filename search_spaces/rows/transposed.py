"""Regions that walk across an input's lines: blocks of both axes, transposed in registers.

Where the output's last axis is not the one along which an input is contiguous, a block of ``tile`` lines of the
output by some vectors is read along the input's lines (:mod:`autotune.codegen.llvm.blocks`). Knobs: tile, vectors, walk
(which way the innermost blocks go: along the input's lines, or along the output's), ahead (the prefetch
distance in bytes along each of the input's lines), stream, parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.schedule.knob import Columns, Knob
from autotune.target import GROUP_BYTES, ITEM_BYTES
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.analysis import ReadForm, read_forms
from search_spaces.constraint import Constraint
from search_spaces.prefetch import iterations, prefetch_knob
from search_spaces.rows.flat_recipe import FlatRecipe, sharing_knob, stream, stream_knob
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.common import item_bytes
from search_spaces.tile.knobs import column, ints

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target

_DISTANCES = (128, 256, 512)
_LINES = 16
"""Lines that are read side by side, at most: prefetchers follow no more of them."""


@dataclass(frozen=True)
class TransposedRecipe(FlatRecipe):
    """``crossed`` is what is read across its lines, ``lines`` the output's axis along which they are contiguous."""

    crossed: ReadForm
    lines: str

    def _output(self, stage: Stage, config: Choices) -> None:
        assert isinstance(stage.op, ComputeOp)
        *outer, last = stage.op.axis
        along = next(axis for axis in outer if axis.name == self.lines)
        outer.remove(along)
        step, inner = stage.split(last, factor=config["vectors"] * self.width, tail="overlap")
        vectors, lanes = stage.split(inner, factor=self.width)
        block, line = stage.split(along, factor=config["tile"], tail="overlap")
        first, second = (step, block) if config["walk"] == "input" else (block, step)
        outer.append(first)
        stage.reorder(*outer, second, vectors, line, lanes)
        fused = stage.fuse(*outer) if len(outer) > 1 else outer[0]
        stage.parallel(fused, when=config["parallel"])
        stream(stage, fused, config)
        if second is block and "ahead" in config:
            distance, nbytes = config["ahead"], config["tile"] * item_bytes(self.crossed.tensor)
            tensor = stage.schedule[self.crossed.tensor.op.name].tensor
            stage.prefetch(tensor, block, iterations(distance, nbytes), when=distance != 0)
        stage.unroll(vectors)
        stage.unroll(line)
        stage.vectorize(lanes)


def crossed_lines(recipe: FlatRecipe) -> tuple[ReadForm, str, int] | None:
    """Return the read across its lines, the output's axis that walks along them, and its extent.

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
    """Return the schedules of a region that crosses an input's lines along axis ``lines``; see
    :func:`crossed_lines`."""
    blocked = TransposedRecipe(recipe.workload, recipe.family, recipe.lanes, crossed, lines)
    least = GROUP_BYTES // ITEM_BYTES[recipe.output.body[0].dtype]
    tiles = ints(t * least for t in (1, 2, 4, 8) if t * least <= extent) or (extent,)
    # As many lines are read at once as a block has columns: prefetchers follow so many streams.
    most = min(-(-recipe.columns // recipe.lanes), max(1, _LINES // recipe.lanes))
    vectors = ints(v for v in (1, 2, 4) if v <= most)
    knobs = [
        Knob.of("tile", tiles, tiles[min(2, len(tiles) - 1)], "lines of a block"),
        Knob.of("vectors", vectors, 1, "vectors of a block"),
        Knob.of("walk", ("input", "output"), "input", "along whose lines the innermost blocks go"),
        sharing_knob(recipe, target),
        *stream_knob(recipe.output, recipe.workload, target),
    ]
    rules = []
    if recipe.workload.bytes > target.l3_bytes and crossed.affine:
        knobs.append(prefetch_knob(_DISTANCES))
        rules.append(Constraint("ahead", ("ahead", "walk"), _along_lines, "lines are not walked along"))
    return Space(recipe.workload, target, recipe.family, tuple(knobs), tuple(rules), blocked)


def _along_lines(columns: Columns) -> object:
    return (column(columns, "ahead", 0) == 0) | (columns["walk"] == "input")


__all__ = ["TransposedRecipe", "crossed_lines", "transposed_space"]
