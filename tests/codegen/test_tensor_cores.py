"""Products on tensor cores: what warps compute, and that the assembler takes them without spills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen.backend import backend_for
from autotune.codegen.code import Launch
from autotune.codegen.nvptx.assembler import assembled
from autotune.errors import BuildError, ScheduleError
from autotune.lower import lower_schedule
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.te.tensor_cores import tensor_core
from search_spaces.programs.warp_products import WarpTiles, on_tensor_cores
from tests.codegen.test_nvptx import agree, compiled, needs_assembler

DTYPES = ("float16", "bfloat16", "float32")
SMALL = WarpTiles(rows=16, columns=16, row_warps=1, column_warps=1, steps=1)


def product(
    rows: int, columns: int, depth: int, dtype: str, *, transposed: bool = False, last: Any = None
) -> tuple[te.Tensor, list[te.Tensor]]:
    a = te.placeholder((rows, depth), dtype, name="A")
    b = te.placeholder((columns, depth) if transposed else (depth, columns), dtype, name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(
            a[i, k].astype("float32") * (b[j, k] if transposed else b[k, j]).astype("float32"), axis=k
        ),
        name="C",
    )
    return c, [a, b, c]


def scheduled(
    rows: int, columns: int, depth: int, dtype: str, tiles: WarpTiles, *, transposed: bool = False
) -> tuple[Schedule, list[te.Tensor]]:
    c, args = product(rows, columns, depth, dtype, transposed=transposed)
    s = te.create_schedule(c.op)
    on_tensor_cores(s, c, tiles, transposed=transposed)
    return s, args


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Numbers whose products and sums all types have exactly."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_warps_compute_what_the_loops_say(dtype: str, transposed: bool) -> None:
    program = lower_schedule(*scheduled(16, 32, 32, dtype, SMALL, transposed=transposed))
    shapes = [argument.shape for argument in program.arguments[:2]]
    inputs = {
        name: numbers(shape, dtype, n) for n, (name, shape) in enumerate(zip("AB", shapes, strict=True))
    }
    code = agree(program, inputs)
    assert code.kernels[0].launch == Launch((2, 1, 1), (32, 1, 1))
    ptx = code.object_code.decode()
    assert ptx.count("mma.sync") == 2
    assert ("ldmatrix" in ptx) == (dtype != "float32")
    assert (".trans" in ptx) == (dtype != "float32" and not transposed)
    assert ".local" not in ptx  # the sums are in registers


def test_several_warps_share_a_tile() -> None:
    tiles = WarpTiles(rows=32, columns=16, row_warps=2, column_warps=1, steps=2)
    program = lower_schedule(*scheduled(32, 16, 32, "float16", tiles))
    inputs = {"A": numbers((32, 32), "float16", 0), "B": numbers((32, 16), "float16", 1)}
    code = agree(program, inputs)
    assert code.kernels[0].launch == Launch((1, 1, 1), (32, 1, 2))
    ptx = code.object_code.decode()
    assert "ld.global.nc.v4.b32" in ptx
    assert "st.shared.v4.b32" in ptx


def from_memory() -> tuple[Schedule, list[te.Tensor]]:
    """A product of 16 x 8 x 32 whose factors are not copied."""
    c, args = product(16, 8, 32, "float16")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    outer, i = s[c].split(i, factor=16)
    k, kk = s[c].split(s[c].op.reduce_axis[0], factor=16)
    s[c].reorder(outer, k, i, j, kk)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].tensorize(i, tensor_core("float16"))
    return s, args


def test_factors_may_be_read_from_where_they_are() -> None:
    inputs = {"A": numbers((16, 32), "float16", 0), "B": numbers((32, 8), "float16", 1)}
    code = agree(lower_schedule(*from_memory()), inputs)
    assert code.kernels[0].launch == Launch((1, 1, 1), (32, 1, 1))
    assert "ldmatrix" not in code.ir


def test_sums_are_finished_before_they_are_stored() -> None:
    """An epilogue reads the sums of its own lane."""
    c, args = product(32, 16, 32, "float16")
    bias = te.placeholder((16,), name="bias")
    d = te.compute((32, 16), lambda i, j: te.maximum(c[i, j] + bias[j], 0.0), name="D")
    s = te.create_schedule(d.op)
    outer, inner, *_ = s[d].tile(*s[d].op.axis, 16, 8)
    s[d].bind(outer, te.thread_axis("blockIdx.x"))
    s[d].unroll(inner)
    s[c].compute_at(s[d], outer)
    m, mm = s[c].split(s[c].op.axis[0], factor=16)
    n, nn = s[c].split(s[c].op.axis[1], factor=8)
    k, kk = s[c].split(s[c].op.reduce_axis[0], factor=16)
    s[c].reorder(k, m, n, mm, nn, kk)
    s[c].unroll(m)
    s[c].unroll(n)
    s[c].tensorize(mm, tensor_core("float16"))
    program = lower_schedule(s, [*args[:2], bias, d])
    inputs = {
        "A": numbers((32, 32), "float16", 0),
        "B": numbers((32, 16), "float16", 1),
        "bias": numbers((16,), "float32", 2),
    }
    code = agree(program, inputs)
    assert code.kernels[0].launch == Launch((2, 1, 1), (32, 1, 1))
    assert "addrspace(3)" not in code.ir


@needs_assembler
@pytest.mark.parametrize("cpu", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_assembler_takes_them_without_spills(dtype: str, cpu: str) -> None:
    tiles = WarpTiles(128, 128, 4, 2, 1)
    code = backend_for("nvptx64").compile(
        lower_schedule(*scheduled(256, 256, 256, dtype, tiles)), Target.parse(f"cuda:{cpu}")
    )
    (cost,) = assembled(code.object_code, cpu)
    assert cost.spilled_bytes == 0
    assert cost.stack_bytes == 0


def test_a_cpu_refuses_them() -> None:
    program = lower_schedule(*from_memory())
    with pytest.raises(BuildError, match="intrinsic mma_m16n8k16_float16 needs mma, which target"):
        backend_for("x86_64").compile(program, Target.parse("x86-64-v3"))


def test_sizes_that_tiles_do_not_divide_are_refused() -> None:
    c, _ = product(33, 16, 32, "float16")
    with pytest.raises(ScheduleError) as refused:
        on_tensor_cores(te.create_schedule(c.op), c, SMALL)
    assert str(refused.value) == (
        "on_tensor_cores: the product's 33 rows are not a multiple of the tile's 16; choose other tiles, or pad the "
        "factors"
    )


def test_a_loop_of_lanes_around_an_instruction_is_refused() -> None:
    c, args = product(64, 8, 16, "float16")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    outer, i = s[c].split(i, factor=16)
    s[c].reorder(outer, i, j, s[c].op.reduce_axis[0])
    s[c].bind(outer, te.thread_axis("threadIdx.x"))
    s[c].tensorize(i, tensor_core("float16"))
    with pytest.raises(BuildError, match="run on the 32 threads of a warp, but threadIdx"):
        compiled(lower_schedule(s, args))
