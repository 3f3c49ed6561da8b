"""The rest of a vectorized loop in one vector with idle lanes, on targets with masked loads and stores."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.target import Target
from tests.schedule.machine import run_machine_code, runnable_target

RESTS = (3, 5, 7, 13, 29, 47)


def code(s: te.Schedule, args: list[te.Tensor], name: str) -> str:
    return compile_schedule(s, args, Target.parse(name), name="k").ir


def chain(extent: int, dtype: str = "float32") -> tuple[te.Schedule, list[te.Tensor]]:
    """c = 3a + b in lanes."""
    a, b = (te.placeholder((4, extent), dtype, name=name) for name in "AB")
    c = te.compute((4, extent), lambda i, j: a[i, j] * te.const(3, dtype) + b[i, j], name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].op.axis[1])
    return s, [a, b, c]


def machine(s: te.Schedule, args: list[te.Tensor], name: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    given = {t.name: rng.integers(1, 9, t.shape).astype(t.dtype) for t in args[:-1]}
    found = run_machine_code(s, args, given, target=runnable_target(name))
    return found[args[-1].name], given


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int16", "uint8"])
def test_rests_write_their_elements_and_no_others(name: str, dtype: str) -> None:
    if name == "x86-64-v2" and dtype == "float16":
        pytest.skip("it cannot convert float16")
    for extent in RESTS:
        s, args = chain(extent, dtype)
        found, given = machine(s, args, name)
        np.testing.assert_array_equal(found, given["A"] * np.array(3, dtype) + given["B"])


@pytest.mark.parametrize(
    ("name", "dtype", "masks"),
    [
        ("x86-64-v2", "float32", False),
        ("x86-64-v3", "float32", True),
        ("x86-64-v3", "float64", True),
        ("x86-64-v3", "int8", False),
        ("x86-64-v4", "int8", True),
        ("x86-64-v4", "float32", True),
        ("aarch64", "float32", False),
    ],
)
def test_targets_without_masks_keep_narrower_vectors(name: str, dtype: str, masks: bool) -> None:
    text = code(*chain(7, dtype), name)
    assert ("masked.store" in text) == masks


def test_a_rest_that_is_one_narrower_vector_needs_no_mask() -> None:
    assert "masked" not in code(*chain(24), "x86-64-v4")
    assert "masked" not in code(*chain(17), "x86-64-v4")


def test_one_masked_vector_replaces_three() -> None:
    text = code(*chain(13), "x86-64-v4")
    assert len(re.findall(r"call void @llvm.masked.store", text)) == 1
    assert not re.search(r"  store (float|<\d+ x float>)", text)


@pytest.mark.parametrize(("fold", "expected"), [(te.sum, np.sum), (te.max, np.max), (te.min, np.min)])
@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("extent", RESTS)
def test_idle_lanes_do_not_take_part_in_folds(extent: int, name: str, fold: Any, expected: Any) -> None:
    a = te.placeholder((5, extent), name="A")
    r = te.reduce_axis((0, extent), name="r")
    c = te.compute((5,), lambda i: fold(a[i, r], axis=r), name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].op.reduce_axis[0])
    found, given = machine(s, [a, c], name)
    np.testing.assert_array_equal(found, expected(given["A"], axis=1))


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("extent", RESTS)
def test_register_tiles_of_odd_width(name: str, extent: int) -> None:
    a, b = te.placeholder((6, 9), name="A"), te.placeholder((9, extent), name="B")
    k = te.reduce_axis((0, 9), name="k")
    c = te.compute((6, extent), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    local = s.cache_write(c, "local")
    rows, _ = s[c].split(s[c].op.axis[0], factor=3)
    s[local].compute_at(s[c], rows)
    i, j = s[local].op.axis
    s[local].reorder(s[local].op.reduce_axis[0], i, j)
    s[local].unroll(i)
    s[local].vectorize(j)
    s[c].unroll(s[c].leaf_iter_vars[1])
    s[c].vectorize(s[c].op.axis[1])
    found, given = machine(s, [a, b, c], name)
    np.testing.assert_array_equal(found, given["A"] @ given["B"])


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("extent", RESTS)
def test_conditions_and_idle_lanes_together(extent: int, name: str) -> None:
    a = te.placeholder((4, extent), name="A")

    def body(i: te.Var, j: te.Var) -> te.Expr:
        inside = te.all(j >= 1, j < extent - 1)
        return te.if_then_else(inside, a[i, j] + a[i, j - 1] * a[i, j + 1], te.const(7.0))

    c = te.compute((4, extent), body, name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].op.axis[1])
    found, given = machine(s, [a, c], name)
    x = given["A"]
    expected = np.full_like(x, 7)
    expected[:, 1:-1] = x[:, 1:-1] + x[:, :-2] * x[:, 2:]
    np.testing.assert_array_equal(found, expected)


def test_idle_lanes_may_divide_by_the_zero_that_they_read() -> None:
    a, b = (te.placeholder((13,), "int32", name=name) for name in "AB")
    c = te.compute((13,), lambda i: te.floordiv(a[i], b[i]), name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].op.axis[0])
    assert "masked" in code(s, [a, b, c], "x86-64-v4")
    found, given = machine(s, [a, b, c], "x86-64-v4")
    np.testing.assert_array_equal(found, given["A"] // given["B"])
