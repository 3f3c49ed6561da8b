"""Regions whose last axis is shorter than a vector and walks across an input's lines: planes that become pixels.

The two last axes are one loop, in steps of as many vectors as the last axis is long. Then which planes and pixels the
lanes of a vector read is known when code is made, and they are gathered. Knobs: row_block (rows a tile), parallel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schedule.knob import Knob
from autotune.target import GROUP_BYTES, ITEM_BYTES
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import read_forms
from search_spaces.rows.flat_recipe import FlatRecipe, sharing_knob
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import ints

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.tensor import Operation

_ROW_BLOCKS = (1, 2, 4, 8, 16)


class InterleavedRecipe(FlatRecipe):
    """Rows of the two last axes at once."""

    def _output(self, stage: Stage, config: Choices) -> None:
        assert isinstance(stage.op, ComputeOp)
        *outer, along, last = stage.op.axis
        row = stage.fuse(along, last)
        step, inner = stage.split(row, factor=self.columns * self.lanes, tail="peel")
        vectors, lanes = stage.split(inner, factor=self.lanes)
        block = stage.fuse(*outer) if len(outer) > 1 else outer[0]
        if config["row_block"] != 1:
            block, rows = stage.split(block, factor=config["row_block"])
            stage.reorder(block, rows, step, vectors, lanes)
        stage.parallel(block, when=config["parallel"])
        stage.unroll(vectors)
        stage.vectorize(lanes)


def is_interleaved(recipe: FlatRecipe) -> bool:
    """Return whether an input's lines go along the axis before the last, and the last is too short for blocks of lines
    (:mod:`search_spaces.rows.transposed`)."""
    axes = recipe.output.axis
    if recipe.plain or len(axes) < 3 or axes[-2].extent < recipe.lanes:
        return False
    along, last = axes[-2].name, axes[-1].name
    found = [read for op in recipe.wide_stages for read in read_forms(op) if read.contiguous == along]
    crossed = [read for read in found if last in read.axes and _is_stored_so(read.tensor.op)]
    return any(1 < recipe.columns < GROUP_BYTES // ITEM_BYTES[read.tensor.dtype] for read in crossed)


def _is_stored_so(op: Operation) -> bool:
    """Return whether a tensor is an input, or computed element by element from such."""
    if not isinstance(op, ComputeOp):
        return True
    reads = read_forms(op)
    own = [axis.name for axis in op.axis]
    same = [[read.single(dim) for dim in range(len(read.dims))] == own for read in reads]
    return (
        op.reduction is None and bool(reads) and all(same) and all(_is_stored_so(r.tensor.op) for r in reads)
    )


def interleaved_space(recipe: FlatRecipe, target: Target) -> Space:
    """Return the schedules of such a region; see :func:`is_interleaved`."""
    joined = InterleavedRecipe(recipe.workload, recipe.family, recipe.lanes)
    rows = joined.rows // joined.output.axis[-2].extent
    blocks = ints(size for size in _ROW_BLOCKS if size == 1 or (size < rows and rows % size == 0))
    knobs = (Knob.of("row_block", blocks, 1, "rows a tile"), sharing_knob(joined, target))
    return Space(recipe.workload, target, recipe.family, knobs, (), joined)


__all__ = ["InterleavedRecipe", "interleaved_space", "is_interleaved"]
