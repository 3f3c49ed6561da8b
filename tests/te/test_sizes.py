"""``te.var``: sizes that a call brings, and the functions that compile for each combination of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import InputError, LoweringError, ScheduleError
from autotune.functions.sized import KEPT, SizedFunction


def product() -> tuple[te.Tensor, ...]:
    m, n = te.var("m"), te.var("n")
    a, b = te.placeholder((m, n), name="A"), te.placeholder((n, m * 4), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m, m * 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return a, b, c, te.compute(c.shape, lambda i, j: c[i, j] + n, name="D")


def built() -> SizedFunction:
    a, b, c, d = product()
    s = te.create_schedule(d.op)
    _, yo, _, yi = s[d].tile(*d.op.axis, 6, 16)
    s[d].vectorize(yi)
    s[c].compute_at(s[d], yo)
    function = autotune.build(s, [a, b, d], threads=1)
    assert isinstance(function, SizedFunction)
    return function


def arrays(m: int, n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(m + n)
    a, b = rng.integers(-3, 4, (m, n)), rng.integers(-3, 4, (n, 4 * m))
    return a.astype("float32"), b.astype("float32"), np.zeros((m, 4 * m), "float32")


def test_a_function_compiles_for_the_sizes_of_each_call() -> None:
    function = built()
    for m, n in ((7, 9), (1, 1), (16, 32), (0, 3)):
        a, b, d = arrays(m, n)
        function(a, b, d)
        np.testing.assert_array_equal(d, a @ b + n)
    assert function.specialized(*arrays(7, 9)) is function.specialized(*arrays(7, 9))
    assert function.specialized(*arrays(7, 9)) is not function.specialized(*arrays(9, 7))


def test_the_latest_functions_are_kept() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    function = autotune.build(te.create_schedule(b.op), [a, b], threads=1)
    made = [function.specialized(np.zeros(1, "float32"), np.zeros(1, "float32"))]
    for extent in range(2, KEPT + 2):
        made.append(function.specialized(*[np.zeros(extent, "float32")] * 2))
    assert function.specialized(*[np.zeros(KEPT + 1, "float32")] * 2) is made[-1]
    assert function.specialized(*[np.zeros(1, "float32")] * 2) is not made[0]


def test_evaluation_takes_the_sizes_of_the_inputs() -> None:
    a, b, _, d = product()
    x, y, _ = arrays(3, 5)
    np.testing.assert_array_equal(te.evaluate([d], {a: x, b: y})[0], x @ y + 5)


def test_shapes_and_domains_are_expressions() -> None:
    a, _, c, _ = product()
    m, n = a.shape
    assert c.op.axis[0].dom.extent is m
    assert c.op.reduce_axis[0].dom == (0, n)
    assert next(iter(c.shape)) is m
    assert repr(c) == "Tensor(C, shape=(m, m * 4), dtype=float32)"


def test_loops_of_the_program_are_loops_of_the_schedule() -> None:
    *_, c, d = product()
    s = te.create_schedule(d.op)
    outer, inner = s[c].split(c.op.reduce_axis[0], factor=4)
    s[c].reorder(outer, *c.op.axis, inner)
    assert tuple(s[c].leaf_iter_vars) == (outer, *c.op.axis, inner)


def test_a_size_may_be_an_argument() -> None:
    n, step = te.var("n"), te.var("step")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * step, name="B")
    with pytest.raises(LoweringError, match="no argument says what step is; add it to the arguments"):
        autotune.build(te.create_schedule(b.op), [a, b])
    function = autotune.build(te.create_schedule(b.op), [step, a, b], threads=1)
    found = np.zeros(5, "float32")
    function(3, np.arange(5, dtype="float32"), found)
    assert found.tolist() == [0, 3, 6, 9, 12]
    with pytest.raises(InputError, match=r"step must be an integer, got 1\.5"):
        function(1.5, found, found)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 4), (5, 12), (3, 12)), "dimension 0 of B must be n = 4 (n=4), got 5"),
        (((3, 4), (4, 13), (3, 12)), "dimension 1 of B must be m * 4 = 12 (m=3), got 13"),
        (((3,), (4, 12), (3, 12)), "A has 2 dimensions (m, n), got the shape (3,)"),
        (((3, 4), (4, 12)), "got 2 values for the 3 arguments A, B, D"),
    ],
)
def test_shapes_that_do_not_go_together(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    function = built()
    with pytest.raises(InputError) as refusal:
        function(*(np.zeros(shape, "float32") for shape in shapes))
    assert str(refusal.value) == message


def test_a_step_that_does_not_apply_names_the_sizes() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].peel(b.op.axis[0], first=4)
    function = autotune.build(s, [a, b], threads=1)
    with pytest.raises(ScheduleError, match=r"^for n=3: step 0 of the trace.*must be in 1\.\.3"):
        function(*[np.zeros(3, "float32")] * 2)


def test_what_needs_numbers_says_so() -> None:
    a, b, _, d = product()
    with pytest.raises(ScheduleError, match="A has sizes that a call brings"):
        autotune.tune_schedule(lambda s: s.knob("k", (1, 2)), [a, b, d], budget="1s")
    with pytest.raises(ScheduleError, match=r"'x' is a size, an integer; pass a float32 as a tensor"):
        te.var("x", "float32")


def test_a_solution_that_is_not_whole_is_refused() -> None:
    n = te.var("n")
    a = te.placeholder((n * 4,), name="A")
    b = te.compute((n * 4,), lambda i: a[i] + 1, name="B")
    function = autotune.build(te.create_schedule(b.op), [a, b], threads=1)
    with pytest.raises(InputError, match=r"dimension 0 of A must be n \* 4 = 4 \(n=1\), got 6"):
        function(*[np.zeros(6, "float32")] * 2)
