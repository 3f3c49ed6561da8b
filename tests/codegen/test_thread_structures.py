"""Structures of GPU programs as TVM's tutorials have them: virtual threads, tiles ahead, reductions by all threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.codegen.backend import backend_for
from autotune.codegen.nvptx.assembler import assembled, find_assembler
from autotune.lower import lower_schedule
from autotune.schedule import Schedule
from autotune.target import Target
from tests.codegen import gpu_emulated
from tests.codegen.opencl_device import installed, run_on_device
from tests.schedule.machine import run_machine_code

CUDA = Target.parse("cuda:sm_80")
OPENCL = Target.parse("opencl-generic")
Made = tuple[Schedule, list[te.Tensor]]


def inputs_of(args: list[te.Tensor]) -> dict[str, Any]:
    """Small integers, whose sums are exact."""
    rng = np.random.default_rng(0)
    given = [t for t in args if isinstance(t.op, te.PlaceholderOp)]
    return {t.name: rng.integers(-9, 10, t.shape).astype(t.dtype) for t in given}


def equal_everywhere(made: Made, wanted: Callable[..., Any], *, device: bool = True) -> None:
    """The interpreter, PTX (emulated), OpenCL and a CPU compute what NumPy does."""
    s, args = made
    arrays = inputs_of(args)
    outputs = [t for t in args if t.name not in arrays]
    expected = dict(zip([t.name for t in outputs], wanted(*arrays.values()), strict=True))
    program = lower_schedule(s, args)
    memory = {**arrays, **{t.name: np.zeros(t.shape, t.dtype) for t in outputs}}
    interpreter.run_program(program, memory)
    code = backend_for(CUDA.arch).compile(program, CUDA)
    found = {
        "interpreter": memory,
        "PTX": gpu_emulated.run_program(program, code, arrays),
        "CPU": run_machine_code(s, args, arrays),
    }
    if device and installed():
        found["OpenCL"] = run_on_device(s, args, arrays)
    for who, got in found.items():
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=who)
    if find_assembler() is not None:
        assert all(cost.spilled_bytes == 0 for cost in assembled(code.object_code, CUDA.cpu))


def ptx(made: Made) -> str:
    return backend_for(CUDA.arch).compile(lower_schedule(*made), CUDA).object_code.decode()


def opencl(made: Made) -> str:
    return backend_for(OPENCL.arch).compile(lower_schedule(*made), OPENCL).object_code.decode()


def innermost_loops(text: str) -> list[str]:
    """The bodies of PTX's loops that have no loop inside: from a label to the jump back to it."""
    found = []
    for label in re.findall(r"^(\$L__BB\d+_\d+):", text, re.MULTILINE):
        body = re.search(
            rf"^{re.escape(label)}:(.*?)bra\s+{re.escape(label)};", text, re.MULTILINE | re.DOTALL
        )
        if body is not None and "$L__BB" not in body[1].replace("bra", ""):
            found.append(body[1])
    return found


def block(source: str, head: str) -> str:
    """Return the part of OpenCL C in the braces after ``head``."""
    rest = source[source.index(head) :]
    depth = 0
    for n, letter in enumerate(rest):
        depth += (letter == "{") - (letter == "}")
        if letter == "}" and not depth:
            return rest[:n]
    raise AssertionError(f"no end of {head}")


# -- virtual threads ---------------------------------------------------------------------------------------------


def gemm(
    rows: int,
    columns: int,
    depth: int,
    *,
    threads: int = 8,
    step: int = 8,
    stages: int = 1,
    tail: str = "peel",
) -> Made:
    """TVM's test_gemm: blocks, two virtual threads each way, threads; tiles of both factors in shared memory."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((columns, depth), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    block = 8 * threads
    aa, bb = s.cache_read(a, "shared", [c]), s.cache_read(b, "shared", [c])
    al, bl = s.cache_read(aa, "local", [c]), s.cache_read(bb, "local", [c])
    cc = s.cache_write(c, "local")
    thread_x, thread_y = (te.thread_axis((0, threads), f"threadIdx.{x}") for x in "xy")
    by, yi = s[c].split(c.op.axis[0], factor=block, tail=tail)
    bx, xi = s[c].split(c.op.axis[1], factor=block, tail=tail)
    s[c].reorder(by, bx, yi, xi)
    s[c].bind(by, te.thread_axis("blockIdx.y"))
    s[c].bind(bx, te.thread_axis("blockIdx.x"))
    tyz, yi = s[c].split(yi, nparts=2, tail=tail)
    ty, yi = s[c].split(yi, nparts=threads, tail=tail)
    txz, xi = s[c].split(xi, nparts=2, tail=tail)
    tx, xi = s[c].split(xi, nparts=threads, tail=tail)
    s[c].reorder(tyz, txz, ty, tx, yi, xi)
    s[c].bind(tyz, te.thread_axis((0, 2), "vthread", name="vy"))
    s[c].bind(txz, te.thread_axis((0, 2), "vthread", name="vx"))
    s[c].bind(ty, thread_y)
    s[c].bind(tx, thread_x)
    s[cc].compute_at(s[c], tx)
    yo, xo = s[cc].op.axis
    ko, ki = s[cc].split(k, factor=step)
    s[cc].reorder(ko, ki, yo, xo)
    for shared, local in ((aa, al), (bb, bl)):
        s[shared].compute_at(s[cc], ko)
        s[local].compute_at(s[cc], ki)
        ty, row = s[shared].split(s[shared].op.axis[0], nparts=threads, tail="guard")
        tx, line = s[shared].split(s[shared].op.axis[1], nparts=threads, tail="guard")
        s[shared].reorder(ty, tx, row, line)
        s[shared].bind(ty, thread_y)
        s[shared].bind(tx, thread_x)
    if stages > 1:
        s[cc].software_pipeline(ko, stages)
    return s, [a, b, c]


def product_of(a: Any, b: Any) -> list[Any]:
    return [a @ b.T]


@pytest.mark.parametrize(
    ("sizes", "threads", "step", "tail", "stages"),
    [
        ((64, 64, 16), 8, 8, "peel", 1),
        ((21, 19, 7), 2, 3, "guard", 1),
        ((18, 33, 8), 2, 2, "guard", 2),
        ((16, 16, 12), 2, 4, "peel", 3),
    ],
)
def test_virtual_threads_around_shared_tiles(
    sizes: tuple[int, int, int], threads: int, step: int, tail: str, stages: int
) -> None:
    equal_everywhere(gemm(*sizes, threads=threads, step=step, tail=tail, stages=stages), product_of)


def test_virtual_threads_share_what_is_the_same_for_them() -> None:
    """64 sums are registers; a step of the depth reads eight numbers of each factor, for all virtual threads."""
    text = ptx(gemm(64, 64, 64))
    assert "local_depot" not in text
    (loop,) = [body for body in innermost_loops(text) if "fma" in body]
    assert loop.count("fma.rn.f32") == 64
    assert len(re.findall(r"ld\.shared", loop)) == 16
    assert "global" not in loop
    assert text.count("bar.sync") == 3


def test_a_convolution_of_virtual_threads() -> None:
    """TVM's opt_conv_cuda, in blocks of a pixel, 8 filters and 4 images."""
    from tests.schedule.test_tvm_programs import convolution_on_threads

    s, args, wanted = convolution_on_threads(3)
    equal_everywhere((s, args), wanted)


# -- tiles ahead -------------------------------------------------------------------------------------------------


def tiled_product(rows: int, columns: int, depth: int, stages: int, *, one: bool = False) -> Made:
    """Both factors in shared memory, in vectors of four, ``stages`` tiles in flight; or ``one`` of them alone."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    copies = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    i, j, ii, jj = s[c].tile(*s[c].op.axis, 8, 8, tail="guard")
    iy, ir = s[c].split(ii, factor=4)
    jx, jr = s[c].split(jj, factor=4)
    outer, inner = s[c].split(k, factor=8)
    s[c].reorder(i, j, iy, jx, outer, inner, ir, jr)
    s[c].unroll(ir)
    s[c].vectorize(jr)
    axes = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for loop, axis in zip((i, j, iy, jx), axes, strict=True):
        s[c].bind(loop, te.thread_axis(axis))
    for copy in copies:
        s[copy].compute_at(s[c], outer)
        row, line = s[copy].op.axis
        _, y = s[copy].split(row, 2)
        x, lanes = s[copy].split(line, 4)
        s[copy].bind(y, te.thread_axis("threadIdx.y"))
        s[copy].bind(x, te.thread_axis("threadIdx.x"))
        s[copy].vectorize(lanes)
    if one:
        s[copies[0]].double_buffer()
    elif stages > 1:
        s[c].software_pipeline(outer, stages)
    return s, [a, b, c]


def plain_product(a: Any, b: Any) -> list[Any]:
    return [a @ b]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("sizes", [(16, 16, 32), (13, 11, 29)])
def test_tiles_that_are_fetched_ahead(sizes: tuple[int, int, int], stages: int) -> None:
    equal_everywhere(tiled_product(*sizes, stages), plain_product, device=stages == 3)


def test_one_of_two_tiles_ahead() -> None:
    equal_everywhere(tiled_product(16, 16, 32, 2, one=True), plain_product)


def test_copies_ahead_are_asynchronous_and_waited_for() -> None:
    plain, ahead = (ptx(tiled_product(16, 16, 64, stages)) for stages in (1, 3))
    assert "cp.async" not in plain
    assert "cp.async.cg.shared.global" in ahead
    assert "st.shared" not in ahead  # no copy passes through registers
    # The tile at hand has arrived when one of two is in flight.
    assert len(re.findall(r"cp\.async\.commit_group", ahead)) == len(re.findall(r"bar\.sync", ahead)) - 1
    assert re.findall(r"cp\.async\.wait_group\s+(\d+)", ahead)[-1] == "1"
    if find_assembler() is not None:
        (cost,) = assembled(ahead.encode(), CUDA.cpu)
        assert cost.spilled_bytes == 0
        assert cost.shared_bytes == 3 * 2 * 8 * 8 * 4


def test_a_copy_of_a_masked_or_computed_tile_is_a_plain_store() -> None:
    assert "cp.async" not in ptx(tiled_product(13, 11, 29, 2))


def test_without_the_wait_copies_arrive_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator makes copies as late as it may: with one group too many in flight the numbers are wrong."""
    from autotune.codegen.nvptx.copies import Copies

    made = tiled_product(8, 8, 32, 2)
    wait = Copies.wait
    monkeypatch.setattr(Copies, "wait", lambda self, in_flight: wait(self, in_flight + 1))
    program, arrays = lower_schedule(*made), inputs_of(made[1])
    code = backend_for(CUDA.arch).compile(program, CUDA)
    found = gpu_emulated.run_program(program, code, arrays)["C"]
    assert not np.array_equal(found, arrays["A"] @ arrays["B"])


def test_threads_meet_once_an_iteration() -> None:
    """Of two tiles in local memory one is filled while the other is read: one barrier in the loop, not three."""
    loops = [block(opencl(tiled_product(16, 16, 64, stages)), "for (int k_outer") for stages in (1, 2)]
    assert [loop.count("barrier(") for loop in loops] == [3, 1]


# -- accumulators ------------------------------------------------------------------------------------------------


def serial_product(rows: int, columns: int, depth: int) -> Made:
    """A thread has four rows and two columns, in serial loops inside of the reduction."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x, yi, xi = s[c].tile(*s[c].op.axis, 4, 2)
    s[c].reorder(y, x, k, yi, xi)
    s[c].bind(y, te.thread_axis("blockIdx.x"))
    s[c].bind(x, te.thread_axis("threadIdx.x"))
    return s, [a, b, c]


@pytest.mark.parametrize("sizes", [(8, 8, 16), (7, 9, 5)])
def test_accumulators_of_serial_loops(sizes: tuple[int, int, int]) -> None:
    equal_everywhere(serial_product(*sizes), plain_product)


def test_accumulators_of_serial_loops_are_registers() -> None:
    made = serial_product(8, 8, 16)
    text = ptx(made)
    (loop,) = [body for body in innermost_loops(text) if "fma" in body]
    assert loop.count("fma.rn.f32") == 8
    assert "st.global" not in loop
    assert "local" not in text
    source = opencl(made)
    inner = block(source, "for (int k_")
    assert inner.count("C_acc") == 16
    assert "b2[" not in inner


# -- reductions by all threads -----------------------------------------------------------------------------------


def across(rows: int, columns: int, threads: int, *, axes: int = 1, factor_first: bool = True) -> Made:
    """Sums of rows by the threads of ``axes`` axes, as in TVM's tutorial on reductions."""
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(k, factor=threads, tail="guard")
    if factor_first:
        part = s.rfactor(b, inner)
        inner = s[b].op.reduce_axis[0]
        s[part].compute_at(s[b], inner)
    outer, row = s[b].split(s[b].op.axis[0], factor=2, tail="guard")
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(row, te.thread_axis("threadIdx.z"))
    if axes == 2 and not factor_first:
        y, inner = s[b].split(inner, factor=3, tail="guard")
        s[b].bind(y, te.thread_axis("threadIdx.y"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [a, b]


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "axes", "factor_first"),
    [(4, 48, 16, 1, True), (5, 47, 12, 1, True), (3, 29, 7, 1, False), (4, 31, 10, 2, False)],
)
def test_reductions_by_all_threads(
    rows: int, columns: int, threads: int, axes: int, factor_first: bool
) -> None:
    made = across(rows, columns, threads, axes=axes, factor_first=factor_first)
    equal_everywhere(made, lambda a: [a.sum(axis=1)])


def test_each_thread_folds_its_part_and_a_tree_folds_the_parts() -> None:
    """Of 64 numbers each of 16 threads adds four, and four steps add what they found."""
    text = ptx(across(4, 64, 16))
    assert len(re.findall(r"add(?:\.rn)?\.f32", text)) <= 4 + 1 + 4
    assert text.count("bar.sync") == 1 + 1 + 3
    assert "B.acc.parts" not in text
    source = opencl(across(4, 64, 16))
    assert re.findall(r"if \(\(k_inner_v_\d+ < (\d+)\)\)", source) == ["8", "4", "2", "1"]


def test_an_argument_of_the_maximum_by_all_threads() -> None:
    """Two results together, in the tree as well."""
    a = te.placeholder((3, 37), "int32", name="A")
    k = te.reduce_axis((0, 37), name="k")
    index, value = te.compute((3,), lambda i: te.argmax((te.cast(k, "int32"), a[i, k]), axis=k), name="B")
    s = te.create_schedule(index.op)
    _, inner = s[index].split(k, factor=8, tail="guard")
    s[index].bind(s[index].op.axis[0], te.thread_axis("blockIdx.x"))
    s[index].bind(inner, te.thread_axis("threadIdx.x"))
    equal_everywhere((s, [a, index, value]), lambda a: [a.argmax(axis=1), a.max(axis=1)])


def softmax(rows: int, columns: int, threads: int) -> Made:
    """A block a row: maximum and sum by all of its threads, into shared memory."""
    a = te.placeholder((rows, columns), name="A")
    k, n = (te.reduce_axis((0, columns), name=name) for name in "kn")
    top = te.compute((rows,), lambda i: te.max(a[i, k], axis=k), name="top")
    power = te.compute(a.shape, lambda i, j: te.exp(a[i, j] - top[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, n], axis=n), name="total")
    c = te.compute(a.shape, lambda i, j: power[i, j] / total[i], name="C")
    s = te.create_schedule(c.op)
    row, line = s[c].op.axis
    _, item = s[c].split(line, factor=threads, tail="guard")
    s[c].bind(row, te.thread_axis("blockIdx.x"))
    s[c].bind(item, te.thread_axis("threadIdx.x"))
    s[power].compute_inline()
    for stage in (total, top):
        s[stage].set_scope("shared")
        s[stage].compute_at(s[c], row)
        _, own = s[stage].split(s[stage].op.reduce_axis[0], factor=threads, tail="guard")
        s[stage].bind(own, te.thread_axis("threadIdx.x"))
    return s, [a, c]


def test_a_softmax_whose_reductions_are_by_all_threads() -> None:
    def wanted(a: Any) -> list[Any]:
        powers = np.exp(a - a.max(axis=1, keepdims=True))
        return [powers / powers.sum(axis=1, keepdims=True)]

    equal_everywhere(softmax(3, 45, 8), wanted)
