"""Primitives beyond the loops of one stage: the loops they make, the numbers they compute, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.errors import LoweringError, ScheduleError
from autotune.lower import lower_schedule, program_text
from autotune.lower.examples import arguments, blur, chain, grid, matmul, matmul_relu, rows, transposed
from autotune.schedule import Schedule, Trace
from tests.schedule.machine import run_machine_code

Made = tuple[Any, ...]
Case = tuple[Callable[[], Made], Callable[[Made], Any]]


def dense(n: int = 6, m: int = 20, k: int = 9) -> Made:
    """``relu(A B + bias)``: schedule, A, B, bias, product, sum, output."""
    _, a, b, c = matmul(n, m, k)
    bias = te.placeholder((m,), name="bias")
    d = te.compute((n, m), lambda i, j: c[i, j] + bias[j], name="D")
    e = te.compute((n, m), lambda i, j: te.maximum(d[i, j], 0.0), name="E")
    return te.create_schedule(e), a, b, bias, c, d, e


def fold_epilogues(p: Made) -> None:
    s, _, _, _, c, d, e = p
    s[d].reverse_compute_inline()
    s[e].reverse_compute_inline()
    i, j = s[c].op.axis
    (k,) = s[c].op.reduce_axis
    io, jo, ii, ji = s[c].tile(i, j, 4, 8)
    s[c].reorder(io, jo, k, ii, ji)
    s[c].unroll(ii)
    s[c].vectorize(ji)
    s[c].parallel(io)


def fold_a_copied_operand(p: Made) -> None:
    s, _, _, bias, c, d, _ = p
    s[d].reverse_compute_inline()
    copy = s.cache_read(bias, "local", [c])
    s[copy].compute_at(s[c], s[c].op.axis[0])


def fold_into_elementwise(p: Made) -> None:
    s, _, b, c = p
    s[b].vectorize(s[b].split(s[b].op.axis[0], 8)[1])
    s[c].reverse_compute_inline()


def tile_then_consumer(p: Made) -> None:
    s, _, _, c, d = p
    i, j = s[c].op.axis
    io, jo, _, _ = s[c].tile(i, j, 4, 8)
    s[c].parallel(io)
    s[d].reverse_compute_at(s[c], jo)


def fused_then_consumer(p: Made) -> None:
    s, _, _, c, d = p
    i, j = s[c].op.axis
    fused = s[c].fuse(i, j)
    outer, _ = s[c].split(fused, 5)
    s[d].reverse_compute_at(s[c], outer)


def decomposed_outside(p: Made) -> None:
    s, _, _, c = p
    i, j = s[c].op.axis
    s[c].decompose_reduction(i)
    s[c].vectorize(s[c].split(j, 8)[1])


def padded_everywhere(p: Made) -> None:
    s, _, _, c = p
    c = s.pad_to_multiple(c, s[c].op.reduce_axis[0], 4)
    c = s.pad_to_multiple(c, s[c].op.axis[1], 8)
    i, j = s[c].op.axis
    jo, ji = s[c].split(j, 8)
    s[c].reorder(i, jo, s[c].op.reduce_axis[0], ji)
    s[c].vectorize(ji)


def aligned_inside(p: Made) -> None:
    s, _, b, c = p
    outer, _ = s[c].split(s[c].op.axis[1], 4)
    s[c].reorder(outer, s[c].op.axis[0])
    s[b].compute_at(s[c], outer)
    s[b].storage_align(s[b].op.axis[0], 16, 3)


def prefetched(p: Made) -> None:
    s, a, b, c = p
    i, j = s[c].op.axis
    s[c].reorder(i, s[c].op.reduce_axis[0], j)
    s[c].vectorize(s[c].split(j, 8)[1])
    s[c].prefetch(a, i, 2)
    s[c].prefetch(b, s[c].op.reduce_axis[0], 1, level=2)


def blurs() -> Made:
    """A blur of a blur."""
    _, a, b, c = blur(34)
    size = c.shape[0] - 2
    d = te.compute((size,), lambda i: c[i] + c[i + 2], name="D")
    return te.create_schedule(d), a, b, c, d


def pipelined(p: Made) -> None:
    s, _, b, c = p
    outer, _ = s[c].split(s[c].op.axis[0], 4)
    s[b].compute_at(s[c], outer)
    s[c].software_pipeline(outer, 3)


def double_buffered(p: Made) -> None:
    s, _, b, c = p
    outer, inner = s[c].split(s[c].op.axis[0], 4)
    s[b].compute_at(s[c], outer)
    s[b].double_buffer()
    s[b].vectorize(s[b].op.axis[0])
    s[c].vectorize(inner)


def double_buffered_in_a_reduction(p: Made) -> None:
    """Columns of one factor, ahead of the others, in a loop that is unrolled."""
    s, a, _, c = p
    packed = s.cache_read(a, "local", [c])
    k = s[c].op.reduce_axis[0]
    outer, inner = s[c].split(k, 3)
    s[c].reorder(outer, *s[c].op.axis, inner)
    s[c].unroll(outer)
    s[packed].compute_at(s[c], outer)
    s[packed].double_buffer()


def pipelined_chain(p: Made) -> None:
    """One tile is computed from another, both ahead, and fetched for a part of the rows."""
    s, _, b, c, d = p
    outer, _ = s[d].split(s[d].op.axis[0], 4)
    s[c].compute_at(s[d], outer)
    s[b].compute_at(s[d], outer)
    s[d].software_pipeline(outer, 3)


def peeled_reduction(p: Made) -> None:
    s, _, c = p
    s[c].peel(s[c].op.reduce_axis[0], first=1, last=2)
    s[c].peel(s[c].op.axis[0], last=1)


def row_intrinsic() -> te.TensorIntrin:
    a, b = te.placeholder((3,), name="a"), te.placeholder((3, 8), name="b")
    r = te.reduce_axis((0, 3), name="r")
    row = te.compute((8,), lambda j: te.sum(a[r] * b[r, j], axis=r), name="row_3x8")
    return te.decl_tensor_intrin(row, kinds={"j": "vectorized", "r": "unrolled"})


def tensorized(p: Made) -> None:
    s, _, _, c = p
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    jo, ji = s[c].split(j, 8)
    ko, ki = s[c].split(k, 3)
    s[c].reorder(i, jo, ko, ki, ji)
    s[c].tensorize(ki, row_intrinsic())


def bound(p: Made) -> None:
    s, _, b = p
    i, j = s[b].op.axis
    outer, inner = s[b].split(j, 5)
    s[b].bind(i, te.thread_axis("blockIdx.x"))
    s[b].bind(outer, te.thread_axis("vthread"))
    s[b].bind(inner, te.thread_axis((0, 5), "threadIdx.x"))


WORKS: dict[str, Case] = {
    "reverse_compute_inline": (dense, fold_epilogues),
    "reverse_compute_inline_operand": (dense, fold_a_copied_operand),
    "reverse_compute_inline_elementwise": (lambda: chain(20), fold_into_elementwise),
    "reverse_compute_at": (lambda: matmul_relu(6, 20, 5), tile_then_consumer),
    "reverse_compute_at_fused": (lambda: matmul_relu(3, 4, 5), fused_then_consumer),
    "decompose_reduction": (lambda: matmul(3, 20, 5), decomposed_outside),
    "pad_to_multiple": (lambda: matmul(3, 13, 6), padded_everywhere),
    "storage_align": (lambda: transposed(6, 10), aligned_inside),
    "prefetch": (lambda: matmul(3, 24, 5), prefetched),
    "software_pipeline": (lambda: blur(30), pipelined),
    "software_pipeline_chain": (blurs, pipelined_chain),
    "double_buffer": (lambda: blur(30), double_buffered),
    "double_buffer_reduction": (lambda: matmul(3, 4, 14), double_buffered_in_a_reduction),
    "peel": (lambda: rows(4, 7), peeled_reduction),
    "tensorize": (lambda: matmul(3, 16, 6), tensorized),
    "bind": (lambda: grid(3, 10), bound),
}


def example(name: str) -> tuple[Schedule, list[te.Tensor]]:
    make, steps = WORKS[name]
    made = make()
    args = arguments(made[0])
    steps(made)
    return made[0], args


def values(args: list[te.Tensor], output: te.Tensor) -> tuple[dict[str, Any], Any]:
    """Arrays of the inputs, and what NumPy makes of them."""
    rng = np.random.default_rng(0)
    inputs = [t for t in args if isinstance(t.op, te.PlaceholderOp)]
    arrays = {t: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in inputs}
    (wanted,) = te.evaluate([output], arrays)
    return {t.name: array for t, array in arrays.items()}, wanted


def interpreted(s: Schedule, args: list[te.Tensor], arrays: dict[str, Any]) -> Any:
    output = args[-1]
    memory = {**arrays, output.name: np.full(output.shape, 99, output.dtype)}
    interpreter.run_program(lower_schedule(s, args), memory)
    return memory[output.name]


@pytest.mark.parametrize("name", WORKS)
def test_makes_these_loops(name: str, golden: Callable[[str], None]) -> None:
    s, args = example(name)
    golden(f"{s.trace.to_python()}\n\n{program_text(lower_schedule(s, args))}")


@pytest.mark.parametrize("name", WORKS)
def test_computes_the_same_numbers(name: str) -> None:
    s, args = example(name)
    arrays, wanted = values(args, args[-1])
    np.testing.assert_array_equal(interpreted(s, args, arrays), wanted)
    np.testing.assert_array_equal(run_machine_code(s, args, arrays)[args[-1].name], wanted)


@pytest.mark.parametrize("name", WORKS)
def test_traces_replay_from_json(name: str) -> None:
    s, args = example(name)
    again = WORKS[name][0]()[0]
    outputs = arguments(again)
    Trace.from_json(s.trace.to_json()).apply(again)
    assert again.trace.key == s.trace.key
    assert program_text(lower_schedule(again, outputs)) == program_text(lower_schedule(s, args))


# -- threads -----------------------------------------------------------------------------------------------


def gpu_matmul() -> tuple[Schedule, list[te.Tensor]]:
    """Blocks of 4 x 4 threads with 2 x 2 elements each; both operands staged in shared memory by all threads."""
    s, a, b, c = matmul(16, 24, 12)
    args = [a, b, c]
    a_shared, b_shared = (s.cache_read(t, "shared", [c]) for t in (a, b))
    c_local = s.cache_write(c, "local")
    threads = [te.thread_axis((0, 4), f"threadIdx.{d}") for d in "yx"]
    loops = []
    for axis, thread, block in zip(s[c].op.axis, threads, ("blockIdx.y", "blockIdx.x"), strict=True):
        outer, inner = s[c].split(axis, 8)
        s[c].bind(outer, te.thread_axis(block))
        thread_loop, own = s[c].split(inner, nparts=4)
        s[c].bind(thread_loop, thread)
        loops.append((outer, thread_loop, own))
    s[c].reorder(*(pair[k] for k in range(3) for pair in loops))
    s[c_local].compute_at(s[c], loops[1][1])
    (k,) = s[c_local].op.reduce_axis
    outer, inner = s[c_local].split(k, 4)
    s[c_local].reorder(outer, inner, *s[c_local].op.axis)
    for shared in (a_shared, b_shared):
        s[shared].compute_at(s[c_local], outer)
        y, x = s[shared].op.axis
        fused = s[shared].fuse(y, x)
        rest, tx = s[shared].split(fused, 4)
        rest, ty = s[shared].split(rest, 4)
        s[shared].bind(ty, threads[0])
        s[shared].bind(tx, threads[1])
    s[a_shared].storage_align(s[a_shared].op.axis[0], 4, 1)
    return s, args


def test_threads_load_shared_memory_together(golden: Callable[[str], None]) -> None:
    s, args = gpu_matmul()
    golden(program_text(lower_schedule(s, args)))


def test_threads_compute_what_numpy_does() -> None:
    s, args = gpu_matmul()
    arrays, wanted = values(args, args[-1])
    np.testing.assert_array_equal(interpreted(s, args, arrays), wanted)


def test_threads_that_exchange_data_take_turns_on_a_cpu() -> None:
    s, args = gpu_matmul()
    arrays, wanted = values(args, args[-1])
    np.testing.assert_array_equal(run_machine_code(s, args, arrays)[args[-1].name], wanted)


def test_without_barriers_the_threads_would_be_wrong() -> None:
    """The interpreter does run threads at once: barriers taken out, shared memory is read before it is written."""
    from autotune.lower.ir import Barrier, Seq

    s, args = gpu_matmul()
    arrays, wanted = values(args, args[-1])
    program = lower_schedule(s, args)

    def without(stmt: Any) -> Any:
        if isinstance(stmt, Barrier):
            return Seq(())
        if isinstance(stmt, Seq):
            return Seq(tuple(without(part) for part in stmt.stmts))
        if hasattr(stmt, "body"):
            stmt.body = without(stmt.body)
        return stmt

    kernels = tuple(replace(k, body=without(k.body)) for k in program.kernels)
    output = np.zeros(args[-1].shape, "float32")
    memory = {**arrays, args[-1].name: output}
    interpreter.run_program(replace(program, kernels=kernels), memory)
    assert not np.array_equal(output, wanted)


def test_a_loop_wider_than_its_thread_axis_is_refused() -> None:
    s, _, b, c = chain(64)
    outer, inner = s[c].split(s[c].op.axis[0], 16)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    tx, own = s[c].split(inner, nparts=4)
    s[c].bind(tx, te.thread_axis("threadIdx.x"))
    s[b].set_scope("shared")
    args = arguments(s)
    s[b].compute_at(s[c], tx)
    s[b].bind(s[b].op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(LoweringError) as refusal:
        lower_schedule(s, args)
    assert str(refusal.value) == (
        "loop i of stage B has 16 iterations bound to threadIdx.x, which has 4 threads there; split it by 4 first"
    )
    assert own.extent == 4


# -- refusals ----------------------------------------------------------------------------------------------


def refuse_tensorize_of_another_expression(p: Made) -> None:
    s, _, _, c = p
    a, b = te.placeholder((6,), name="a"), te.placeholder((6, 16), name="b")
    r = te.reduce_axis((0, 6), name="r")
    other = te.compute((16,), lambda j: te.sum(a[r] + b[r, j], axis=r), name="other")
    s[c].tensorize(s[c].op.axis[1], te.decl_tensor_intrin(other))


def refuse_tensorize_of_another_layout(p: Made) -> None:
    s, _, _, c = p
    a, b = te.placeholder((6,), name="a"), te.placeholder((16, 6), name="b")
    r = te.reduce_axis((0, 6), name="r")
    other = te.compute((16,), lambda j: te.sum(a[r] * b[j, r], axis=r), name="other")
    s[c].tensorize(s[c].op.axis[1], te.decl_tensor_intrin(other))


def read_twice() -> Made:
    _, a, b, c = chain(8)
    d = te.compute((8,), lambda i: b[i] + c[i], name="D")
    return te.create_schedule(d), a, b, c, d


def refuse_thread_of_a_thread(p: Made) -> None:
    s, _, b, c = p
    thread = te.thread_axis("threadIdx.x")
    s[c].bind(s[c].op.axis[0], thread)
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].bind(s[b].op.axis[0], thread)


def refuse_late_kind(p: Made) -> None:
    tensorized(p)
    s, _, _, c = p
    s[c].unroll(s[c].leaf_iter_vars[0])
    s[c].reorder(s[c].leaf_iter_vars[-1], s[c].leaf_iter_vars[-2])
    s[c].reorder(*reversed(s[c].leaf_iter_vars[-3:]))


REFUSED: dict[str, Case] = {
    "two_readers": (read_twice, lambda p: p[0][p[3]].reverse_compute_inline()),
    "reverse_inline_reduction": (lambda: matmul_relu(2, 3, 4), lambda p: p[0][p[3]].reverse_compute_inline()),
    "reverse_inline_shifted": (lambda: blur(8), lambda p: p[0][p[3]].reverse_compute_inline()),
    "reverse_inline_transposed": (lambda: transposed(4, 4), lambda p: p[0][p[3]].reverse_compute_inline()),
    "reverse_at_with_steps": (
        lambda: chain(8),
        lambda p: [
            p[0][p[3]].split(p[3].op.axis[0], 2),
            p[0][p[3]].reverse_compute_at(p[2], p[2].op.axis[0]),
        ],
    ),
    "decompose_twice_nested": (
        lambda: matmul(3, 4, 5),
        lambda p: [
            p[0][p[3]].decompose_reduction(p[3].op.axis[1]),
            p[0][p[3]].split(p[3].op.axis[1], 2),
        ],
    ),
    "decompose_parallel": (
        lambda: matmul(3, 4, 5),
        lambda p: [p[0][p[3]].parallel(p[3].op.axis[0]), p[0][p[3]].decompose_reduction(p[3].op.axis[0])],
    ),
    "pad_a_maximum": (
        lambda: (
            lambda a, k: (te.create_schedule(te.compute((3,), lambda i: te.max(a[i, k], axis=k), name="M")),)
        )(te.placeholder((3, 5), name="A"), te.reduce_axis((0, 5), name="k")),
        lambda p: p[0].pad_to_multiple(p[0]["M"].tensor, p[0]["M"].op.reduce_axis[0], 4),
    ),
    "align_output": (lambda: grid(3, 4), lambda p: p[0][p[2]].storage_align(p[2].op.axis[0], 8)),
    "bind_twice": (
        lambda: grid(3, 4),
        lambda p: [p[0][p[2]].bind(axis, te.thread_axis("threadIdx.x")) for axis in p[2].op.axis],
    ),
    "bind_extent": (
        lambda: grid(3, 4),
        lambda p: p[0][p[2]].bind(p[2].op.axis[0], te.thread_axis((0, 4), "threadIdx.x")),
    ),
    "bind_inside_the_same_axis": (lambda: chain(8), refuse_thread_of_a_thread),
    "tensorize_other": (lambda: matmul(3, 16, 6), refuse_tensorize_of_another_expression),
    "tensorize_layout": (lambda: matmul(3, 16, 6), refuse_tensorize_of_another_layout),
    "tensorize_then_unroll": (lambda: matmul(3, 16, 6), refuse_late_kind),
    "vectorize_peeled": (
        lambda: chain(8),
        lambda p: [p[0][p[3]].peel(p[3].op.axis[0], first=1), p[0][p[3]].vectorize(p[3].op.axis[0])],
    ),
    "vectorize_attached": (
        lambda: chain(8),
        lambda p: [p[0][p[2]].compute_at(p[3], p[3].op.axis[0]), p[0][p[3]].vectorize(p[3].op.axis[0])],
    ),
    "split_prefetched": (
        lambda: chain(8),
        lambda p: [p[0][p[2]].prefetch(p[1], p[2].op.axis[0]), p[0][p[2]].split(p[2].op.axis[0], 4)],
    ),
    "parallel_attached": (
        lambda: chain(8),
        lambda p: [p[0][p[2]].compute_at(p[3], p[3].op.axis[0]), p[0][p[2]].parallel(p[2].op.axis[0])],
    ),
    "epilogue_operand_in_reduction": (
        dense,
        lambda p: [
            p[0][p[5]].reverse_compute_inline(),
            p[0].cache_read(p[3], "local", [p[4]]),
            p[0]["bias.local"].compute_at(p[4], p[4].op.reduce_axis[0]),
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_with_this_message(name: str, golden: Callable[[str], None]) -> None:
    make, steps = REFUSED[name]
    made = make()
    with pytest.raises(ScheduleError) as refusal:
        steps(made)
    golden(str(refusal.value))


def test_a_reduction_takes_another_layout_without_padding() -> None:
    x, k = te.placeholder((6, 5, 7), name="x"), te.reduce_axis((0, 7), name="k")
    y = te.compute((6, 5), lambda i, j: te.sum(x[i, j, k], axis=k), name="y")
    z = te.compute((6, 5), lambda i, j: y[i, j] + 1.0, name="z")
    s = te.create_schedule(z.op)
    with pytest.raises(ScheduleError, match="y is a reduction, which has no padding"):
        s.transform_layout(y, lambda i, j: [i // 4, j, i % 4])
    assert s.transform_layout(y, lambda i, j: [j, i]).shape == (5, 6)
    array = np.arange(210, dtype=np.float32).reshape(6, 5, 7)
    np.testing.assert_allclose(run_machine_code(s, [x, z], {"x": array})["z"], array.sum(2) + 1.0, rtol=1e-6)
