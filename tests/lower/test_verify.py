"""The isl proof: it accepts what is lowered, and finds each kind of damage done to the loops."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autotune import te
from autotune.errors import LoweringError, MissingExtraError
from autotune.lower import lower_schedule, verify
from autotune.lower.examples import arguments, blur, chain, matmul, rows
from autotune.lower.ir import NEUTRAL, For, If, LoopProgram, Seq, Stmt, Store, walk
from autotune.lower.verify_isl import prove
from autotune.schedule import Schedule
from autotune.te.expr import Binary, const
from tests.schedule.mutations import with_body
from tests.schedule.test_further_primitives import WORKS, gpu_matmul
from tests.schedule.three_ways import random_case

islpy = pytest.importorskip("islpy")


@pytest.mark.parametrize("name", WORKS)
def test_primitives_are_proved(name: str) -> None:
    make, steps = WORKS[name]
    made = make()
    args = arguments(made[0])
    steps(made)
    assert verify(made[0], args).dependences > 0


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_random_programs_are_proved(seed: int) -> None:
    schedule, args = random_case(seed).schedule()
    assert verify(schedule, args).status in ("proven", "not affine", "too large", "ahead")


def passed_over() -> Schedule:
    """Sums of blocks that are flagged, of rows that are scaled for each block."""
    a, flags = te.placeholder((4, 8), name="A"), te.placeholder((4,), "int32", name="F")
    b = te.compute((4, 8), lambda i, j: a[i, j] * 2, name="B")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((8,), lambda j: te.sum(b[k, j], axis=k, where=flags[k] > 0), name="C")
    s = te.create_schedule(c)
    s[c].reorder(k, *s[c].op.axis)
    s[b].compute_at(s[c], k)
    return s


def test_iterations_that_change_nothing_are_left_out_and_proved() -> None:
    s = passed_over()
    program = lower_schedule(s, arguments(s))
    (branch,) = [part for kernel in program.kernels for part in walk(kernel.body) if isinstance(part, If)]
    assert branch.note == NEUTRAL
    assert [part.buffer.name for part in walk(branch.then) if isinstance(part, Store)] == ["B", "C"]
    assert verify(s, arguments(s)).status == "proven"


def ahead(*, reduces: bool) -> Schedule:
    """Tiles that overlap, of rows that are summed or scaled, computed ahead of their reader."""
    a, k = te.placeholder((20, 3), name="A"), te.reduce_axis((0, 3), name="k")
    if reduces:
        b = te.compute((20,), lambda i: te.sum(a[i, k], axis=k), name="B")
    else:
        b = te.compute((20,), lambda i: a[i, 0] * 2, name="B")
    c = te.compute((18,), lambda i: b[i] + b[i + 2], name="C")
    s = te.create_schedule(c)
    outer, _ = s[c].split(s[c].op.axis[0], factor=6)
    s[b].compute_at(s[c], outer)
    s[b].double_buffer()
    return s


def test_what_runs_ahead_is_proved_but_for_reductions() -> None:
    """An element of two tiles is summed for the second before it is read for the first."""
    s = ahead(reduces=False)
    assert verify(s, arguments(s)).status == "proven"
    s = ahead(reduces=True)
    verdict = verify(s, arguments(s))
    assert verdict.text() == (
        "ahead: reductions computed ahead of their readers are run by the interpreter, not judged here: B"
    )


def test_quotients_of_quotients() -> None:
    """The rows of three fused loops are quotients of a quotient, peeled at both ends."""
    s = te.create_schedule(te.compute((35, 2, 2), lambda i, j, k: te.cast(i + j + k, "float32"), name="T"))
    s["T"].peel(s["T"].fuse(*s["T"].op.axis), first=1, last=1)
    assert verify(s, arguments(s)).status == "proven"


def rewritten(stmt: Stmt, change: Callable[[Stmt], Stmt | None]) -> Stmt:
    """The statement with parts replaced where ``change`` gives another one."""
    other = change(stmt)
    if other is not None:
        return other
    if isinstance(stmt, Seq):
        return Seq(tuple(rewritten(part, change) for part in stmt.stmts))
    if isinstance(stmt, If):
        otherwise = None if stmt.otherwise is None else rewritten(stmt.otherwise, change)
        return If(stmt.cond, rewritten(stmt.then, change), otherwise)
    if hasattr(stmt, "body"):
        return replace(stmt, body=rewritten(stmt.body, change))
    return stmt


def damaged(schedule: Schedule, change: Callable[[Stmt], Stmt | None]) -> str:
    """Return the proof's finding on the program with its statements changed."""
    program = lower_schedule(schedule, arguments(schedule), with_origins=True)
    prove(islpy, schedule, program)  # sound before
    kernels = tuple(with_body(k, rewritten(k.body, change)) for k in program.kernels)
    return refused(schedule, replace(program, kernels=kernels))


def refused(schedule: Schedule, program: LoopProgram) -> str:
    with pytest.raises(LoweringError) as refusal:
        prove(islpy, schedule, program)
    return str(refusal.value).split(":")[1].strip()


def part(name: str, change: Callable[[Store], Stmt]) -> Callable[[Stmt], Stmt | None]:
    """Change the stores of one part of a computation."""

    def on(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.origin is not None and stmt.origin.part == name:
            return change(stmt)
        return None

    return on


def tiled() -> Schedule:
    s, _, _, c = matmul(4, 10, 6)
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    io, jo, ii, ji = s[c].tile(i, j, 2, 4)
    ko, ki = s[c].split(k, 4)
    s[c].reorder(io, ko, jo, ki, ii, ji)
    return s


def test_stages_out_of_order() -> None:
    s = chain(8)[0]
    program = lower_schedule(s, arguments(s), with_origins=True)
    swapped = replace(program, kernels=program.kernels[::-1])
    assert refused(s, swapped) == "a value is read that nothing stored before"


def test_a_missing_start_value() -> None:
    assert (
        damaged(rows(3, 4)[0], part("init", lambda _: Seq(())))
        == "a value is read that nothing stored before"
    )


def test_a_missing_update_of_the_remainder() -> None:
    s = tiled()
    seen: list[Store] = []

    def drop_last(stmt: Store) -> Stmt:
        seen.append(stmt)
        return Seq(()) if len(seen) == 2 else stmt

    assert damaged(s, part("update", drop_last)) == "a reduction is read before it is finished"


def test_a_loop_that_is_one_iteration_short() -> None:
    def shorter(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var.name == "k":
            return replace(stmt, extent=stmt.extent - 1)
        return None

    assert damaged(rows(3, 4)[0], shorter) == "a reduction is read before it is finished"


def test_an_update_made_twice() -> None:
    twice = part("update", lambda stmt: Seq((stmt, stmt)))
    s = tiled()
    program = lower_schedule(s, arguments(s), with_origins=True)
    kernels = tuple(with_body(k, rewritten(k.body, twice)) for k in program.kernels)
    assert "is added twice before it is read" in refused(s, replace(program, kernels=kernels))


def test_a_region_that_is_one_element_off() -> None:
    s, _, b, c = blur(8)
    outer, _ = s[c].split(s[c].op.axis[0], 4)
    s[b].compute_at(s[c], outer)

    def shifted(stmt: Store) -> Stmt:
        if stmt.origin is None or stmt.origin.stage != "B":
            return stmt
        moved = tuple(Binary("+", i, const(1), "int64") for i in stmt.origin.instance)
        return replace(stmt, origin=replace(stmt.origin, instance=moved))

    assert damaged(s, part("all", shifted)) == "another value is stored than the expression names"


def test_a_parallel_loop_with_a_dependence() -> None:
    """A whole reduction loop declared parallel: each iteration reads what another wrote."""
    s = rows(3, 4)[0]

    def parallel(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var.name == "k":
            return replace(stmt, kind="parallel")
        return None

    assert damaged(s, parallel) == "a parallel loop carries a dependence"


def test_an_output_that_is_not_whole() -> None:
    def shorter(stmt: Stmt) -> Stmt | None:
        return replace(stmt, extent=7) if isinstance(stmt, For) else None

    assert damaged(chain(8)[0], shorter) == "a value is read that nothing stored before"


def test_gathers_are_left_out_and_named() -> None:
    index = te.placeholder((5,), dtype="int32", name="index")
    a = te.placeholder((9,), name="A")
    b = te.compute((9,), lambda i: a[i] + 1, name="B")
    c = te.compute((5,), lambda i: b[index[i]], name="C")
    s = te.create_schedule(c)
    verdict = verify(s, [a, index, c])
    assert (
        verdict.text()
        == "not affine: 2 statements, 1 dependences; a read of B at an index that is not affine"
    )


def test_branches_on_values_are_not_judged() -> None:
    a = te.placeholder((5,), name="A")
    k = te.reduce_axis((0, 4), name="k")
    b = te.compute((5,), lambda i: te.sum(te.if_then_else(te.ceil(i) > 1, a[i], 1.0), axis=k), name="B")
    verdict = verify(te.create_schedule(b), [a, b])
    assert verdict.text() == "not affine: a branch on a condition that is not affine"


def test_barriers_are_not_judged() -> None:
    s, args = gpu_matmul()
    assert (
        verify(s, args).text().startswith("threads: threads that wait at barriers are run by the interpreter")
    )


def test_a_proof_that_is_too_long_says_so() -> None:
    s = tiled()
    program = lower_schedule(s, arguments(s), with_origins=True)
    verdict = prove(islpy, s, program, limit=1000)
    assert verdict.text() == "too large: 6 stores, not judged within 1000 steps of isl"


def test_without_islpy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "islpy", None)
    s: Any = chain(8)[0]
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune-compiler\[verify\]'"):
        verify(s, arguments(s))


def test_a_copy_made_before_the_last_update() -> None:
    """Start value, copy to memory, then the updates: the output holds the start value."""

    def too_early(stmt: Stmt) -> Stmt | None:
        parts = stmt.stmts if isinstance(stmt, Seq) else ()
        if len(parts) == 3 and isinstance(parts[2], Store):
            return Seq((parts[0], parts[2], parts[1]))
        return None

    wanted = "a reduction is read elsewhere than where it was left"
    assert damaged(rows(3, 4)[0], too_early) == wanted
