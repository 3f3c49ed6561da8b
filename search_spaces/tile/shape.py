"""Axes of an anchor that a register-tiled recipe tiles, vectorises, reduces and packs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.te.dot_products import DotProduct, dot_product, tile_product
from autotune.te.expr import Binary, Cast, Expr, Read
from autotune.te.nibbles import nibble_product
from autotune.te.reductions import SUM
from autotune.te.taps import MOST, taps_product
from autotune.te.tensor import ComputeOp, PlaceholderOp
from autotune.te.tiles import depth_in_tiles
from search_spaces.analysis import ReadForm, Structure, is_constant, is_view, read_forms
from search_spaces.tile.patches import is_packing, packed_sources

if TYPE_CHECKING:
    from autotune.target import Target

_SMALL: Mapping[str, tuple[str, ...]] = {"int32": ("int8", "uint8"), "float32": ("bfloat16", "float16")}
"""Element types whose products an instruction adds up, by the type of the sums."""

_OF_PLANES = 4
"""Axes of sums over blocks that have planes: blocks, planes, rows, columns."""

LEAST_ROWS, _LEAST_GROUPS = 7, 4
"""Rows of an image, and groups of a tile's depth, below which vectors are as fast."""


@dataclass(frozen=True)
class TileShape:
    """The roles of an anchor's axes, by name.

    ``vector`` is the last data axis; ``spatial`` are one or two axes whose steps reuse a vector operand, so
    that a register tile spans them (outermost first); ``batch`` are the other data axes. ``main`` is the
    innermost reduce axis, ``window`` the others. ``weights`` is the read that a packed layout helps.
    """

    structure: Structure
    extents: dict[str, int]
    batch: tuple[str, ...]
    spatial: tuple[str, ...]
    vector: str
    window: tuple[str, ...]
    main: str
    lanes: int
    weights: ReadForm | None
    staged: tuple[str, ...]
    dot: DotProduct | None = None
    """The instruction that adds up products of neighbouring steps of ``main``, where one fits."""
    tile: DotProduct | None = None
    """The instruction that multiplies tiles of the operands in a matrix unit, where the target has one."""
    taps: DotProduct | None = None
    """The instruction that adds up steps of ``main`` in a depthwise window, where one fits; channels are its lanes."""
    blocks: ComputeOp | None = None
    """The sums over a block each that the steps of ``main`` add up, where it has such: they stay in registers."""

    nibbles: DotProduct | None = None
    """The instruction that multiplies words of weights by bytes in those sums, where one fits."""

    @property
    def group(self) -> int:
        """Steps of the innermost reduction that one instruction takes."""
        return 1 if self.dot is None else self.dot.group

    @property
    def by_tiles(self) -> bool:
        """Return whether that instruction is one of a matrix unit."""
        return self.dot is not None and self.dot.rows > 1

    @property
    def written(self) -> int:
        """Steps that a body always has: places of a word of weights."""
        return 1 if self.blocks is None else self.blocks.reduce_axis[-1].extent

    @property
    def planes(self) -> int:
        """Return the sums that an element has in each block: one, or one of each byte of a row's numbers."""
        if self.blocks is None or len(self.blocks.shape) != _OF_PLANES:
            return 1
        return self.blocks.shape[1]

    @property
    def steps(self) -> int:
        """Return how often the innermost loop repeats its body."""
        return self.extents[self.main] if self.blocks is None else self.blocks.reduce_axis[0].extent

    @cached_property
    def reads(self) -> tuple[ReadForm, ...]:
        """The reads of the anchor."""
        return read_forms(self.structure.anchor)

    @cached_property
    def whole(self) -> frozenset[str]:
        """The staged producers that are stored whole whatever the schedule: others are copied from them."""
        return packed_sources(self.structure.producers, self.structure.anchor)

    @property
    def weights_constant(self) -> bool:
        """Return whether the packed operand is known at compile time, so that packing it is free."""
        if self.weights is None:
            return False
        op, constants = self.weights.tensor.op, self.structure.program.constants
        if isinstance(op, ComputeOp):
            return is_constant(op, constants)
        return op.name in constants

    @property
    def elements(self) -> int:
        """Elements of the anchor's output."""
        return math.prod(self.structure.anchor.shape)

    @property
    def reduction(self) -> int:
        """Steps of the reduction for one element."""
        return math.prod(self.extents[axis] for axis in (*self.window, self.main))


def tile_shape(structure: Structure, target: Target, vector: str | None = None) -> TileShape | None:
    """Return the roles of the axes, or None where the anchor is not a plain reduction with data axes.

    ``vector`` is the last data axis, or another one behind which there is one element only.
    """
    anchor = structure.anchor
    if not anchor.axis or not anchor.reduce_axis or len(anchor.body) != 1:
        return None
    if any(axis.start for axis in anchor.reduce_axis) or 0 in (*anchor.shape,):
        return None
    every = (*anchor.axis, *anchor.reduce_axis)
    extents = {axis.name: axis.extent for axis in every}
    if len(extents) != len(every) or 0 in extents.values():
        return None
    vector = vector or anchor.axis[-1].name
    data = [*(axis.name for axis in anchor.axis if axis.name != vector), vector]
    reads = read_forms(anchor)
    spatial = _spatial(data, extents, reads)
    reduce_names = [axis.name for axis in anchor.reduce_axis]
    main = _main(reduce_names, extents)
    dtype, blocks = anchor.body[0].dtype, _blocks(structure, main)
    shape = TileShape(
        structure=structure,
        extents=extents,
        batch=tuple(axis for axis in data[:-1] if axis not in spatial),
        spatial=spatial,
        vector=vector,
        window=tuple(axis for axis in reduce_names if axis != main),
        main=main,
        lanes=max(1, min(target.lanes(dtype), extents[vector])),
        weights=_weights(reads, data, spatial) if extents[vector] > 1 else None,
        staged=_staged(structure, blocks),
        blocks=blocks,
    )
    if shape.planes > 1:
        nibbles = nibble_product(target, extents[vector])
        return shape if nibbles is None else replace(shape, nibbles=nibbles, lanes=nibbles.lanes)
    dot, tile = _instructions(shape, target)
    taps = _taps_of(shape, target) if dot is None else None
    lanes = next((each.lanes for each in (dot, taps) if each is not None), shape.lanes)
    return replace(shape, tile=tile, dot=dot, taps=taps, lanes=lanes)


def _blocks(structure: Structure, main: str) -> ComputeOp | None:
    """Return the producer with a sum for each step of ``main`` and each result, of weights in words."""
    wanted = [main, *(axis.name for axis in structure.anchor.axis)]
    for read in read_forms(structure.anchor):
        op = read.tensor.op
        if (
            not isinstance(op, ComputeOp)
            or len(op.reduce_axis) != 2
            or [axis for axis in _singles(read) if axis] != wanted
        ):
            continue
        if any(tensor.dtype == "int32" for tensor in op.input_tensors):
            return op
    return None


def _singles(read: ReadForm) -> list[str | None]:
    return [read.single(dim) for dim in range(len(read.dims))]


def _spatial(data: list[str], extents: dict[str, int], reads: Sequence[ReadForm]) -> tuple[str, ...]:
    """Return up to two innermost axes that leave some operand of the vector axis in place."""
    vector = data[-1]
    vectors = [read for read in reads if vector in read.axes]
    reuse = [
        axis
        for axis in data[:-1]
        if extents[axis] > 1 and (not vectors or any(axis not in read.axes for read in vectors))
    ]
    if reuse:
        return tuple(reuse[-2:])
    wide = [axis for axis in data[:-1] if extents[axis] > 1]
    return tuple(wide[-1:] or data[-2:-1])


def _main(reduce_names: list[str], extents: dict[str, int]) -> str:
    """Return the innermost reduce axis with more than one step."""
    return next((axis for axis in reversed(reduce_names) if extents[axis] > 1), reduce_names[-1])


def _weights(reads: Sequence[ReadForm], data: list[str], spatial: tuple[str, ...]) -> ReadForm | None:
    """Return the read that every step of the spatial axes repeats, if each dimension is one axis of its own."""
    vector = data[-1]
    if len(reads) < 2:
        return None
    for read in reads:
        singles = _singles(read)
        plain = all(
            axis is not None or (not terms and size == 1)
            for axis, terms, size in zip(singles, read.dims, read.tensor.shape, strict=True)
        )
        named = [axis for axis in singles if axis is not None]
        if (
            read.affine
            and plain
            and vector in named
            and len(set(named)) == len(named)
            and not set(spatial) & set(named)
            and isinstance(read.tensor.op, PlaceholderOp)
        ):
            return read
    return None


def _staged(structure: Structure, blocks: ComputeOp | None) -> tuple[str, ...]:
    """Return the elementwise stages (padding, a prologue) that the anchor or patches read and that are
    worth storing."""
    anchor, constants = structure.anchor, structure.program.constants
    packed = packed_sources(structure.producers, anchor)
    readers = (anchor, *(() if blocks is None else (blocks,)))
    read = packed.union(tensor.op.name for op in readers for tensor in op.input_tensors)
    return tuple(
        op.name
        for op in structure.producers
        if op.name in read
        and op.reduction is None
        and (not is_view(op) or is_packing(op, anchor) or op.name in packed)
        and not is_constant(op, constants)
    )


def _instructions(shape: TileShape, target: Target) -> tuple[DotProduct | None, DotProduct | None]:
    """Return the instructions on vectors and on tiles for the anchor's products, None where its types or layouts
    do not fit."""
    reads = _factors(shape)
    if reads is None or shape.weights is None:
        return None, None
    left, right = reads
    forms = {form.tensor: form for form in shape.reads}
    if right.tensor != shape.weights.tensor or right.tensor == left.tensor or len(forms) != 2:
        return None, None
    if shape.vector in forms[left.tensor].axes or not _neighbours(shape, forms[left.tensor], shape.main):
        return None, None
    found = dot_product(
        target, left.dtype, right.dtype, shape.extents[shape.vector], _most_lanes(shape, target)
    )
    fits = found is not None and shape.extents[shape.main] >= found.group
    tile = tile_product(target, left.dtype, right.dtype)
    return found if fits else None, _tile_of(shape, tile)


def _tile_of(shape: TileShape, tile: DotProduct | None) -> DotProduct | None:
    """Return the instruction if tiles of some size cover columns and depth: all are equal, and large enough to pay."""
    if tile is None or not shape.spatial or shape.blocks is not None:
        return None
    rows, columns, depth = (shape.extents[axis] for axis in (shape.spatial[-1], shape.vector, shape.main))
    if depth % tile.group or columns % 8 or columns < tile.lanes or rows < LEAST_ROWS:
        return None
    return tile if depth_in_tiles(depth, tile.group)[1] >= _LEAST_GROUPS * tile.group else None


def _taps_of(shape: TileShape, target: Target) -> DotProduct | None:
    """Return the instruction for taps of a depthwise window: both factors have the vector axis next to one another."""
    reads, vector = _factors(shape), shape.vector
    if (
        reads is None
        or len(shape.reads) != 2
        or shape.weights is None
        or not 1 < shape.extents[shape.main] <= MOST
    ):
        return None
    found = taps_product(target, reads[0].dtype, reads[1].dtype, shape.extents[vector])
    if found is None or found.lanes > _most_lanes(shape, target):
        return None
    return found if all(_neighbours(shape, form, vector) for form in shape.reads) else None


def _most_lanes(shape: TileShape, target: Target) -> int:
    """Return the lanes of sums: as many as what is computed from them has. float64 and int64 have half of them."""
    after = (shape.structure.anchor, *shape.structure.epilogue)
    return min(target.lanes(value.dtype) for op in after for value in op.body)


def _factors(shape: TileShape) -> tuple[Read, Read] | None:
    """Return the operands of a sum of products of small numbers, of integers in int32 or of bfloat16 in float32."""
    reduction = shape.structure.anchor.reduction
    product = None if reduction is None else reduction.sources[0]
    if reduction is None or reduction.reducer is not SUM or not isinstance(product, Binary):
        return None
    small = _SMALL.get(product.dtype, ())
    if product.op != "*":
        return None
    left, right = _small(product.a, small), _small(product.b, small)
    return None if left is None or right is None else (left, right)


def _small(expr: Expr, dtypes: Sequence[str]) -> Read | None:
    if isinstance(expr, Cast) and isinstance(expr.a, Read) and expr.a.dtype in dtypes:
        return expr.a
    return None


def _neighbours(shape: TileShape, form: ReadForm, axis: str) -> bool:
    """Return whether steps of an axis are next to one another, in memory and not computed on the way."""
    name, plan = form.tensor.op.name, shape.structure
    strides = plan.program.strides.get(form.tensor.name)
    stored = isinstance(form.tensor.op, PlaceholderOp) or name in shape.staged
    return form.affine and stored and form.moved_by_one(axis) and (strides is None or strides[-1] == 1)


__all__ = ["LEAST_ROWS", "TileShape", "tile_shape"]
