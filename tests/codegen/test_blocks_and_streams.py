"""Blocks transposed in registers, and stores past the caches: the numbers, and that the instructions are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.codegen.jit import LoadedCode
from autotune.codegen.llvm import assembly
from autotune.runtime.cpu.device import aligned
from autotune.target import Target
from tests.codegen.native import call_kernel

pytestmark = pytest.mark.registers

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
V3, V4 = Target.parse("x86-64-v3"), Target.parse("x86-64-v4")


def transposed(
    rows: int, columns: int, dtype: str, *, tile: int, lanes: int, stream: bool = False
) -> tuple[Any, list[te.Tensor]]:
    """B[i, j] = A[j, i] in blocks of ``tile`` lines of the output by ``lanes``."""
    a = te.placeholder((columns, rows), name="A", dtype=dtype)
    b = te.compute((rows, columns), lambda i, j: a[j, i], name="B")
    s = te.create_schedule(b.op)
    i, j = s[b].op.axis
    block, line = s[b].split(i, factor=tile, tail="overlap")
    step, lane = s[b].split(j, factor=lanes, tail="overlap")
    s[b].reorder(step, block, line, lane)
    s[b].unroll(line)
    s[b].vectorize(lane)
    if stream:
        s[b].pragma(step, "nontemporal")
    return s, [a, b]


def values(shape: tuple[int, int], dtype: str) -> Any:
    return np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns"), [(37, 75), (16, 64), pytest.param(64, 128, marks=pytest.mark.slow)]
)
def test_blocks_hold_the_right_elements(dtype: str, rows: int, columns: int) -> None:
    lanes = Target.detect().lanes(dtype)
    s, args = transposed(rows, columns, dtype, tile=16, lanes=min(lanes, columns))
    a, b = values((columns, rows), dtype), np.zeros((rows, columns), dtype)
    autotune.build(s, args, target="host")(a, b)
    np.testing.assert_array_equal(b, a.T)


@pytest.mark.parametrize("target", [V3, V4], ids=["avx2", "avx512"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "int8"])
def test_blocks_are_interleaved_not_gathered(target: Target, dtype: str) -> None:
    s, args = transposed(64, 64, dtype, tile=16, lanes=target.lanes(dtype))
    text = assembly(compile_schedule(s, args, target).ir, target)
    assert "unpck" in text
    assert "gather" not in text
    assert "pinsr" not in text


def test_a_guarded_read_is_no_block() -> None:
    """Under a condition that decides which iterations read, reading a block would read past the buffer."""
    a = te.placeholder((64, 3), name="A")
    b = te.compute((5, 64), lambda i, j: te.if_then_else(i < 3, a[j, i], 0.0), name="B")
    s = te.create_schedule(b.op)
    i, j = s[b].op.axis
    _, lane = s[b].split(j, factor=16)
    s[b].reorder(i, lane)
    s[b].unroll(i)
    s[b].vectorize(lane)
    x, out = values((64, 3), "float32"), np.zeros((5, 64), "float32")
    autotune.build(s, [a, b], target="host")(x, out)
    np.testing.assert_array_equal(out, np.concatenate([x.T, np.zeros((2, 64))]))


@pytest.mark.parametrize("columns", [128, 112, 100])
@pytest.mark.parametrize("offset", [0, 4])
def test_streams_write_what_ordinary_stores_do(columns: int, offset: int) -> None:
    """Rows that are no multiple of a vector, and arrays that are not aligned, get ordinary stores."""
    s, args = transposed(48, columns, "float32", tile=8, lanes=16, stream=True)
    code = compile_schedule(s, args, Target.detect())
    a, memory = aligned(values((columns, 48), "float32")), aligned(np.zeros(48 * columns + 16, "float32"))
    b = memory[offset : offset + 48 * columns].reshape(48, columns)
    loaded = LoadedCode([code.object_code])
    (kernel,) = code.kernels
    call_kernel(loaded.address(0, kernel.symbol), [(a, b)[i] for i in kernel.buffers], kernel.tiles)
    np.testing.assert_array_equal(b, a.T)
    assert not memory[:offset].any()
    assert not memory[offset + b.size :].any()


def test_streaming_stores_are_fenced_and_the_plain_body_stays() -> None:
    s, args = transposed(64, 64, "float32", tile=8, lanes=16, stream=True)
    text = assembly(compile_schedule(s, args, V4).ir, V4)
    assert "vmovntps" in text
    assert "sfence" in text
    assert "vmovups\t%zmm" in text
