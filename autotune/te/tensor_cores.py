"""Products of tensor cores of NVIDIA's GPUs, as tensor intrinsics.

Each adds the product of a tile of 16 rows and one of 8 columns to sums in float32, by the 32 threads of a warp
together (``mma.sync.m16n8k*``): of half and bfloat16 at a depth of 16, where products are exact, and of float32 at a
depth of 8, where the factors are rounded to the 11 significant bits of TF32: a relative error of 2**-12 each, which the
program must bear. The factors may lie any way; from shared memory they are read fastest with rows in multiples of 16
bytes.

A schedule binds loops around to ``threadIdx.y`` (each iteration a warp), and leaves ``threadIdx.x``, with 32 threads,
to the instruction and to stages that copy into shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.te.expr import cast
from autotune.te.instructions import MatrixMultiply
from autotune.te.intrinsic import decl_buffer, decl_tensor_intrin
from autotune.te.operations import compute, placeholder, reduce_axis
from autotune.te.reductions import sum as te_sum

if TYPE_CHECKING:
    from autotune.te.intrinsic import TensorIntrin

ROWS, COLUMNS = 16, 8
DEPTHS = {"float16": 16, "bfloat16": 16, "float32": 8}
"""Depth of an instruction by the type of its factors."""


def tensor_core(dtype: str, *, transposed: bool = False) -> TensorIntrin:
    """Return the product of factors of a type; the right one is ``b[k, j]``, or ``b[j, k]`` where it is
    ``transposed``."""
    from autotune.te.intrinsic import intrinsic_named

    return intrinsic_named(_name(dtype, transposed))


def _name(dtype: str, transposed: bool) -> str:
    kind = "tf32" if dtype == "float32" else dtype
    return f"mma_m16n8k{DEPTHS[dtype]}_{kind}{'_transposed' if transposed else ''}"


def _declare(dtype: str, transposed: bool) -> TensorIntrin:
    depth = DEPTHS[dtype]
    a = placeholder((ROWS, depth), dtype, name="a")
    b = placeholder((COLUMNS, depth) if transposed else (depth, COLUMNS), dtype, name="b")
    k = reduce_axis((0, depth), name="k")
    c = compute(
        (ROWS, COLUMNS),
        lambda i, j: te_sum(
            cast(a[i, k], "float32") * cast(b[j, k] if transposed else b[k, j], "float32"), axis=k
        ),
        name="c",
    )
    step = MatrixMultiply(ROWS, COLUMNS, depth, dtype, transposed)
    anywhere = {t: decl_buffer(t.shape, strides=[None, None]) for t in (a, b, c)}
    return decl_tensor_intrin(
        c.op,
        lambda ins, outs: (None, None, step),
        kinds={"i": "unrolled", "j": "unrolled", "k": "unrolled"},
        binds=anywhere,
        requires=("mma",),
        name=_name(dtype, transposed),
    )


for _dtype in DEPTHS:
    for _transposed in (False, True):
        _declare(_dtype, _transposed)


__all__ = ["COLUMNS", "DEPTHS", "ROWS", "tensor_core"]
