"""The isl proof is of the loops that run: write-backs, bounds, values, partial sums, empty extents, several outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune import te
from autotune.errors import LoweringError
from autotune.lower import lower_schedule, program_text, verify
from autotune.lower.examples import arguments, matmul, rows
from autotune.lower.ir import Allocate, For, If, Let, Load, LoopProgram, Seq, Stmt, Store
from autotune.lower.rewrite import rewrite_expr, with_parts
from autotune.lower.verify_isl import prove
from autotune.schedule import Schedule
from autotune.te.expr import Binary, Compare, Expr, const
from tests.schedule.mutations import with_body

islpy = pytest.importorskip("islpy")

Change = Callable[[Stmt], Stmt | None]


def changed(schedule: Schedule, change: Change) -> LoopProgram:
    """The program of a schedule, proved as it is, with statements replaced where ``change`` gives another."""
    program = lower_schedule(schedule, arguments(schedule), with_origins=True)
    assert prove(islpy, schedule, program).status == "proven"

    def go(stmt: Stmt) -> Stmt:
        other = change(stmt)
        return with_parts(stmt, go) if other is None else other

    kernels = tuple(with_body(k, go(k.body)) for k in program.kernels)
    assert program_text(replace(program, kernels=kernels)) != program_text(program)
    return replace(program, kernels=kernels)


def reason(schedule: Schedule, program: LoopProgram, **options: frozenset[str]) -> str:
    """Why a program is refused."""
    with pytest.raises(LoweringError) as refusal:
        prove(islpy, schedule, program, **options)  # type: ignore[arg-type]
    return str(refusal.value).removeprefix("verify: ").split(":")[0]


def without(part: str, buffer: str = "") -> Change:
    """Leave out the stores of a part of a computation."""

    def on(stmt: Stmt) -> Stmt | None:
        marked = isinstance(stmt, Store) and stmt.origin is not None and stmt.origin.part == part
        return Seq(()) if marked and buffer in stmt.buffer.name else None  # type: ignore[union-attr]

    return on


def stores(change: Callable[[Store], Stmt]) -> Change:
    """Change each store."""
    return lambda stmt: change(stmt) if isinstance(stmt, Store) else None


def loads(move: Callable[[Load], Expr]) -> Change:
    """Change each load of an input in the values of stores."""

    def node(expr: Expr) -> Expr | None:
        return move(expr) if isinstance(expr, Load) and expr.buffer.scope == "argument" else None

    return stores(lambda stmt: replace(stmt, value=rewrite_expr(stmt.value, node, {})))


def shifted(expr: Expr, by: int = 1) -> Expr:
    return Binary("+", expr, const(by), "int64")


def doubled(size: int = 8) -> Schedule:
    """Twice each element of A."""
    a = te.placeholder((size,), name="A")
    return te.create_schedule(te.compute((size,), lambda i: a[i] * 2.0, name="B").op)


def long_sum(terms: int = 300) -> Schedule:
    """A sum with partial sums, the last of them shorter."""
    return rows(3, terms)[0]


def blocked() -> Schedule:
    """A product that goes through memory between blocks of its reduction."""
    s, _, _, c = matmul(4, 12, 8)
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    ko, ki = s[c].split(k, 4)
    s[c].reorder(ko, i, j, ki)
    return s


def test_conditions_that_always_hold_may_be_left_out() -> None:
    """Those of values too, beside one of indices that decides."""
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: te.if_then_else(te.any(a[i] < 1.0, i >= 0), a[i], 2.0), name="B")
    assert verify(te.create_schedule(b.op), [a, b]).status == "proven"


def test_programs_with_two_outputs_are_proved() -> None:
    p = te.placeholder((5,), name="P")
    pair = te.compute((5,), lambda i: (p[i] + 1.0, p[i] * 2.0), name="T")
    s = te.create_schedule(pair[0].op)
    assert verify(s, [p, *pair]).status == "proven"


def test_outputs_that_are_stored_in_place_of_one_another_are_found() -> None:
    p = te.placeholder((5,), name="P")
    pair = te.compute((5,), lambda i: (p[i] + 1.0, p[i] * 2.0), name="T")
    s = te.create_schedule(pair[0].op)
    program = lower_schedule(s, [p, *pair], with_origins=True)

    def exchanged(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq) and all(isinstance(part, Store) for part in stmt.stmts):
            one, two = stmt.stmts
            assert isinstance(one, Store)
            assert isinstance(two, Store)
            return Seq((replace(one, value=two.value), replace(two, value=one.value)))
        return with_parts(stmt, exchanged)

    kernels = tuple(with_body(k, exchanged(k.body)) for k in program.kernels)
    assert reason(s, replace(program, kernels=kernels)) == "another value is stored than the expression names"


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_tensors_are_proved(shape: tuple[int, ...]) -> None:
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a[i] + 1.0, name="B")
    c = te.compute(shape, lambda *i: b[i] * 2.0, name="C")
    assert verify(te.create_schedule(c.op), [a, c]).status == "proven"


def test_empty_sums_are_proved() -> None:
    a = te.placeholder((3, 0), name="A")
    k = te.reduce_axis((0, 0), name="k")
    b = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    assert verify(s, [a, b]).status == "proven"
    assert reason(s, _dropped(s, [a, b])) == "a value is read that nothing stored before"


def _dropped(schedule: Schedule, args: list[te.Tensor]) -> LoopProgram:
    program = lower_schedule(schedule, args, with_origins=True)
    return replace(program, kernels=tuple(with_body(k, Seq(())) for k in program.kernels))


def test_partial_sums_are_proved_as_they_run() -> None:
    s = long_sum()
    args = arguments(s)
    marked = lower_schedule(s, args, with_origins=True)
    assert ".part" in program_text(marked)
    assert program_text(marked) == program_text(lower_schedule(s, args))
    assert prove(islpy, s, marked).status == "proven"


MISSED = {
    "fold": "a reduction is read before it is finished",
    "init": "a value is read that nothing stored before",
    "store": "a value is read that nothing stored before",
}


@pytest.mark.parametrize("part", MISSED)
def test_a_partial_sum_that_misses_a_step_is_found(part: str) -> None:
    s = long_sum()
    assert reason(s, changed(s, without(part, "part" if part == "init" else ""))) == MISSED[part]


def test_a_partial_sum_that_is_folded_twice_is_found() -> None:
    def twice(stmt: Stmt) -> Stmt | None:
        fold = isinstance(stmt, Store) and stmt.origin is not None and stmt.origin.part == "fold"
        return Seq((stmt, stmt)) if fold else None

    s = long_sum()
    assert reason(s, changed(s, twice)) == "a partial sum is added twice"


def test_a_write_back_between_blocks_that_is_left_out_is_found() -> None:
    """Each block starts from what was stored first."""
    s = blocked()
    assert reason(s, changed(s, without("store"))) == "a reduction is read elsewhere than where it was left"


def test_a_store_outside_of_its_buffer_is_found() -> None:
    s = doubled()
    beyond = stores(lambda stmt: Seq((stmt, replace(stmt, indices=(shifted(stmt.indices[0]),)))))
    assert reason(s, changed(s, beyond)) == "a statement stores outside of B, which is [8]"


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (8, "a statement reads outside of A, which is [8]"),
        (9, "more is added to a reduction than its domain has"),
    ],
)
def test_a_term_too_many_is_found(size: int, wanted: str) -> None:
    """It is the same with memory to read it from and without."""
    a = te.placeholder((size,), name="A")
    k = te.reduce_axis((0, 4), name="k")
    s = te.create_schedule(te.compute((5,), lambda i: te.sum(a[i + k], axis=k), name="B").op)

    def longer(stmt: Stmt) -> Stmt | None:
        return replace(stmt, extent=5) if isinstance(stmt, For) and stmt.var.name == "k" else None

    assert reason(s, changed(s, longer)) == wanted


@pytest.mark.parametrize("by", [-1, 1])
def test_a_read_of_another_element_of_an_input_is_found(by: int) -> None:
    a = te.placeholder((10,), name="A")
    s = te.create_schedule(te.compute((8,), lambda i: a[i + 1] * 2.0, name="B").op)
    moved = loads(lambda load: Load(load.buffer, (shifted(load.indices[0], by),)))
    assert reason(s, changed(s, moved)) == "another value is stored than the expression names"


def test_another_operation_is_found() -> None:
    def subtracted(stmt: Store) -> Stmt:
        assert isinstance(stmt.value, Binary)
        return replace(stmt, value=Binary("-", stmt.value.a, stmt.value.b, stmt.value.dtype))

    s = doubled()
    assert reason(s, changed(s, stores(subtracted))) == "another value is stored than the expression names"


def test_a_read_that_decides_nothing_is_inside_of_its_buffer() -> None:
    """``A[i] < 1 or true`` reads A all the same."""
    a = te.placeholder((8,), name="A")

    def value(i: Expr) -> Expr:
        always = i % 3 + i // 3 * 3 >= i
        return te.if_then_else(te.any(a[i] < 1.0, always), a[i], 2.0)

    s = te.create_schedule(te.compute((8,), value, name="B").op)

    def beyond(node: Expr) -> Expr | None:
        if isinstance(node, Compare) and isinstance(node.a, Load):
            return Compare(node.op, Load(node.a.buffer, (shifted(node.a.indices[0]),)), node.b)
        return None

    moved = stores(lambda stmt: replace(stmt, value=rewrite_expr(stmt.value, beyond, {})))
    assert reason(s, changed(s, moved)) == "a statement reads outside of A, which is [8]"


def test_an_input_that_is_stored_to_is_found() -> None:
    def first(stmt: Store) -> Stmt:
        source = next(n for n in (stmt.value.a, stmt.value.b) if isinstance(n, Load))  # type: ignore[attr-defined]
        return Seq((stmt, replace(stmt, buffer=source.buffer)))

    s = doubled()
    assert reason(s, changed(s, stores(first))) == "the input A is stored to"


def test_a_value_that_nothing_stores_at_all_is_found() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    program = lower_schedule(s, [a, c], with_origins=True)
    assert (
        reason(s, replace(program, kernels=program.kernels[1:]))
        == "a value is read that nothing stored before"
    )


def test_an_input_in_place_of_a_stage_is_found() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(te.compute((8,), lambda i: b[i] * 2.0, name="C").op)

    program = lower_schedule(s, arguments(s), with_origins=True)

    def from_input(node: Expr) -> Expr | None:
        stale = isinstance(node, Load) and node.buffer.name == "B"
        return Load(program.arguments[0], node.indices) if stale else None  # type: ignore[attr-defined]

    def unread(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer.name == "C":
            return replace(stmt, value=rewrite_expr(stmt.value, from_input, {}))
        return with_parts(stmt, unread)

    kernels = tuple(with_body(k, unread(k.body)) for k in program.kernels)
    assert reason(s, replace(program, kernels=kernels)) == "a value is read that nothing stored before"


def test_an_accumulator_that_iterations_share_is_found() -> None:
    """A parallel loop whose accumulator is allocated around it."""

    def outside(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, For) and isinstance(stmt.body, Allocate):
            return replace(stmt.body, body=replace(stmt, body=stmt.body.body))
        return None

    s = rows(3, 4)[0]
    s.stages[-1].parallel(s.stages[-1].leaf_iter_vars[0])
    program = lower_schedule(s, arguments(s), with_origins=True)
    kernels = tuple(with_body(k, outside(k.body) or k.body) for k in program.kernels)
    assert (
        reason(s, replace(program, kernels=kernels))
        == "a parallel loop stores where others of it read or store"
    )


def test_a_guard_that_is_left_out_is_found() -> None:
    s = doubled(7)
    s["B"].split(s["B"].op.axis[0], 4, tail="guard")
    program = changed(s, lambda stmt: stmt.then if isinstance(stmt, If) else None)
    assert reason(s, program) == "a statement stores outside of B, which is [7]"


def test_kernels_run_all_their_tiles() -> None:
    s = doubled()
    s["B"].parallel(s["B"].op.axis[0])
    program = lower_schedule(s, arguments(s), with_origins=True)
    short = replace(program, kernels=tuple(replace(k, tiles=k.tiles - 1) for k in program.kernels))
    assert reason(s, short) == "kernel B runs 7 tiles, its loop has 8"


def test_kernels_that_run_first_use_constants_only() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    program = lower_schedule(s, [a, c], constants=frozenset({"A"}), with_origins=True)
    assert program.kernels[0].hoisted
    assert prove(islpy, s, program, constants=frozenset({"A"})).status == "proven"
    assert reason(s, program) == "kernel B runs before the others, but uses A"


def test_names_of_values_are_computed_where_they_are_named() -> None:
    """A name for a value of the output, given before the output is stored."""
    p = te.placeholder((5,), name="P")
    pair = te.compute((5,), lambda i: (p[i] + 1.0, p[i] * 2.0), name="T")
    s = te.create_schedule(pair[0].op)
    program = lower_schedule(s, [p, *pair], with_origins=True)

    def earlier(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Let):
            return replace(stmt, value=Load(pair_buffer, (const(0),)))
        return with_parts(stmt, earlier)

    pair_buffer = program.outputs[0]
    kernels = tuple(with_body(k, earlier(k.body)) for k in program.kernels)
    assert reason(s, replace(program, kernels=kernels)) == "another value is stored than the expression names"


def test_kernels_say_what_they_touch() -> None:
    s = doubled()
    program = lower_schedule(s, arguments(s), with_origins=True)
    silent = replace(program, kernels=tuple(replace(k, reads=()) for k in program.kernels))
    assert reason(s, silent) == "kernel B touches other buffers than it says"
