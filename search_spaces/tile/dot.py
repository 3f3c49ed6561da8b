"""Register tiles of small integers and bfloat16: dot products of neighbouring steps, weights in groups of them.

Panels of weights have the columns of a register tile, and within a column the ``group`` steps that one
instruction adds up (oneDNN calls the layout of VNNI ``BA16a64b4a``). The other operand must have the
same steps next to one another in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune import te
from autotune.te.dot_products import DotProduct, dot_product
from autotune.te.expr import Binary, Cast, Expr, IterVar, Read
from autotune.te.reductions import SUM
from autotune.te.tensor import PlaceholderOp

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from search_spaces.analysis import ReadForm
    from search_spaces.tile.shape import TileShape

_SMALL: Mapping[str, tuple[str, ...]] = {"int32": ("int8", "uint8"), "float32": ("bfloat16",)}


def dot_of(shape: TileShape, target: Target) -> DotProduct | None:
    """Return the instruction for the anchor's products, or None where its types or layouts do not fit."""
    reads = _factors(shape)
    if reads is None or shape.weights is None:
        return None
    left, right = reads
    forms = {form.tensor: form for form in shape.reads}
    if right.tensor != shape.weights.tensor or right.tensor == left.tensor or len(forms) != 2:
        return None
    if shape.vector in forms[left.tensor].axes or not _neighbours(shape, forms[left.tensor]):
        return None
    # Sums stay in registers of as many lanes as what is computed from them has: float64 and int64 have half of them.
    after = (shape.structure.anchor, *shape.structure.epilogue)
    most = min(target.lanes(value.dtype) for op in after for value in op.body)
    found = dot_product(target, left.dtype, right.dtype, shape.extents[shape.vector], most)
    return found if found is not None and shape.extents[shape.main] >= found.group else None


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


def _neighbours(shape: TileShape, form: ReadForm) -> bool:
    """Return whether steps of the reduction are next to one another, in memory and not computed on the way."""
    name, plan = form.tensor.op.name, shape.structure
    strides = plan.program.strides.get(form.tensor.name)
    stored = isinstance(form.tensor.op, PlaceholderOp) or name in shape.staged
    return form.affine and stored and form.contiguous == shape.main and (strides is None or strides[-1] == 1)


def grouped(indices: Sequence[Any], step: Expr, group: int) -> list[Any]:
    """Return indices of panels whose innermost dimension are the steps that an instruction takes."""
    return [step // group if index is step else index for index in indices] + [step % group]


def tensorize_group(stage: Stage, dot: DotProduct, step: IterVar, lanes: IterVar) -> IterVar:
    """Split the innermost steps into groups inside of the lanes, and replace these; the loop over groups."""
    outer, inner = stage.split(step, factor=dot.group)
    leaves = [iv for iv in stage.leaf_iter_vars if iv is not inner]
    stage.reorder(*leaves, inner)
    stage.tensorize(lanes, te.intrinsic_named(dot.intrinsic))
    return outer


__all__ = ["dot_of", "grouped", "tensorize_group"]
