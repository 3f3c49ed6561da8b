"""Tensors: indexed a dimension at a time, several of one name, deep chains."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen import interpreter
from autotune.errors import LoweringError
from autotune.lower import lower_schedule
from autotune.te.depth import MAX_DEPTH


def test_a_dimension_at_a_time() -> None:
    a = te.placeholder((3, 4, 5), name="A")
    c = te.compute((3, 4, 5), lambda i, j, k: a[i][j][k] + a[i, j][k] * a[i][j, k], name="C")
    value = np.random.default_rng(0).integers(-3, 4, (3, 4, 5)).astype("float32")
    np.testing.assert_array_equal(te.evaluate([c], {a: value})[0], value + value * value)


def test_missing_indices_are_named() -> None:
    a = te.placeholder((3, 4), name="A")
    for wrong in (lambda i: a[i] + 1, lambda i: 2 * a[i], lambda i: a[i].astype("int32")):
        with pytest.raises(IndexError, match=r"tensor A has 2 dimensions \(3, 4\), got 1 indices"):
            te.compute((3,), wrong)
    with pytest.raises(IndexError, match=r"tensor A has 2 dimensions \(3, 4\), got 3 indices"):
        te.compute((3,), lambda i: a[i][0, 0])


def test_extremes_of_two_values() -> None:
    a = te.placeholder((3,), name="A")
    b = te.compute((3,), lambda i: te.min(te.max(a[i], 0), a[0]), name="B")
    found = te.evaluate([b], {a: np.array([2, -1, 9], "float32")})[0]
    assert found.tolist() == [2, 0, 2]


def test_the_sum_of_a_value_and_a_number_is_no_reduction() -> None:
    a = te.placeholder((3,), name="A")
    with pytest.raises(TypeError, match=r"te\.sum: axis must be te\.reduce_axis\(...\), got 0"):
        te.compute((3,), lambda i: te.sum(a[i], 0))


def test_tensors_of_one_name() -> None:
    a, b = te.placeholder((8,), name="A"), te.placeholder((8,), name="A")
    twice = te.compute((8,), lambda i: a[i] * 2, name="T")
    total = te.compute((8,), lambda i: twice[i] - b[i], name="T")
    s = te.create_schedule(total)
    outer, _ = s[total].split(total.op.axis[0], 4)
    s[twice].compute_at(s[total], outer)
    text = str(autotune.lower(s, [a, b, total], simple_mode=True))
    assert "T[i] = A[i.outer * 4 + i] * 2f" in text
    assert "T1[i.outer * 4 + i.inner] = T[i.inner] - A1[i.outer * 4 + i.inner]" in text
    x, y, z = np.arange(8, dtype="float32"), np.ones(8, "float32"), np.zeros(8, "float32")
    autotune.build(s, [a, b, total], target="host")(x, y, z)
    np.testing.assert_array_equal(z, x * 2 - y)
    again = s.trace.apply(te.create_schedule(total))
    assert str(autotune.lower(again, [a, b, total], simple_mode=True)) == text


def chain(length: int) -> tuple[te.Tensor, list[te.Tensor]]:
    stages = [te.placeholder((4,), name="A")]
    for n in range(length):
        before = stages[-1]
        stages.append(te.compute((4,), lambda i, before=before: before[i] + 1.0, name=f"T{n}"))
    return stages[0], stages[1:]


@pytest.mark.parametrize(("length", "inlined"), [(200, True), (1200, False)])
def test_long_chains(length: int, inlined: bool) -> None:
    a, stages = chain(length)
    s = te.create_schedule(stages[-1])
    for stage in stages[:-1] if inlined else []:
        s[stage].compute_inline()
    x, y, z = (np.zeros(4, "float32") for _ in range(3))
    autotune.build(s, [a, stages[-1]], target="host")(x, y)
    interpreter.run_program(lower_schedule(s, [a, stages[-1]]), {"A": x, stages[-1].name: z})
    assert te.evaluate([stages[-1]], {a: x})[0].tolist() == y.tolist() == z.tolist() == [length] * 4


def nested(depth: int) -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder((4,), name="A")

    def element(i: te.Var) -> te.Expr:
        value = a[i]
        for _ in range(depth):
            value = te.maximum(value, 0.5)
        return value

    return a, te.compute((4,), element, name="C")


def test_expressions_as_deep_as_the_limit_also_in_threads() -> None:
    a, c = nested(MAX_DEPTH)
    found: list[np.ndarray] = []

    def run() -> None:
        s = te.create_schedule(c)
        s[c].vectorize(c.op.axis[0])
        x, y = np.zeros(4, "float32"), np.zeros(4, "float32")
        autotune.build(s, [a, c], target="host")(x, y)
        found.append(y)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found[0].tolist() == [0.5] * 4


def test_deeper_expressions_are_one_clean_error() -> None:
    a, c = nested(20 * MAX_DEPTH)
    message = r"^an expression is too deep: programs may have 1000 operations inside of one another"
    with pytest.raises(LoweringError, match=message):
        autotune.build(te.create_schedule(c), [a, c], target="host")
    with pytest.raises(LoweringError, match=message):
        te.evaluate([c], {a: np.zeros(4, "float32")})


def test_partial_results_of_several_values_are_a_list() -> None:
    a = te.placeholder((4, 12), name="A")
    k = te.reduce_axis((0, 12), name="k")
    index, value = te.compute((4,), lambda i: te.argmax((k.astype("int32"), a[i, k]), axis=k), name="M")
    s = te.create_schedule(value)
    _, inner = s[value].split(k, factor=4)
    partial = s.rfactor(value, inner)
    assert [t.dtype for t in partial] == ["int32", "float32"]
    s[partial[0]].vectorize(s[partial[0]].op.axis[0])
    x = np.random.default_rng(0).permutation(48).reshape(4, 12).astype("float32")
    i, v = np.zeros(4, "int32"), np.zeros(4, "float32")
    autotune.build(s, [a, index, value], target="host")(x, i, v)
    np.testing.assert_array_equal(i, x.argmax(axis=1))
    np.testing.assert_array_equal(v, x.max(axis=1))
    again = s.trace.apply(te.create_schedule(value))
    assert again.trace == s.trace
