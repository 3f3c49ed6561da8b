"""The remainder of a split, peeled, overlapped or guarded: the loops, and what they compute."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from autotune import te
from autotune.codegen.interpreter import run_program
from autotune.lower import lower_schedule, program_text
from autotune.lower.ir import For, If, Let, Seq, Stmt, Store, expressions, nodes, walk
from autotune.schedule import Schedule
from autotune.te.expr import Select
from autotune.te.printer import expr_text

Change = Callable[[Schedule, te.Tensor], object]


def plus_one(shape: tuple[int, ...]) -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder(shape, name="a")
    return a, te.compute(shape, lambda *at: a[at] + 1.0, name="c")


def shown(stmt: Stmt) -> str:
    """A loop as "i<4 { ... }", a store as its indices."""
    if isinstance(stmt, Seq):
        return " ".join(shown(part) for part in stmt.stmts)
    if isinstance(stmt, For):
        return f"{stmt.var.name}<{stmt.extent} {{ {shown(stmt.body)} }}"
    if isinstance(stmt, Let):
        return f"{stmt.var.name} := {expr_text(stmt.value)}; {shown(stmt.body)}"
    if isinstance(stmt, If):
        other = f" else {{ {shown(stmt.otherwise)} }}" if stmt.otherwise is not None else ""
        return f"if {expr_text(stmt.cond)} {{ {shown(stmt.then)} }}{other}"
    assert isinstance(stmt, Store)
    return f"[{', '.join(map(expr_text, stmt.indices))}]"


def loops(shape: tuple[int, ...], change: Change) -> str:
    """The loops of a schedule; axes i, j, the loops of a split i.o and i.i."""
    a, c = plus_one(shape)
    s = te.create_schedule(c.op)
    change(s, c)
    (kernel,) = lower_schedule(s, [a, c]).kernels
    return (
        shown(kernel.body)
        .replace(".outer", ".o")
        .replace(".inner", ".i")
        .replace("i0", "i")
        .replace("i1", "j")
    )


def split(factor: int, tail: str, inner_first: bool = False) -> Change:
    def change(s: Schedule, c: te.Tensor) -> None:
        outer, inner = s[c].split(s[c].op.axis[0], factor, tail=tail)
        if inner_first:
            s[c].reorder(inner, outer)

    return change


def split_outer(s: Schedule, c: te.Tensor) -> None:
    s[c].split(s[c].split(s[c].op.axis[0], 4)[0], 2)


def split_inner(s: Schedule, c: te.Tensor) -> None:
    s[c].split(s[c].split(s[c].op.axis[0], 8)[1], 3)


def fused(s: Schedule, c: te.Tensor) -> None:
    s[c].fuse(*s[c].op.axis)


def fused_and_split(s: Schedule, c: te.Tensor) -> None:
    s[c].split(s[c].fuse(*s[c].op.axis), 8)


def overlapped_after_fusing(s: Schedule, c: te.Tensor) -> None:
    s[c].split(s[c].fuse(*s[c].op.axis), 8, tail="overlap")


def tiles(tail: str) -> Change:
    def change(s: Schedule, c: te.Tensor) -> None:
        i, j = s[c].op.axis
        io, ii = s[c].split(i, 4, tail=tail)
        jo, ji = s[c].split(j, 4, tail=tail)
        s[c].reorder(io, jo, ii, ji)
        s[c].fuse(io, jo)

    return change


def parts(s: Schedule, c: te.Tensor) -> None:
    s[c].split(s[c].op.axis[0], nparts=3)


def overlap_twice(s: Schedule, c: te.Tensor) -> None:
    outer, _ = s[c].split(s[c].op.axis[0], 8, tail="overlap")
    s[c].split(outer, 2, tail="overlap")


def guard_outer(s: Schedule, c: te.Tensor) -> None:
    outer, _ = s[c].split(s[c].op.axis[0], 4, tail="guard")
    s[c].split(outer, 2, tail="guard")


BUILDS: dict[str, tuple[tuple[int, ...], Change]] = {
    "peel": ((11,), split(4, "peel")),
    "peel, inner first": ((11,), split(4, "peel", True)),
    "overlap": ((11,), split(4, "overlap")),
    "overlap, inner first": ((11,), split(4, "overlap", True)),
    "guard": ((11,), split(4, "guard")),
    "peel 12": ((12,), split(4, "peel")),
    "overlap 12": ((12,), split(4, "overlap")),
    "guard 12": ((12,), split(4, "guard")),
    "guard 12, inner first": ((12,), split(4, "guard", True)),
    "overlap 3": ((3,), split(4, "overlap")),
    "overlap 4": ((4,), split(4, "overlap")),
    "overlap 5": ((5,), split(4, "overlap")),
    "peel 5": ((5,), split(4, "peel")),
    "outer split again": ((22,), split_outer),
    "outer split again, 19": ((19,), split_outer),
    "inner split again": ((22,), split_inner),
    "fused": ((5, 7), fused),
    "fused, one column": ((5, 1), fused),
    "fused, one row": ((1, 5), fused),
    "fused and split": ((5, 7), fused_and_split),
    "fused and split, overlap": ((5, 7), overlapped_after_fusing),
    "tiles": ((10, 7), tiles("peel")),
    "overlapping tiles": ((10, 7), tiles("overlap")),
    "parts": ((11,), parts),
    "overlap twice": ((43,), overlap_twice),
    "guard twice": ((22,), guard_outer),
}
EXPECTED = {
    "peel": "i.o<2 { i.i<4 { [i.o * 4 + i.i] } } i.i<3 { [i.i + 8] }",
    "peel, inner first": "i.i<4 { i.o<3 { if i.o * 4 + i.i < 11 { [i.o * 4 + i.i] } } }",
    "overlap": "i.o<3 { i.base := min(i.o * 4, 7); i.i<4 { [i.base + i.i] } }",
    "overlap, inner first": "i.i<4 { i.o<3 { if i.o * 4 + i.i < 11 { [i.o * 4 + i.i] } } }",
    "guard": "i.o<3 { i.i<4 { if i.o * 4 + i.i < 11 { [i.o * 4 + i.i] } } }",
    "peel 12": "i.o<3 { i.i<4 { [i.o * 4 + i.i] } }",
    "overlap 12": "i.o<3 { i.i<4 { [i.o * 4 + i.i] } }",
    "guard 12": "i.o<3 { i.i<4 { [i.o * 4 + i.i] } }",
    "guard 12, inner first": "i.i<4 { i.o<3 { [i.o * 4 + i.i] } }",
    "overlap 3": "i.i<3 { [i.i] }",
    "overlap 4": "i.i<4 { [i.i] }",
    "overlap 5": "i.o<2 { i.base := min(i.o * 4, 1); i.i<4 { [i.base + i.i] } }",
    "peel 5": "i.i<4 { [i.i] } [4]",
    "outer split again": (
        "i.o.o<3 { i.o.i<2 { i.o := i.o.o * 2 + i.o.i; if i.o < 5 { i.i<4 { [i.o * 4 + i.i] } } "
        "else { i.i<2 { [i.i + 20] } } } }"
    ),
    "outer split again, 19": "i.o.o<2 { i.o.i<2 { i.i<4 { [i.o.o * 8 + i.o.i * 4 + i.i] } } } i.i<3 { [i.i + 16] }",
    "inner split again": (
        "i.o<2 { i.i.o<2 { i.i.i<3 { [i.o * 8 + i.i.o * 3 + i.i.i] } } i.i.i<2 { [i.o * 8 + i.i.i"
        " + 6] } } i.i.o<2 { i.i.i<3 { [i.i.o * 3 + i.i.i + 16] } }"
    ),
    "fused": "i.j.fused<35 { i := i.j.fused // 7; j := i.j.fused % 7; [i, j] }",
    "fused, one column": "i.j.fused<5 { [i.j.fused, 0] }",
    "fused, one row": "i.j.fused<5 { [0, i.j.fused] }",
    "fused and split": (
        "i.j.fused.o<4 { i.j.fused.i<8 { i := (i.j.fused.o * 8 + i.j.fused.i) // 7; j := "
        "(i.j.fused.o * 8 + i.j.fused.i) % 7; [i, j] } } i.j.fused.i<3 { [4, i.j.fused.i + 4] }"
    ),
    "fused and split, overlap": (
        "i.j.fused.o<5 { i.j.fused.base := min(i.j.fused.o * 8, 27); i.j.fused.i<8 { i := "
        "(i.j.fused.base + i.j.fused.i) // 7; j := (i.j.fused.base + i.j.fused.i) % 7; [i, j] } }"
    ),
    "tiles": (
        "i.o.j.o.fused<6 { i.o := i.o.j.o.fused // 2; j.o := i.o.j.o.fused % 2; if j.o < 1 { if "
        "i.o < 2 { i.i<4 { j.i<4 { [i.o * 4 + i.i, j.o * 4 + j.i] } } } else { i.i<2 { j.i<4 { "
        "[i.i + 8, j.o * 4 + j.i] } } } } else { if i.o < 2 { i.i<4 { j.i<3 { [i.o * 4 + i.i, j.i"
        " + 4] } } } else { i.i<2 { j.i<3 { [i.i + 8, j.i + 4] } } } } }"
    ),
    "overlapping tiles": (
        "i.o.j.o.fused<6 { i.o := i.o.j.o.fused // 2; j.o := i.o.j.o.fused % 2; j.base := min(j.o"
        " * 4, 3); i.base := min(i.o * 4, 6); i.i<4 { j.i<4 { [i.base + i.i, j.base + j.i] } } }"
    ),
    "parts": "i.o<2 { i.i<4 { [i.o * 4 + i.i] } } i.i<3 { [i.i + 8] }",
    "overlap twice": (
        "i.o.o<3 { i.o.i<2 { i.base := min(i.o.o * 16 + i.o.i * 8, 35); i.i<8 { [i.base + i.i] } } }"
    ),
    "guard twice": (
        "i.o.o<3 { i.o.i<2 { i.i<4 { if i.o.o * 8 + i.o.i * 4 + i.i < 22 { [i.o.o * 8 + i.o.i * 4"
        " + i.i] } } } }"
    ),
}
"""The loops of each of them: the tests on what is left are where they cost least, or are not there."""


@pytest.mark.parametrize("name", BUILDS)
def test_loops_of_a_remainder(name: str) -> None:
    assert loops(*BUILDS[name]) == EXPECTED[name]


def test_rows_are_not_overlapped_inside_of_a_reduction_where_they_would_be_added_twice() -> None:
    a = te.placeholder((11, 3), name="a")
    k = te.reduce_axis((0, 3), name="k")
    c = te.compute((11,), lambda i: te.sum(a[i, k], axis=k), name="c")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].op.axis[0], 4, tail="overlap")
    s[c].reorder(k, outer, inner)
    values, found = np.arange(33, dtype=np.float32).reshape(11, 3), np.zeros(11, np.float32)
    program = lower_schedule(s, [a, c])
    run_program(program, {"a": values, "c": found})
    assert found.tolist() == values.sum(axis=1).tolist()
    assert ":=" not in shown(program.kernels[0].body)  # peeled


@pytest.mark.parametrize("bound", [3, 4, 7, 8, 9])
def test_the_loops_without_the_remainder_know_how_far_they_reach(bound: int) -> None:
    a = te.placeholder((11,), name="a")
    c = te.compute((11,), lambda i: te.if_then_else(i < bound, a[i], 0.0), name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].op.axis[0], 4)
    s[c].parallel(outer)  # so that it is not cut where the condition changes
    program = lower_schedule(s, [a, c])
    values, found = np.arange(1, 12, dtype=np.float32), np.zeros(11, np.float32)
    run_program(program, {"a": values, "c": found})
    assert found.tolist() == [value if i < bound else 0.0 for i, value in enumerate(values)]
    (branch,) = [part for part in walk(program.kernels[0].body) if isinstance(part, If)][:1]
    tests = [node for part in walk(branch.then) for node in nodes(*expressions(part))]
    assert any(isinstance(node, Select) for node in tests) == (bound < 8)


def test_a_sum_of_nothing_over_fused_loops() -> None:
    for extents in ((3, 0), (0, 3)):
        a = te.placeholder((2,), name="a")
        k, m = (te.reduce_axis((0, extent), name=name) for extent, name in zip(extents, "km", strict=True))
        c = te.compute((2,), lambda i: te.sum(a[i] + 1.0, axis=[k, m]), name="c")  # noqa: B023
        s = te.create_schedule(c.op)
        s[c].fuse(k, m)
        found = np.ones(2, np.float32)
        run_program(lower_schedule(s, [a, c]), {"a": np.ones(2, np.float32), "c": found})
        assert found.tolist() == [0.0, 0.0]


def test_a_loop_of_one_iteration_is_known_to_a_stage_attached_outside_of_it() -> None:
    a = te.placeholder((2, 7), name="a")
    b = te.compute((2, 7), lambda *at: a[at] * 2.0, name="b")
    c = te.compute((2, 7), lambda *at: b[at] + 1.0, name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].fuse(*s[c].op.axis), 1)
    s[b].compute_at(s[c], outer)
    text = program_text(lower_schedule(s, [a, c]))
    assert "allocate b: float32[1, 1]" in text
    assert "b[0, 0] = a[i0, i1] * 2f" in text
    assert "c[i0, i1] = b[0, 0] + 1f" in text


def reschedule(s: Schedule, c: te.Tensor, chosen: random.Random) -> None:
    """Random splits, fusions and orders of a stage's loops."""
    for _ in range(chosen.randrange(1, 6)):
        leaves = list(s[c].leaf_iter_vars)
        kind = chosen.randrange(3)
        if kind == 0:
            loop = chosen.choice(leaves)
            tail = chosen.choice(["peel", "guard"] if loop.kind == "reduce" else ["peel", "overlap", "guard"])
            s[c].split(loop, chosen.randrange(2, 6), tail=tail)
        elif kind == 1:
            pairs = [pair for pair in pairwise(leaves) if pair[0].kind == pair[1].kind]
            if pairs:
                s[c].fuse(*chosen.choice(pairs))
        else:
            chosen.shuffle(leaves)
            s[c].reorder(*leaves)


@pytest.mark.parametrize("seed", range(100))
def test_random_splits_fusions_and_orders_compute_the_same(seed: int) -> None:
    chosen = random.Random(seed)
    n, m, depth = (chosen.choice([0, 1, 2, 3, 5, 7]) for _ in range(3))
    a = te.placeholder((n, depth), name="a")
    b = te.placeholder((depth, m), name="b")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = te.create_schedule(c.op)
    reschedule(s, c, chosen)
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((n, depth), (depth, m)))
    found = np.full((n, m), np.nan, np.float32)
    run_program(lower_schedule(s, [a, b, c]), {"a": x, "b": y, "c": found})
    np.testing.assert_array_equal(found, x @ y)
