"""Code for NVIDIA's GPUs: what its threads compute, and that the assembler takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.codegen.backend import backend_for
from autotune.codegen.code import DispatchCode, Launch
from autotune.codegen.nvptx.assembler import assembled, find_assembler
from autotune.errors import BuildError
from autotune.lower import LoopProgram, lower_schedule
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.te.dtypes import DTYPES, is_float
from tests.codegen.gpu_emulated import run_program
from tests.schedule.three_ways import random_case

TARGET = Target.parse("cuda:sm_80")
needs_assembler = pytest.mark.skipif(
    find_assembler() is None,
    reason="needs ptxas (pip install 'autotune-compiler[cuda]', a download of 125 MB)",
)
x, y = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
block_x, block_y = te.thread_axis("blockIdx.x"), te.thread_axis("blockIdx.y")


def compiled(program: LoopProgram) -> DispatchCode:
    return backend_for(TARGET.arch).compile(program, TARGET)


def agree(
    program: LoopProgram, inputs: dict[str, Any], tolerance: float = 1e-6, code: DispatchCode | None = None
) -> DispatchCode:
    """The code's threads compute what the interpreter of the loop program does."""
    code = code or compiled(program)
    wanted = {b.name: np.zeros(b.shape, b.dtype) for b in program.outputs}
    interpreter.run_program(program, {**inputs, **wanted})
    got = run_program(program, code, inputs)
    for name, expected in wanted.items():
        np.testing.assert_allclose(
            got[name].astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=tolerance
        )
    return code


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    low = 0 if dtype.startswith("u") else -9
    return np.random.default_rng(seed).integers(low, 10, shape).astype(dtype)


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_random_programs_with_bound_loops_agree_with_the_interpreter(seed: int) -> None:
    _random(seed, threads=True)


@pytest.mark.parametrize("seed", range(700, 710))
def test_random_programs_of_a_cpu_agree_with_the_interpreter(seed: int) -> None:
    _random(seed, threads=False)


def _random(seed: int, *, threads: bool) -> None:
    case = random_case(seed, threads=threads)
    program = case.lowered()
    try:
        code = compiled(program)
    except BuildError as error:
        if "blocks of a GPU do not wait" not in str(error):
            raise
        return
    placeholders, _ = case.program.tensors()
    inputs = {p.name: a for p, a in zip(placeholders, case.program.arrays(seed), strict=True)}
    agree(program, inputs, max(case.program.tolerance, 1e-6), code)
    if find_assembler() is not None and seed % 5 == 0:
        assert len(assembled(code.object_code, TARGET.cpu)) == len(code.kernels)


def product(rows: int = 64, columns: int = 64, depth: int = 64) -> tuple[Schedule, list[te.Tensor]]:
    """A product whose blocks fetch tiles of both factors into shared memory together."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    copies = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    i, j, ii, jj = s[c].tile(*s[c].op.axis, 32, 32, tail="guard")
    iy, ir = s[c].split(ii, factor=4)
    jx, jr = s[c].split(jj, factor=4)
    outer, inner = s[c].split(k, factor=16)
    s[c].reorder(i, j, iy, jx, outer, inner, ir, jr)
    s[c].unroll(ir)
    s[c].vectorize(jr)
    for loop, axis in ((i, block_y), (j, block_x), (iy, y), (jx, x)):
        s[c].bind(loop, axis)
    for copy in copies:
        s[copy].compute_at(s[c], outer)
        rest, lanes = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=4)
        rest, own = s[copy].split(rest, factor=8)
        _, row = s[copy].split(rest, factor=8)
        s[copy].bind(own, x)
        s[copy].bind(row, y)
        s[copy].vectorize(lanes)
    return s, [a, b, c]


@pytest.mark.parametrize(("rows", "columns", "depth"), [(32, 32, 32), (33, 45, 18)])
def test_a_product_with_shared_tiles(rows: int, columns: int, depth: int) -> None:
    program = lower_schedule(*product(rows, columns, depth))
    code = agree(program, {"A": numbers((rows, depth)), "B": numbers((depth, columns), seed=1)})
    (kernel,) = code.kernels
    assert kernel.launch == Launch((-(-columns // 32), -(-rows // 32), 1), (8, 8, 1))


def test_neighbours_are_loaded_and_stored_in_one_access() -> None:
    ptx = compiled(lower_schedule(*product())).object_code.decode()
    assert "ld.shared.v4.b32" in ptx
    assert "st.global.v4.b32" in ptx
    assert ".reqntid 8, 8, 1" in ptx
    assert ptx.count("bar.sync") == 3  # before the first copy, between the two, after the second


def test_an_access_that_may_not_be_aligned_is_taken_apart() -> None:
    a = te.placeholder((65,), name="A")
    c = te.compute((64,), lambda i: a[i + 1], name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(s[c].op.axis[0], factor=4)
    s[c].bind(outer, x)
    s[c].vectorize(inner)
    program = lower_schedule(s, [a, c])
    ptx = agree(program, {"A": numbers((65,))}).object_code.decode()
    assert "ld.global.nc.v4" not in ptx
    assert "st.global.v4.b32" in ptx


def test_what_is_outside_of_the_loops_over_threads_runs_once() -> None:
    """Sums in memory are started, added to by threads of one axis, and read by those of another."""
    a = te.placeholder((8, 24), name="A")
    k = te.reduce_axis((0, 24), name="k")
    total = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="total")
    c = te.compute((8, 24), lambda i, j: a[i, j] - total[i], name="C")
    s = te.create_schedule(c)
    i, j = s[c].op.axis
    s[c].bind(i, y)
    s[c].bind(j, x)
    s[total].compute_at(s[c], i)
    code = agree(lower_schedule(s, [a, c]), {"A": numbers((8, 24))})
    assert code.kernels[0].launch == Launch((1, 1, 1), (24, 8, 1))
    assert "addrspace(3)" in code.ir  # the sums, of which each thread along y has one, are shared along x
    assert "barrier" in code.ir


def test_threads_beyond_the_end_of_a_loop_skip_it_but_come_to_barriers() -> None:
    a = te.placeholder((40, 24), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((40, 24), lambda i, j: b[i, 23 - j], name="C")
    s = te.create_schedule(c)
    i, j = s[c].op.axis
    outer, _ = s[c].split(i, factor=16)
    s[c].bind(outer, block_x)
    s[c].bind(j, x)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], outer)
    first, _ = s[b].split(s[b].op.axis[1], nparts=12)
    s[b].bind(first, x)
    program = lower_schedule(s, [a, c])
    agree(program, {"A": numbers((40, 24))})


def test_tiles_of_a_cpu_are_spread_over_threads() -> None:
    a = te.placeholder((300, 5), name="A")
    c = te.compute((300, 5), lambda i, j: te.exp(a[i, j]), name="C")
    s = te.create_schedule(c)
    s[c].parallel(s[c].op.axis[0])
    code = agree(lower_schedule(s, [a, c]), {"A": numbers((300, 5))})
    assert code.kernels[0].launch == Launch((3, 1, 1), (128, 1, 1))


def test_what_follows_a_loop_over_blocks_is_a_launch_of_its_own() -> None:
    a = te.placeholder((20, 8), name="A")
    k = te.reduce_axis((0, 20), name="k")
    c = te.compute((8,), lambda j: te.max(a[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(s[c].op.axis[0], factor=4)
    s[c].reorder(outer, k, inner)
    s[c].bind(outer, block_x)
    s[c].bind(inner, x)
    agree(lower_schedule(s, [a, c]), {"A": numbers((20, 8))})
    s = te.create_schedule(c)
    s[c].reorder(k, s[c].op.axis[0])
    s[c].bind(s[c].op.axis[0], block_x)
    with pytest.raises(BuildError) as refused:
        compiled(lower_schedule(s, [a, c]))
    assert str(refused.value) == (
        "kernel C: loops bound to blockIdx are inside of the serial loop k, but blocks of a GPU do not wait for one "
        "another; reorder the bound loops outwards"
    )


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_every_type_is_read_computed_and_written(dtype: str) -> None:
    a, b = (te.placeholder((37,), dtype, name=name) for name in "AB")
    if is_float(dtype):
        c = te.compute((37,), lambda i: te.maximum(a[i] * b[i], a[i] - b[i]), name="C")
    else:
        c = te.compute((37,), lambda i: a[i] // b[i] + a[i] % b[i], name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(s[c].op.axis[0], factor=4)
    s[c].bind(outer, x)
    s[c].vectorize(inner)
    code = agree(
        lower_schedule(s, [a, b, c]), {"A": numbers((37,), dtype), "B": numbers((37,), dtype, seed=1)}
    )
    if find_assembler() is not None:
        assert assembled(code.object_code, TARGET.cpu)[0].spilled_bytes == 0


def test_more_threads_or_shared_memory_than_a_block_has_are_refused() -> None:
    a = te.placeholder((64, 64), name="A")
    c = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="C")
    s = te.create_schedule(c)
    s[c].bind(s[c].op.axis[0], y)
    s[c].bind(s[c].op.axis[1], x)
    with pytest.raises(BuildError) as refused:
        compiled(lower_schedule(s, [a, c]))
    assert str(refused.value) == (
        "kernel C: its blocks have 64 x 64 x 1 = 4096 threads, the device runs at most 1024; bind smaller loops to "
        "threadIdx"
    )
    a = te.placeholder((128, 128), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((128, 128), lambda i, j: b[j, i], name="C")
    s = te.create_schedule(c)
    s[c].bind(s[c].op.axis[0], x)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].bind(s[b].op.axis[0], x)
    with pytest.raises(BuildError) as refused:
        compiled(lower_schedule(s, [a, c]))
    assert str(refused.value) == (
        "kernel C: shared memory for B brings it to 65536 bytes, a block has 49152; use smaller tiles"
    )


def test_code_depends_on_program_and_target_alone() -> None:
    program = lower_schedule(*product())
    first, again = compiled(program), compiled(program)
    assert first.object_code == again.object_code
    other = backend_for("nvptx64").compile(program, Target.parse("cuda:sm_90"))
    assert ".target sm_90" in other.object_code.decode()
    assert other.kernels[0].symbol != first.kernels[0].symbol
    assert backend_for("nvptx64").manifest(program, TARGET).kernels[0].launch == first.kernels[0].launch


@needs_assembler
@pytest.mark.parametrize("cpu", ["sm_80", "sm_90"])
def test_the_assembler_takes_a_product_without_spills(cpu: str) -> None:
    code = backend_for("nvptx64").compile(lower_schedule(*product()), Target.parse(f"cuda:{cpu}"))
    (cost,) = assembled(code.object_code, cpu)
    assert cost.spilled_bytes == 0
    assert cost.shared_bytes == 4096
    assert cost.symbol == code.kernels[0].symbol


@needs_assembler
def test_what_the_assembler_refuses_is_an_error() -> None:
    with pytest.raises(BuildError, match="ptxas refuses the generated code for sm_80"):
        assembled(
            b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }", "sm_80"
        )
