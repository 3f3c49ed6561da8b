"""Small programs and their loops, for documentation and experiments."""

from __future__ import annotations

from typing import Any

from autotune import te
from autotune.lower.printer import buffer_text, kernel_text
from autotune.lower.program import lower_schedule
from autotune.schedule.schedule import Schedule
from autotune.strides import dense_strides
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor


def arguments(schedule: Schedule) -> list[Tensor]:
    """Return the inputs that a schedule reads, then its outputs, in the order of the read graph."""
    order = schedule.order()
    inputs = [s.op.output(0) for s in order if isinstance(s.op, PlaceholderOp)]
    results = [s.op for s in order if isinstance(s.op, ComputeOp) and s.is_output]
    return inputs + [op.output(i) for op in results for i in range(len(op.dtypes))]


def loops(schedule: Schedule, only: Any = None) -> str:
    """Return the loops of all kernels of a schedule, or of one stage's kernel, as text; padded buffers first."""
    program = lower_schedule(schedule, arguments(schedule))
    wanted = None if only is None else schedule[only].op.name
    padded_buffers = [b for b in program.workspaces if b.strides != dense_strides(b.shape)]
    lines = [f"workspace {buffer_text(b)}" for b in padded_buffers]
    return "\n".join(lines + [kernel_text(k) for k in program.kernels if wanted in (None, k.name)])


def chain(n: int) -> tuple[Schedule, Tensor, Tensor, Tensor]:
    """Return ``B = A + 1`` and ``C = B * 2`` over ``n`` elements: schedule, A, B, C."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    c = te.compute((n,), lambda i: b[i] * 2, name="C")
    return te.create_schedule(c), a, b, c


def grid(n: int, m: int) -> tuple[Schedule, Tensor, Tensor]:
    """Return ``B = A * 2`` over ``n`` by ``m`` elements: schedule, A, B."""
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2, name="B")
    return te.create_schedule(b), a, b


def rows(n: int, m: int) -> tuple[Schedule, Tensor, Tensor]:
    """Return sums of the rows of an ``n`` by ``m`` matrix: schedule, A, C."""
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    c = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")
    return te.create_schedule(c), a, c


def matmul(n: int, m: int, size: int) -> tuple[Schedule, Tensor, Tensor, Tensor]:
    """Return ``C[n, m] = A[n, size] B[size, m]``: schedule, A, B, C."""
    a = te.placeholder((n, size), name="A")
    b = te.placeholder((size, m), name="B")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_schedule(c), a, b, c


def matmul_relu(n: int, m: int, size: int) -> tuple[Schedule, Tensor, Tensor, Tensor, Tensor]:
    """Return ``D = max(A B, 0)``: schedule, A, B, the product C, D."""
    _, a, b, c = matmul(n, m, size)
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_schedule(d), a, b, c, d


def blur(n: int) -> tuple[Schedule, Tensor, Tensor, Tensor]:
    """Return ``B = A * 2`` and the sums of three neighbours ``C[i] = B[i] + B[i + 1] + B[i + 2]``:
    schedule, A, B, C."""
    a = te.placeholder((n + 2,), name="A")
    b = te.compute((n + 2,), lambda i: a[i] * 2, name="B")
    c = te.compute((n,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    return te.create_schedule(c), a, b, c


def padded(n: int) -> tuple[Schedule, Tensor, Tensor]:
    """Return schedule and tensors of ``B``, which is ``A`` with a zero on both sides, ``n`` elements together."""
    a = te.placeholder((n - 2,), name="A")
    b = te.compute((n,), lambda i: te.if_then_else(te.all(i >= 1, i < n - 1), a[i - 1], 0.0), name="B")
    return te.create_schedule(b), a, b


def transposed(n: int, m: int) -> tuple[Schedule, Tensor, Tensor, Tensor]:
    """Return ``B = A + 1`` and its transpose ``C``: schedule, A, B, C."""
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((m, n), lambda i, j: b[j, i], name="C")
    return te.create_schedule(c), a, b, c


__all__ = [
    "arguments",
    "blur",
    "chain",
    "grid",
    "loops",
    "matmul",
    "matmul_relu",
    "padded",
    "rows",
    "transposed",
]
