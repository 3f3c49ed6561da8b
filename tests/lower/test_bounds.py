"""Elements outside of a tensor are left out as soon as the loops tell, not one by one."""

from __future__ import annotations

import numpy as np
import pytest

from autotune import te
from autotune.lower import lower_schedule
from autotune.lower.ir import Allocate, For, If, Stmt, Store, sub_statements, walk
from autotune.schedule import Schedule
from tests.schedule.machine import run_machine_code


def strips() -> tuple[Schedule, list[te.Tensor]]:
    """Sums along rows, and three of their neighbours for each, in strips of rows: the first and last reach outside."""
    a = te.placeholder((20, 8, 32), name="A")
    r = te.reduce_axis((0, 8), name="r")
    b = te.compute((20, 32), lambda i, j: te.sum(a[i, r, j], axis=r), name="B")

    def near(i: te.IterVar, j: te.IterVar) -> te.Expr:
        return te.if_then_else(te.all(i >= 1, i < 21), b[i - 1, j], 0.0)

    p = te.compute((22, 32), near, name="P")
    c = te.compute((20, 32), lambda i, j: p[i, j] + p[i + 1, j] + p[i + 2, j], name="C")
    s = te.create_schedule([c.op])
    block, _ = s[c].split(s[c].op.axis[0], factor=4)
    for tensor in (p, b):
        s[tensor].compute_at(s[c], block)
    lanes = s[b].split(s[b].op.axis[1], factor=16)[1]
    s[b].reorder(s[b].op.reduce_axis[0], lanes)
    s[b].vectorize(lanes)
    return s, [a, c]


def loops_around_tests(stmt: Stmt, loops: int = 0) -> list[int]:
    """For each test of a row of ``B`` how many loops are around it."""
    own = [loops] if isinstance(stmt, If) and "B" in stores(stmt) else []
    inside = loops + isinstance(stmt, For)
    return own + [n for part in sub_statements(stmt) for n in loops_around_tests(part, inside)]


def stores(stmt: Stmt) -> set[str]:
    return {part.buffer.name for part in walk(stmt) if isinstance(part, Store)}


def test_rows_that_hang_over_are_tested_once_a_row() -> None:
    schedule, args = strips()
    (kernel,) = lower_schedule(schedule, args).kernels
    assert loops_around_tests(kernel.body) == [2, 2]  # below, above: in the loops over strips and over rows


def test_they_compute_the_same() -> None:
    schedule, args = strips()
    a = np.random.default_rng(0).standard_normal((20, 8, 32)).astype(np.float32)
    sums = np.pad(a.sum(axis=1), ((1, 1), (0, 0)))
    found = run_machine_code(schedule, args, {"A": a})
    np.testing.assert_allclose(found["C"], sums[:-2] + sums[1:-1] + sums[2:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("factor", "shape"), [(3, (1, 3)), (2, (1, 2)), (4, (2, 6)), (12, (2, 6)), (8, (2, 6)), (7, (2, 6))]
)
def test_a_part_of_fused_loops_needs_a_part_of_the_rows(factor: int, shape: tuple[int, int]) -> None:
    a = te.placeholder((20, 6), name="A")
    b = te.compute((20, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((20, 6), lambda i, j: b[i, j] * 2, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].fuse(*c.op.axis), factor=factor)
    s[b].compute_at(s[c], outer)
    (kernel,) = lower_schedule(s, [a, c]).kernels
    largest = max(part.buffer.shape for part in walk(kernel.body) if isinstance(part, Allocate))
    assert largest == shape
    x = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    np.testing.assert_array_equal(run_machine_code(s, [a, c], {"A": x})["C"], (x + 1) * 2)
