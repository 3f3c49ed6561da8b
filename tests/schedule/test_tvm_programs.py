"""Programs as TVM 0.18's users wrote them, with the import changed: they run, and give NumPy's numbers.

Each is written for this test in the manner of a chapter of TVM's guide to te. GPU schedules run in the interpreter,
which executes threads, virtual threads and barriers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen import interpreter
from autotune.errors import LoweringError, ScheduleError
from autotune.lower import lower_schedule
from tests.schedule.machine import run_machine_code

Program = tuple[Any, list[te.Tensor], Callable[..., list[Any]]]
"""Schedule, arguments, and NumPy's way to compute the outputs from the inputs."""


def vector_add() -> Program:
    n = 100
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=16)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    return s, [A, B, C], lambda a, b: [a + b]


def vector_add_on_threads() -> Program:
    n = 100
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    bx, tx = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    return s, [A, B, C], lambda a, b: [a + b]


def gemm_on_cpu() -> Program:
    M, N, K, bn = 32, 48, 40, 16
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    packedB = te.compute((N // bn, K, bn), lambda bigN, k, littleN: B[k, bigN * bn + littleN], name="packedB")
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packedB[te.indexdiv(n, bn), k, te.indexmod(n, bn)], axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, _mi, _ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=4)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    s[C].parallel(mo)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)
    return s, [A, B, C], lambda a, b: [a @ b]


def row_sums_factored() -> Program:
    n, m = 20, 48
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    s[BF].compute_at(s[B], s[B].op.axis[0])
    s[BF].reorder(s[BF].op.axis[1], s[BF].op.reduce_axis[0], s[BF].op.axis[0])
    return s, [A, B], lambda a: [a.sum(axis=1)]


def row_sums_across_threads() -> Program:
    """The way to write a reduction across threads here: partial sums in shared memory, folded by each row's thread."""
    n, m = 20, 48
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=4)
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.y"))
    s[BF].set_scope("shared")
    s[BF].compute_at(s[B], xo)
    s[BF].bind(s[BF].op.axis[0], te.thread_axis("threadIdx.x"))
    s[BF].bind(s[BF].op.axis[1], te.thread_axis("threadIdx.y"))
    return s, [A, B], lambda a: [a.sum(axis=1)]


def convolution_as_a_reduction() -> Program:
    n = 9
    Input = te.placeholder((n, n), name="Input")
    Filter = te.placeholder((3, 3), name="Filter")
    di = te.reduce_axis((0, 3), name="di")
    dj = te.reduce_axis((0, 3), name="dj")
    Output = te.compute(
        (n - 2, n - 2),
        lambda i, j: te.sum(Input[i + di, j + dj] * Filter[di, dj], axis=[di, dj]),
        name="Output",
    )
    s = te.create_schedule(Output.op)
    s[Output].unroll(dj)

    def wanted(x: Any, w: Any) -> list[Any]:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
        return [np.einsum("ijkl,kl->ij", windows, w)]

    return s, [Input, Filter, Output], wanted


def general_reducer() -> Program:
    n, m = 6, 10
    product = te.comm_reducer(lambda x, y: x * y, lambda t: te.const(1, dtype=t), name="product")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: product(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].split(k, nparts=2)
    return s, [A, B], lambda a: [a.prod(axis=1)]


def mathematics() -> Program:
    n = 37
    A = te.placeholder((n,), name="A")
    B = te.compute(
        (n,), lambda i: te.exp(A[i]) + te.power(te.abs(A[i]), 2.0) + te.tanh(te.floor(A[i] / 2)), name="B"
    )
    s = te.create_schedule(B.op)
    _outer, inner = s[B].split(B.op.axis[0], nparts=4)
    s[B].vectorize(inner)
    return s, [A, B], lambda a: [np.exp(a) + np.abs(a) ** 2 + np.tanh(np.floor(a / 2))]


def tuple_of_results() -> Program:
    m, n = 5, 7
    A0 = te.placeholder((m, n), name="A0")
    A1 = te.placeholder((m, n), name="A1")
    B0, B1 = te.compute((m, n), lambda i, j: (A0[i, j] + 2, A1[i, j] * 3), name="B")
    s = te.create_schedule(B0.op)
    s[B0].reorder(*reversed(B0.op.axis))
    return s, [A0, A1, B0, B1], lambda a, b: [a + 2, b * 3]


def argmax_by_a_tuple_reducer() -> Program:
    def fcombine(x: Any, y: Any) -> Any:
        lhs = te.if_then_else((x[1] >= y[1]), x[0], y[0])
        rhs = te.if_then_else((x[1] >= y[1]), x[1], y[1])
        return lhs, rhs

    def fidentity(t0: str, t1: str) -> Any:
        return te.const(-1, t0), te.min_value(t1)

    argmax = te.comm_reducer(fcombine, fidentity, name="argmax")
    m, n = 5, 9
    idx = te.placeholder((m, n), name="idx", dtype="int32")
    val = te.placeholder((m, n), name="val", dtype="int32")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
    s = te.create_schedule(T0.op)
    s[T0].split(k, factor=4)

    def wanted(i: Any, v: Any) -> list[Any]:
        best = v.argmax(axis=1)
        return [np.take_along_axis(i, best[:, None], 1)[:, 0], v.max(axis=1)]

    return s, [idx, val, T0, T1], wanted


def one_of_each_primitive() -> Program:
    m = 24
    A = te.placeholder((m,), name="A")
    B = te.compute((m,), lambda i: A[i] + 1, name="B")
    C = te.compute((m,), lambda i: B[i] * 2, name="C")
    D = te.compute((m,), lambda i: C[i] - A[i], name="D")
    s = te.create_schedule([D.op])
    s[B].compute_inline()
    outer, inner = s[D].split(D.op.axis[0], nparts=3)
    s[C].compute_at(s[D], outer)
    s[D].pragma(outer, "auto_unroll_max_step", 16)
    s[D].unroll(inner)
    return s, [A, D], lambda a: [(a + 1) * 2 - a]


def convolution_on_threads(size: int = 6) -> Program:
    """Blocks, virtual threads, threads; both operands through shared memory and registers."""
    channels, filters, batch, kernel = 8, 8, 4, 3
    A = te.placeholder((size, size, channels, batch), name="A")
    W = te.placeholder((kernel, kernel, channels, filters), name="W")
    out = size
    Apad = te.compute(
        (size + 2, size + 2, channels, batch),
        lambda yy, xx, cc, nn: te.if_then_else(
            te.all(yy >= 1, yy - 1 < size, xx >= 1, xx - 1 < size),
            A[yy - 1, xx - 1, cc, nn],
            te.const(0.0, "float32"),
        ),
        name="Apad",
    )
    rc = te.reduce_axis((0, channels), name="rc")
    ry = te.reduce_axis((0, kernel), name="ry")
    rx = te.reduce_axis((0, kernel), name="rx")
    B = te.compute(
        (out, out, filters, batch),
        lambda yy, xx, ff, nn: te.sum(Apad[yy + ry, xx + rx, rc, nn] * W[ry, rx, rc, ff], axis=[ry, rx, rc]),
        name="B",
    )
    s = te.create_schedule(B.op)
    s[Apad].compute_inline()
    AA = s.cache_read(Apad, "shared", [B])
    WW = s.cache_read(W, "shared", [B])
    AL = s.cache_read(AA, "local", [B])
    WL = s.cache_read(WW, "local", [B])
    BL = s.cache_write(B, "local")

    block_x, block_z = te.thread_axis("blockIdx.x"), te.thread_axis("blockIdx.z")
    thread_x = te.thread_axis((0, 2), "threadIdx.x")
    vthread = te.thread_axis((0, 2), "vthread", name="vx")
    hi, wi, fi, ni = s[B].op.axis
    bz = s[B].fuse(hi, wi)
    s[B].bind(bz, block_z)
    bx, fi = s[B].split(fi, factor=8)
    s[B].bind(bx, block_x)
    tvx, fi = s[B].split(fi, nparts=2)
    s[B].bind(tvx, vthread)
    tx, fi = s[B].split(fi, nparts=2)
    s[B].bind(tx, thread_x)
    s[B].reorder(bz, bx, tvx, tx, fi, ni)

    s[BL].compute_at(s[B], tx)
    _, _, fi, ni = s[BL].op.axis
    ry, rx, rc = s[BL].op.reduce_axis
    rco, rci = s[BL].split(rc, factor=4)
    s[BL].reorder(rco, ry, rx, rci, fi, ni)
    s[AL].compute_at(s[BL], rci)  # the readers first: TVM takes these in any order
    s[WL].compute_at(s[BL], rci)
    s[AA].compute_at(s[BL], rx)
    s[WW].compute_at(s[BL], rx)
    for shared in (AA, WW):
        tx, _ = s[shared].split(s[shared].op.axis[3], nparts=2)
        s[shared].reorder(tx, *s[shared].op.axis[:3])
        s[shared].bind(tx, thread_x)

    def wanted(a: Any, w: Any) -> list[Any]:
        padded = np.pad(a, ((1, 1), (1, 1), (0, 0), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(0, 1))
        return [np.einsum("yxcnij,ijcf->yxfn", windows, w)]

    return s, [A, W, B], wanted


ON_CPU = (
    vector_add,
    gemm_on_cpu,
    row_sums_factored,
    convolution_as_a_reduction,
    general_reducer,
    mathematics,
    tuple_of_results,
    argmax_by_a_tuple_reducer,
    one_of_each_primitive,
)
ON_THREADS = (vector_add_on_threads, row_sums_across_threads, convolution_on_threads)


def inputs_of(args: list[te.Tensor]) -> dict[str, Any]:
    """Small integers, of which only the indices must not repeat."""
    rng = np.random.default_rng(0)
    placeholders = [t for t in args if isinstance(t.op, te.PlaceholderOp)]
    return {t.name: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in placeholders}


@pytest.mark.parametrize("program", [*ON_CPU, *ON_THREADS], ids=lambda p: p.__name__)
def test_the_interpreter_agrees_with_numpy(program: Callable[[], Program]) -> None:
    s, args, wanted = program()
    arrays = inputs_of(args)
    outputs = [t for t in args if t.name not in arrays]
    memory = {**arrays, **{t.name: np.zeros(t.shape, t.dtype) for t in outputs}}
    interpreter.run_program(lower_schedule(s, args), memory)
    for tensor, value in zip(outputs, wanted(*arrays.values()), strict=True):
        np.testing.assert_allclose(memory[tensor.name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("program", ON_CPU, ids=lambda p: p.__name__)
def test_machine_code_agrees_with_numpy(program: Callable[[], Program]) -> None:
    s, args, wanted = program()
    assert "kernel" in str(autotune.lower(s, args, simple_mode=True))
    arrays = inputs_of(args)
    outputs = [t for t in args if t.name not in arrays]
    computed = run_machine_code(s, args, arrays)
    for tensor, value in zip(outputs, wanted(*arrays.values()), strict=True):
        np.testing.assert_allclose(computed[tensor.name], value, rtol=1e-5, atol=1e-5)


def across_threads() -> Program:
    """A reduction across the threads of a block, as in TVM's tutorial on reductions."""
    A = te.placeholder((20, 48), name="A")
    k = te.reduce_axis((0, 48), "k")
    B = te.compute((20,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=4)
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.y"))
    tx = te.thread_axis("threadIdx.x")
    s[B].bind(s[B].op.reduce_axis[0], tx)
    s[BF].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].set_store_predicate(tx.var.equal(0))
    return s, [A, B], lambda a: [a.sum(axis=1)]


@pytest.mark.parametrize("run", [test_the_interpreter_agrees_with_numpy, test_machine_code_agrees_with_numpy])
def test_a_reduction_across_threads(run: Callable[[Callable[[], Program]], None]) -> None:
    run(across_threads)


def test_a_store_predicate_is_about_the_threads_of_a_reduction() -> None:
    s, (_, B), _ = across_threads()
    with pytest.raises(
        ScheduleError, match=r"^set_store_predicate: threadIdx.z is no thread axis that a reduction"
    ):
        s[B].set_store_predicate(te.thread_axis("threadIdx.z").var.equal(0))


def test_a_stage_is_placed_before_its_reader() -> None:
    A = te.placeholder((16, 16), name="A")
    B = te.compute((16, 16), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((16, 16), lambda i, j: B[i, j] + 1, name="C")
    D = te.compute((16, 16), lambda i, j: C[i, j] * C[i, j], name="D")
    s = te.create_schedule(D.op)
    row = s[D].op.axis[0]
    s[B].compute_at(s[D], row)  # C, which reads it, is still at the root
    with pytest.raises(LoweringError, match="stage B is computed at D, i, but is read outside of that loop"):
        lower_schedule(s, [A, D])
    s[C].compute_at(s[D], row)
    a = np.random.default_rng(0).integers(-9, 9, (16, 16)).astype("float32")
    np.testing.assert_array_equal(run_machine_code(s, [A, D], {"A": a})["D"], (a * 2 + 1) ** 2)
    with pytest.raises(
        ScheduleError, match="compute_root: B would be computed at D, i, but C reads it outside"
    ):
        s[C].compute_root()
