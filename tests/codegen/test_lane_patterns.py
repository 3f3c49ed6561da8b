"""Lanes that read known places near each other: one load and a shuffle, where a gather would load each."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.codegen.llvm import assembly
from autotune.target import Target

pytestmark = pytest.mark.registers

V3 = Target.parse("x86-64-v3")
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int16", "uint8", "bool")


def repeated(columns: int, factor: int, start: int, dtype: str, lanes: int) -> tuple[Any, list[te.Tensor]]:
    """Each element ``factor`` times, from the middle of the first on."""
    a = te.placeholder((3, columns + 1), name="A", dtype=dtype)
    b = te.compute((3, columns * factor), lambda i, j: a[i, (j + start) // factor], name="B")
    s = te.create_schedule(b.op)
    _step, lane = s[b].split(s[b].op.axis[1], factor=lanes, tail="overlap")
    s[b].vectorize(lane)
    return s, [a, b]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "factor", "start"), [(24, 2, 1), (19, 4, 3), (16, 3, 0)])
def test_lanes_read_the_right_elements(dtype: str, columns: int, factor: int, start: int) -> None:
    s, args = repeated(columns, factor, start, dtype, Target.detect().lanes("float32"))
    a = (
        np.random.default_rng(0)
        .integers(0, 2 if dtype == "bool" else 100, (3, columns + 1))
        .astype(args[0].dtype)
    )
    b = np.zeros((3, columns * factor), a.dtype)
    autotune.build(s, args, target="host")(a, b)
    np.testing.assert_array_equal(b, a[:, (np.arange(columns * factor) + start) // factor])


def test_there_is_a_shuffle_and_no_gather() -> None:
    s, args = repeated(64, 2, 0, "float32", 8)
    text = assembly(compile_schedule(s, args, V3).ir, V3)
    assert "vpermps" in text or "vunpck" in text or "vpermpd" in text
    assert "gather" not in text


def test_places_beyond_a_load_are_gathered() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[(i % 8) * 8 + i // 8], name="B")
    s = te.create_schedule(b.op)
    _, lane = s[b].split(s[b].op.axis[0], factor=8)
    s[b].vectorize(lane)
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    autotune.build(s, [a, b], target="host")(x, y)
    np.testing.assert_array_equal(y, x.reshape(8, 8).T.reshape(-1))


@pytest.mark.parametrize("lanes", [4, 6, 8])
def test_lanes_that_go_on_in_the_next_line_are_neighbours(lanes: int) -> None:
    """Lines of three are a stretch of lines of six, which starts in the middle of one."""
    a = te.placeholder((4, 9, 6), name="A")
    b = te.compute((4, 16, 3), lambda i, j, c: a[i, (j * 3 + c + 3) // 6, (j * 3 + c + 3) % 6], name="B")
    s = te.create_schedule(b.op)
    _, j, c = s[b].op.axis
    _, lane = s[b].split(s[b].fuse(j, c), factor=lanes)
    s[b].vectorize(lane)
    x, y = np.arange(4 * 54, dtype=np.float32).reshape(4, 9, 6), np.zeros((4, 16, 3), np.float32)
    autotune.build(s, [a, b], target="host")(x, y)
    np.testing.assert_array_equal(y.reshape(4, 48), x.reshape(4, 54)[:, 3:51])
    text = compile_schedule(s, [a, b], V3).ir
    assert not re.search(r"call .*(gather|scatter)", text)
