"""Tensor intrinsics that call library kernels: products of matrices of one size."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from autotune import library
from autotune.errors import ScheduleError
from autotune.te.instructions import Argument, KernelCall, Layout, OperandPointer, Reference
from autotune.te.intrinsic import INTRINSICS, decl_buffer, decl_tensor_intrin
from autotune.te.operations import compute, placeholder, reduce_axis
from autotune.te.reductions import sum as te_sum

if TYPE_CHECKING:
    from autotune.te.intrinsic import TensorIntrin

_NAME = re.compile(r"matmul\.(\w+)\.(float32|float64)\.(\d+)x(\d+)x(\d+)")


def library_matmul(kernel: str, dtype: str, m: int, n: int, k: int) -> TensorIntrin:
    """Return ``C[m, n] = A[m, k] B[k, n]`` by a library kernel; rows may lie any distance apart,
    elements of a row may not.

    Raises BuildError for a kernel that is not registered.
    """
    name = f"matmul.{kernel}.{dtype}.{m}x{n}x{k}"
    if name in INTRINSICS:
        return INTRINSICS[name]
    convention = library.kernel(kernel, dtype).convention
    a, b = placeholder((m, k), dtype, name="a"), placeholder((k, n), dtype, name="b")
    r = reduce_axis((0, k), name="r")
    c = compute((m, n), lambda i, j: te_sum(a[i, r] * b[r, j], axis=r), name="c")
    arguments = _fortran(dtype, m, n, k) if convention == "fortran" else _layout(m, n, k)
    call = KernelCall(library.symbol(kernel, dtype), arguments)
    rows = {t: decl_buffer(t.shape, dtype, strides=[None, 1]) for t in (a, b, c)}
    return decl_tensor_intrin(c.op, lambda ins, outs: call, binds=rows, name=name)


def by_name(name: str) -> TensorIntrin:
    """Return the intrinsic that a trace names; raises ScheduleError for a name that is none of ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ScheduleError(
            f"no library call {name!r}; it would be written like 'matmul.blas.float32.64x512x256'"
        )
    m, n, k = (int(found[number]) for number in (3, 4, 5))
    return library_matmul(found[1], found[2], m, n, k)


def _layout(m: int, n: int, k: int) -> tuple[Argument, ...]:
    return (OperandPointer(0), OperandPointer(1), OperandPointer(2), Layout((m, n, k)))


def _fortran(dtype: str, m: int, n: int, k: int) -> tuple[Argument, ...]:
    """Return arguments of ``gemm``: columns of the BLAS are our rows, so that it computes C' = B' A'."""
    plain, zero, one = Reference("int8", ord("N")), Reference(dtype, 0.0), Reference(dtype, 1.0)
    sizes = tuple(Reference("int32", size) for size in (n, m, k))
    leading_c, leading_a, leading_b = (Reference("int32", stride_of=(o, 0)) for o in (0, 1, 2))
    left, right, out = OperandPointer(2), OperandPointer(1), OperandPointer(0)
    return (plain, plain, *sizes, one, left, leading_b, right, leading_a, zero, out, leading_c)


__all__ = ["by_name", "library_matmul"]
