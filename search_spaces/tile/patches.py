"""Patches of an image (im2col) as the left operand of a product: the packing of an implicit GEMM.

A row of patches is what a window sees at one position. It is copied from an image that is padded and channels last
already, stored whole before: then nothing is tested, and taps that are neighbours in a row of the image make one run,
which is copied in full vectors. Where a run begins is worked out once for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.te.expr import Binary, Const
from autotune.te.tensor import ComputeOp
from autotune.te.traversal import nodes
from search_spaces.analysis import read_forms
from search_spaces.families.plain import worth_sharing

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage

_UNROLLED = 8
"""Vectors of a run that are copied without a loop."""


def is_packing(op: ComputeOp, anchor: ComputeOp) -> bool:
    """Return whether a product reads a matrix that is gathered from an image, its rows and columns taken apart.

    Inlined, the quotients would be worked out in the innermost loop.
    """
    if len(anchor.reduce_axis) != 1 or op.reduction is not None or len(op.axis) != 2:
        return False
    reads = read_forms(op)
    return len(reads) == 1 and len(reads[0].dims) > 1 and not reads[0].affine


def packed_sources(stages: list[ComputeOp], anchor: ComputeOp) -> frozenset[str]:
    """Return the stages, by name, that patches are copied from: images padded or brought to channels last."""
    packing = [op for op in stages if is_packing(op, anchor)]
    return frozenset(tensor.op.name for op in packing for tensor in op.input_tensors)


def schedule_patches(stage: Stage, lanes: int, *, parallel: bool) -> None:
    """Schedule rows, runs, and the elements of a run in vectors."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    rows, run = op.axis
    for size in reversed(_run_sizes(op)):
        _, run = stage.split(run, factor=size)
    if run.extent > 1:
        vectors, inner = stage.split(run, factor=min(lanes, run.extent))
        if vectors.extent > _UNROLLED:
            vectors = stage.split(vectors, factor=_UNROLLED)[1]
        stage.unroll(vectors)
        stage.vectorize(inner)
    if parallel and worth_sharing(op):
        stage.parallel(rows)


def _run_sizes(op: ComputeOp) -> tuple[int, ...]:
    """Return lengths, ascending, of runs of a row that do not go on where the next one begins."""
    last, (read,) = op.axis[-1], read_forms(op)
    sizes = {
        int(node.b.value)
        for expr in op.body
        for node in nodes(expr)
        if isinstance(node, Binary)
        and node.op in ("//", "%")
        and node.a is last
        and isinstance(node.b, Const)
    }
    *_, across, _ = read.dims
    if dict(across).get(last.name) == 1:  # the next tap sees the next pixel: its channels follow
        sizes.discard(read.tensor.shape[-1])
    return tuple(sorted(sizes))


__all__ = ["is_packing", "packed_sources", "schedule_patches"]
