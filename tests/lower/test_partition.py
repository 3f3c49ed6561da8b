"""Loops that are cut where their conditions change: the bounds, no condition left inside, and the same stores."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator
from typing import Any

import pytest

from autotune.lower.ir import (
    Allocate,
    Buffer,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    expressions,
    nodes,
    sequence,
    walk,
)
from autotune.lower.partition import partition
from autotune.lower.printer import stmt_text
from autotune.te.expr import Binary, Compare, Const, Expr, Select, Var, binary, const, select

I, J, N, K = Var("i"), Var("j"), Var("n"), Var("k")  # noqa: E741
X = Buffer("x", (64,), "float32", "argument")
Y = Buffer("y", (64, 64), "float32", "argument")
T = Buffer("t", (64,), "float32", "local")
ZERO, ONE = const(0.0, "float32"), const(1.0, "float32")
OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def value_of(expr: Expr, values: dict[Any, Any]) -> Any:
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, Select):
        return value_of(expr.a if value_of(expr.cond, values) else expr.b, values)
    if isinstance(expr, Load):
        return values.get((expr.buffer, *(value_of(i, values) for i in expr.indices)), 0.0)
    assert isinstance(expr, Binary | Compare)
    return OPERATIONS[expr.op](value_of(expr.a, values), value_of(expr.b, values))


def stores(stmt: Stmt, values: dict[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Run loops: all stores to memory from outside, in order."""
    if isinstance(stmt, Seq):
        for part in stmt.stmts:
            yield from stores(part, values)
    elif isinstance(stmt, For):
        for number in range(stmt.extent):
            values[stmt.var] = number
            yield from stores(stmt.body, values)
    elif isinstance(stmt, If):
        if value_of(stmt.cond, values):
            yield from stores(stmt.then, values)
        elif stmt.otherwise is not None:
            yield from stores(stmt.otherwise, values)
    elif isinstance(stmt, Let):
        values[stmt.var] = value_of(stmt.value, values)
        yield from stores(stmt.body, values)
    elif isinstance(stmt, Allocate):
        for place in [key for key in values if isinstance(key, tuple) and key[0] is stmt.buffer]:
            del values[place]
        yield from stores(stmt.body, values)
    else:
        assert isinstance(stmt, Store)
        place = (stmt.buffer, *(value_of(i, values) for i in stmt.indices))
        values[place] = value_of(stmt.value, values)
        if stmt.buffer.scope == "argument":
            yield (*place, values[place])


def loop(var: Var, extent: int, body: Stmt, kind: str = "serial") -> For:
    return For(var, extent, kind, body)


def put(index: Expr, value: Expr, buffer: Buffer = X) -> Store:
    return Store(buffer, (index,), value)


def guarded(cond: Expr, otherwise: bool = True) -> If:
    """x[i] = 1, or 0 where the condition does not hold."""
    return If(cond, put(I, ONE), put(I, ZERO) if otherwise else None)


def text(stmt: Stmt) -> str:
    """Loops in one line, without braces."""
    return " ".join(stmt_text(partition(stmt)).replace("{", ":").replace("}", ";").split())


def ends(stmt: Stmt) -> list[int]:
    """Return the ends of a loop's parts, in iterations of it."""
    done = partition(stmt)
    parts = done.stmts if isinstance(done, Seq) else (done,)
    assert not any(isinstance(part, If) for part in walk(done))
    found, total = [], 0
    for part in parts:
        total += part.extent if isinstance(part, For) else 1
        found.append(total)
    return found


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_a_loop_is_cut_exactly_where_its_condition_changes(op: str, sign: int) -> None:
    for at in range(-3, 13):
        left = I if sign == 1 else binary("-", const(0), I)
        cond = Compare(op, left, const(sign * at))
        made = loop(I, 10, guarded(cond))
        found = [OPERATIONS[op](sign * i, sign * at) for i in range(10)]
        changes = [i for i in range(1, 10) if found[i] != found[i - 1]]
        if changes:
            assert ends(made) == [*changes, 10]
            assert list(stores(partition(made), {})) == list(stores(made, {}))
        else:
            assert partition(made) is made


def test_padding_becomes_copies_and_fills() -> None:
    inside = Binary("and", Compare(">=", I, const(2)), Compare("<", I, const(8)), "bool")
    padded = loop(I, 10, Store(Y, (I, const(0)), select(inside, Load(X, (I - 2,)), ZERO)))
    assert text(padded) == (
        "for (i, 0, 2) : y[i, 0] = 0f ; for (i, 0, 6) : y[i + 2, 0] = x[i] ; for (i, 0, 2) : y[i + 8, 0] = 0f ;"
    ).replace("x[i]", "x[i + 2 - 2]")


def test_a_part_of_one_iteration_is_no_loop() -> None:
    assert text(loop(I, 4, guarded(I < 1))) == "x[0] = 1f for (i, 0, 3) : x[i + 1] = 0f ;"
    assert text(loop(I, 4, guarded(I < 3))) == "for (i, 0, 3) : x[i] = 1f ; x[3] = 0f"
    assert text(loop(I, 4, guarded(I < 3, otherwise=False))) == "for (i, 0, 3) : x[i] = 1f ;"


def test_a_part_keeps_kind_and_note_of_its_loop() -> None:
    done = partition(For(I, 9, "serial", guarded(I < 4), "a note"))
    assert isinstance(done, Seq)
    assert [(p.extent, p.kind, p.note) for p in done.stmts if isinstance(p, For)] == [
        (4, "serial", "a note"),
        (5, "serial", "a note"),
    ]


@pytest.mark.parametrize("kind", ["parallel", "vectorized", "unrolled"])
def test_only_serial_loops_are_cut(kind: str) -> None:
    made = loop(I, 9, guarded(I < 4), kind)
    assert partition(made) is made


def test_conditions_that_are_no_bounds_of_the_loop_do_not_cut_it() -> None:
    for cond in (
        Compare("==", I, const(4)),
        Compare("!=", I, const(4)),
        Compare("<", I * 2, const(8)),
        Compare("<", I + Load(Buffer("m", (9,), "int64", "argument"), (I,)), const(8)),
        Compare("<", Load(X, (I,)), ONE),
    ):
        made = loop(I, 9, guarded(cond))
        assert partition(made) is made


def test_four_cuts_are_made_and_no_more() -> None:
    def bounds(count: int) -> Stmt:
        value: Expr = ONE
        for at in range(1, count + 1):
            value = select(Compare("<", I, const(2 * at)), const(float(at), "float32"), value)
        return loop(I, 20, put(I, value))

    most = partition(bounds(4))
    assert isinstance(most, Seq)
    assert [part.extent for part in most.stmts if isinstance(part, For)] == [2] * 4 + [12]
    more = bounds(5)
    assert partition(more) is more


def test_bodies_of_more_than_twelve_statements_are_not_copied() -> None:
    def body(count: int) -> Stmt:
        """So many statements, itself included."""
        return Seq((If(I < 4, put(I, ONE), None), *[put(I, ZERO)] * (count - 3)))

    assert isinstance(partition(loop(I, 9, body(12))), Seq)
    larger = loop(I, 9, body(13))
    assert partition(larger) is larger


def test_each_side_of_and_and_or_cuts() -> None:
    for op in ("and", "or"):
        cond = Binary(op, I < 3, Binary(op, Compare(">=", I, const(6)), I < 8, "bool"), "bool")
        made = loop(I, 10, guarded(cond))
        done = partition(made)
        assert list(stores(done, {})) == list(stores(made, {}))
        assert not any(isinstance(part, If) for part in walk(done))
    assert ends(loop(I, 10, guarded(Binary("or", I < 3, I >= 6, "bool")))) == [3, 6, 10]


def test_a_bound_beside_a_condition_of_another_kind_cuts() -> None:
    other = Compare("==", I, const(7))
    for pair in ((other, I < 4), (I < 4, other)):
        done = partition(loop(I, 9, guarded(Binary("or", *pair, "bool"), otherwise=False)))
        assert isinstance(done, Seq)
        assert [part.extent for part in done.stmts if isinstance(part, For)] == [4, 5]


def test_invariant_conditions_leave_a_loop() -> None:
    assert text(loop(I, 4, guarded(N < 2))) == (
        "if (n < 2) : for (i, 0, 4) : x[i] = 1f ; ; else : for (i, 0, 4) : x[i] = 0f ; ;"
    )
    assert text(loop(I, 4, guarded(N < 2, otherwise=False))) == "if (n < 2) : for (i, 0, 4) : x[i] = 1f ; ;"
    chosen = loop(I, 4, put(I, select(N < 2, ONE, ZERO)))
    assert list(stores(partition(chosen), {N: 1})) == [(X, i, 1.0) for i in range(4)]
    assert isinstance(partition(chosen), If)
    vector = partition(loop(I, 4, guarded(N < 2), "vectorized"))
    assert isinstance(vector, If)
    assert isinstance(vector.then, For)
    assert vector.then.kind == "vectorized"


def test_invariant_conditions_leave_each_part_of_a_cut_loop() -> None:
    made = loop(I, 9, If(I < 4, put(I, select(N < 2, ONE, ZERO)), put(I, select(K < 2, ONE, ZERO))))
    done = partition(made)
    assert isinstance(done, Seq)
    assert [part.cond.a for part in done.stmts if isinstance(part, If)] == [N, K]  # type: ignore[attr-defined]


def test_the_first_invariant_condition_leaves_and_others_stay() -> None:
    body = sequence([guarded(Compare("==", I, const(2))), guarded(N < 2), guarded(K < 3)])
    done = partition(loop(I, 4, body))
    assert isinstance(done, If)
    assert done.cond is body.stmts[1].cond  # type: ignore[attr-defined]
    for n in (1, 3):
        for k in (2, 4):
            assert list(stores(done, {N: n, K: k})) == list(stores(loop(I, 4, body), {N: n, K: k}))


def test_conditions_of_what_a_loop_changes_stay_in_it() -> None:
    memory = loop(I, 4, guarded(Compare("<", Load(X, (const(0),)), ONE)))
    assert partition(memory) is memory
    named = loop(I, 4, Let(K, Load(Buffer("m", (9,), "int64", "argument"), (I,)), guarded(K < 2)))
    assert partition(named) is named
    nested = loop(
        I, 4, loop(J, 4, put(I, select(Compare("==", J, I), ONE, ZERO)), "vectorized"), "vectorized"
    )
    assert partition(nested) is nested
    other = loop(
        I, 4, loop(J, 4, put(I, select(Compare("<", Var("m") + J, const(2)), ONE, ZERO)), "vectorized")
    )
    assert partition(other) is other


def test_an_inner_loop_is_cut_and_its_condition_on_the_outer_one_moves_out() -> None:
    inside = Binary("and", Compare(">=", I, const(1)), Compare("<", J, const(3)), "bool")
    body = Store(Y, (I, J), select(inside, ONE, ZERO))
    done = partition(loop(I, 3, loop(J, 4, body)))
    assert list(stores(done, {})) == list(stores(loop(I, 3, loop(J, 4, body)), {}))
    assert not any(isinstance(node, Select) for part in walk(done) for node in nodes(*expressions(part)))


def test_parallel_loops_stay_whole_and_what_is_in_them_is_cut() -> None:
    done = partition(loop(N, 2, loop(I, 9, guarded(I < 4)), "parallel"))
    assert isinstance(done, For)
    assert (done.kind, done.extent) == ("parallel", 2)
    assert isinstance(done.body, Seq)
    assert [part.extent for part in done.body.stmts if isinstance(part, For)] == [4, 5]


def test_the_loops_of_an_intrinsic_stay() -> None:
    call = Intrinsic("dot", (Load(X, (const(0),)),), loop(I, 9, guarded(I < 4)))
    assert partition(call) is call


def produced(reads: Expr) -> Stmt:
    """A local copy of x, of which ``reads`` stores something."""
    return Allocate(T, sequence([loop(J, 4, put(J, Load(X, (J,)), T)), Store(Y, (I, const(0)), reads)]))


def test_a_part_that_reads_no_local_buffer_does_not_fill_one() -> None:
    made = loop(I, 9, produced(select(I < 4, Load(T, (const(0),)), ZERO)))
    done = partition(made)
    assert isinstance(done, Seq)
    first, second = done.stmts
    assert [sum(isinstance(p, Allocate) for p in walk(part)) for part in (first, second)] == [1, 0]
    assert {p.buffer for p in walk(second) if isinstance(p, Store)} == {Y}
    assert sum(isinstance(p, For) for p in walk(second)) == 1
    assert list(stores(done, {})) == list(stores(made, {}))


def test_a_local_buffer_that_nothing_reads_goes_and_what_only_it_read_too() -> None:
    other = Buffer("u", (64,), "float32", "local")
    chain = Allocate(
        T,
        Allocate(
            other,
            sequence(
                [
                    loop(J, 4, put(J, Load(X, (J,)), T)),
                    loop(J, 4, If(J < 9 + N, put(J, Load(T, (J,)), other), None)),
                    put(const(0), ONE),
                ]
            ),
        ),
    )
    assert text(chain) == "x[0] = 1f"
    kept = Allocate(T, sequence([put(const(0), ONE, T), put(const(1), Load(T, (const(0),)))]))
    assert partition(kept) is kept


def test_branches_that_become_empty_go() -> None:
    cond = Compare("==", N, const(2))
    fill, use = put(const(0), ONE, T), put(const(0), ONE)
    both = Allocate(T, sequence([If(cond, fill, fill), use]))
    assert text(both) == "x[0] = 1f"
    one = Allocate(T, sequence([If(cond, use, fill), use]))
    assert text(one) == "if (n == 2) : x[0] = 1f ; x[0] = 1f"
    (branch, _) = partition(one).stmts  # type: ignore[attr-defined]
    assert branch.otherwise is None
    left = Allocate(T, sequence([If(cond, fill, use), use]))
    for n in (1, 2):
        assert len(list(stores(partition(left), {N: n}))) == (2 if n == 1 else 1)


def random_loops(chosen: random.Random, depth: int, open_: tuple[Var, ...], local: bool = False) -> Stmt:
    """Loops with branches and padding on what is open, statements in between, and perhaps a local buffer."""

    def index() -> Expr:
        var = chosen.choice([*open_, N])
        sign = chosen.choice([1, 1, -1])
        return (var if sign == 1 else binary("-", const(chosen.randrange(4)), var)) + chosen.randrange(-2, 3)

    def cond() -> Expr:
        made: Expr = Compare(chosen.choice(["<", "<=", ">", ">=", "==", "!="]), index(), index())
        if chosen.random() < 0.6:
            made = Compare(chosen.choice(["<", "<=", ">", ">="]), index(), const(chosen.randrange(-1, 8)))
        if chosen.random() < 0.3:
            made = Binary(chosen.choice(["and", "or"]), made, cond(), "bool")
        return made

    if depth == 0:
        number = const(float(chosen.randrange(9)), "float32")
        value = select(cond(), Load(chosen.choice([X, T]) if local else X, (index(),)), number)
        return put(index(), value, chosen.choice([X, X, T]) if local else X)
    kind = chosen.randrange(5)
    if kind == 0:
        return sequence([random_loops(chosen, depth - 1, open_, local) for _ in range(2)])
    if kind == 1:
        other = random_loops(chosen, depth - 1, open_, local) if chosen.random() < 0.5 else None
        return If(cond(), random_loops(chosen, depth - 1, open_, local), other)
    if kind == 2 and not local:
        return Allocate(T, random_loops(chosen, depth - 1, open_, True))
    var = Var(f"v{len(open_)}")
    return loop(
        var,
        chosen.randrange(1, 8),
        random_loops(chosen, depth - 1, (*open_, var), local),
        chosen.choice(["serial", "serial", "unrolled", "parallel"]),
    )


def test_random_loops_store_the_same_in_the_same_order() -> None:
    changed = 0
    for seed in range(200):
        chosen = random.Random(seed)
        made = random_loops(chosen, 5, ())
        done = partition(made)
        changed += done is not made
        for n in (0, 3):
            assert list(stores(done, {N: n})) == list(stores(made, {N: n})), seed
    assert changed > 50
