"""Register tiles of small integers and bfloat16: dot products of neighbouring steps, weights in groups of them.

Panels of weights have the columns of a register tile, and within a column the ``group`` steps that one
instruction adds up (oneDNN calls the layout of VNNI ``BA16a64b4a``). The other operand must have the
same steps next to one another in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune import te
from autotune.te.taps import taps_name

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.te.dot_products import DotProduct
    from autotune.te.expr import Expr, IterVar


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


def tensorize_taps(stage: Stage, dot: DotProduct, taps: IterVar, lanes: IterVar) -> None:
    """Replace the taps of a row of a depthwise window, inside of the lanes."""
    stage.reorder(*(iv for iv in stage.leaf_iter_vars if iv is not taps), taps)
    stage.tensorize(lanes, te.intrinsic_named(taps_name(dot, taps.extent)))


__all__ = ["grouped", "tensorize_group", "tensorize_taps"]
