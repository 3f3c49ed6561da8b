"""Programs that random testing found to go wrong, in their smallest form."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.codegen.backend import compile_schedule
from autotune.codegen.elf import read_symbols
from autotune.errors import LoweringError, ScheduleError
from autotune.lower import lower_schedule, program_text, verify
from autotune.lower.ir import If, walk
from autotune.schedule import Schedule
from autotune.target import Target
from tests.schedule import loop_interpreter
from tests.schedule.machine import run_machine_code
from tests.schedule.random_steps import state_text

pytestmark = pytest.mark.registers


def assert_computes(schedule: Schedule, inputs: list[te.Tensor], output: te.Tensor) -> None:
    """The interpreter and machine code give what NumPy gives, on small integers."""
    rng = np.random.default_rng(0)
    arrays = []
    for tensor in inputs:  # no zeros: they hide what is added too often
        sign = 1 if tensor.dtype.startswith("u") else rng.choice([-1, 1], tensor.shape)
        arrays.append((sign * rng.integers(1, 4, tensor.shape)).astype(tensor.dtype))
    (wanted,) = te.evaluate([output], dict(zip(inputs, arrays, strict=True)))
    named = {t.name: a for t, a in zip(inputs, arrays, strict=True)}
    args = [*inputs, output]
    program: Any = lower_schedule(schedule, args)
    np.testing.assert_array_equal(loop_interpreter.run_program(program, named)[output.name], wanted)
    np.testing.assert_array_equal(run_machine_code(schedule, args, named)[output.name], wanted)


def row_sums(rows: int, columns: int) -> tuple[te.Tensor, te.Tensor, Any]:
    a = te.placeholder((rows, columns), name="A")
    r = te.reduce_axis((0, columns), name="r")
    return a, te.compute((rows,), lambda i: te.sum(a[i, r], axis=r), name="C"), r


def test_a_refused_step_changes_nothing() -> None:
    _, c, _ = row_sums(8, 8)
    s = te.create_schedule(c)
    i = s[c].op.axis[0]
    s[c].parallel(i)
    before = state_text(s)
    with pytest.raises(ScheduleError, match="annotated already"):
        s[c].split(i, 2)
    assert state_text(s) == before


def test_a_step_on_the_second_output_of_a_tuple_replays() -> None:
    def schedule() -> tuple[Schedule, te.Tensor]:
        p = te.placeholder((4, 8), name="P")
        r = te.reduce_axis((0, 8), name="r")
        _, value = te.compute((4,), lambda i: te.argmax((te.cast(r, "int32"), p[i, r]), axis=r), name="M")
        o = te.compute((4,), lambda i: value[i] + 1, name="O")
        return te.create_schedule(o), value

    s, value = schedule()
    s.cache_read(value, "local", ["O"])
    replayed = s.trace.apply(schedule()[0])
    assert state_text(replayed) == state_text(s)


def test_the_loop_of_an_attached_stage_may_not_disappear() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    c = te.compute((8,), lambda i: b[i] * 2, name="C")
    s = te.create_schedule(c)
    s[b].compute_at(s[c], s[c].op.axis[0])
    with pytest.raises((ScheduleError, LoweringError)):  # noqa: PT012  # at the step or when lowered
        s[c].split(s[c].op.axis[0], 4)
        lower_schedule(s, [a, c])


def test_overlap_inside_of_a_reduction_adds_once() -> None:
    a, c, r = row_sums(11, 6)
    s = te.create_schedule(c)
    i = s[c].op.axis[0]
    s[c].reorder(r, i)
    s[c].split(i, factor=2, tail="overlap")
    assert_computes(s, [a], c)


def test_a_vectorized_outer_loop_has_an_accumulator_a_lane() -> None:
    p = te.placeholder((4, 3, 5), name="P")
    r = te.reduce_axis((0, 5), name="r")
    c = te.compute((4, 3), lambda i, j: te.sum(p[i, j, r], axis=r), name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].op.axis[0])
    assert_computes(s, [p], c)


def test_a_vectorized_loop_inside_of_another() -> None:
    a, c, r = row_sums(4, 4)
    s = te.create_schedule(c)
    s[c].vectorize(r)
    s[c].reorder(r, s[c].op.axis[0])
    s[c].vectorize(s[c].op.axis[0])
    assert_computes(s, [a], c)


def test_a_copy_at_the_root_may_not_read_a_stage_inside_of_a_loop() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    c = te.compute((4,), lambda i: b[i] * 2, name="C")
    s = te.create_schedule(c)
    s[b].compute_at(s[c], s[c].op.axis[0])
    with pytest.raises((ScheduleError, LoweringError)):  # noqa: PT012  # at the step or when lowered
        s.cache_read(b, "global", [c])
        lower_schedule(s, [a, c])


def test_an_accumulator_inside_of_an_unrolled_loop() -> None:
    p = te.placeholder((2, 2, 1, 1), name="P")
    r = te.reduce_axis((2, 3), name="r")
    c = te.compute((1, 2, 2), lambda i0, i1, i2: te.prod(p[0, i2, r - 2, i0], axis=r), name="C")
    s = te.create_schedule(c)
    i0, i1, i2 = s[c].op.axis
    outer, inner = s[c].split(i1, factor=2)
    s[c].unroll(i2)
    s[c].unroll(inner)
    s[c].reorder(i2, r, i0, outer)
    assert_computes(s, [p], c)


def test_a_vectorized_reduction_around_a_data_loop_and_another_reduction() -> None:
    p = te.placeholder((3, 4, 2), name="P")
    r, q = te.reduce_axis((0, 4), name="r"), te.reduce_axis((0, 2), name="q")
    c = te.compute((3,), lambda i: te.sum(p[i, r, q], axis=[r, q]), name="C")
    s = te.create_schedule(c)
    s[c].reorder(r, s[c].op.axis[0], q)
    s[c].vectorize(r)
    assert_computes(s, [p], c)


def test_the_outer_loop_of_a_peeled_split_vectorized() -> None:
    a = te.placeholder((7, 4), name="A")
    r = te.reduce_axis((0, 4), name="r")
    c = te.compute((7,), lambda i: te.max(a[i, r], axis=r), name="C")
    s = te.create_schedule(c)
    outer, _ = s[c].split(s[c].op.axis[0], factor=3)
    s[c].vectorize(outer)
    assert_computes(s, [a], c)


def test_float16_arithmetic_needs_no_library() -> None:
    a = te.placeholder((5,), "float16", name="A")
    c = te.compute((5,), lambda i: a[i] + a[i] * a[i], name="C")
    assert_computes(te.create_schedule(c), [a], c)
    code = compile_schedule(te.create_schedule(c), [a, c], Target.parse("x86-64-v2")).object_code
    assert not read_symbols(code).undefined


def test_an_output_without_elements() -> None:
    a = te.placeholder((4,), name="A")
    c = te.compute((0, 4), lambda i, j: a[j], name="C")
    args = [a, c]
    result = run_machine_code(te.create_schedule(c), args, {"A": np.ones(4, "float32")})
    assert result["C"].shape == (0, 4)


def test_another_layout_of_a_tuple_stage() -> None:
    p = te.placeholder((4,), name="P")
    _, b = te.compute((4,), lambda i: (p[i], p[i] + 1), name="T")
    c = te.compute((4,), lambda i: b[i] * 2, name="C")
    s = te.create_schedule(c)
    try:
        s.transform_layout(b, lambda i: [i // 2, i % 2])
    except ScheduleError:
        return
    assert_computes(s, [p], c)


def test_a_stage_with_a_loop_of_its_own_inside_of_a_vectorized_loop() -> None:
    a, p = te.placeholder((4,), name="A"), te.placeholder((2,), "uint8", name="P")
    t = te.compute((4,), lambda i: a[i] + 1, name="T")
    r = te.reduce_axis((0, 3), name="r")
    c = te.compute((2, 2), lambda i, j: te.min(t[te.minimum(p[i], 3)], axis=r), name="C")
    s = te.create_schedule(c)
    i, j = s[c].op.axis
    s[c].reorder(i, r, j)
    s[t].compute_at(s[c], j)
    try:
        s[c].vectorize(j)
    except ScheduleError:
        return
    assert_computes(s, [a, p], c)


def test_a_stage_that_only_a_part_of_a_cut_loop_reads() -> None:
    p, q = te.placeholder((5, 2), name="P"), te.placeholder((2, 3), name="Q")
    t = te.compute((2, 2, 2), lambda i, j, k: p[k * 2 + 2, j], name="T")
    c = te.compute(
        (2, 3),
        lambda i, j: te.maximum(
            q[i, j], te.if_then_else(j >= 2, t[te.minimum(j, 1), j - 2, i], te.const(0, "float32"))
        ),
        name="C",
    )
    s = te.create_schedule(c)
    s[t].compute_at(s[c], s[c].op.axis[1])
    assert_computes(s, [p, q], c)


def test_padding_of_unrolled_windows_is_not_read() -> None:
    t = te.placeholder((5, 3), name="T")
    r = te.reduce_axis((0, 2), name="r")

    def padded(i: Any, j: Any) -> Any:
        row, column = i + r - 1, j * 3 - 1
        inside = te.all(row >= 0, row < 5, column >= 0, column < 3)
        return te.if_then_else(inside, t[row, column], te.const(0, "float32"))

    c = te.compute((6, 2), lambda i, j: te.sum(padded(i, j), axis=r), name="C")
    s = te.create_schedule(c)
    s[c].unroll(r)
    assert_computes(s, [t], c)


def test_a_reader_inside_of_a_split_loop_of_its_producer() -> None:
    p = te.placeholder((8,), name="P")
    t = te.compute((8,), lambda i: p[i] + 1, name="T")
    c = te.compute((8,), lambda j: t[j] * 2, name="C")
    s = te.create_schedule(c)
    outer, _ = s[t].split(s[t].op.axis[0], 4)
    s[c].reverse_compute_at(s[t], outer)
    assert_computes(s, [p], c)


def test_a_prefetched_stage_is_not_inlined() -> None:
    p = te.placeholder((8,), name="P")
    t = te.compute((8,), lambda i: p[i] + 1, name="T")
    c = te.compute((8,), lambda j: t[j] * 2, name="C")
    s = te.create_schedule(c)
    with pytest.raises((ScheduleError, LoweringError)):  # noqa: PT012  # at the step or when lowered
        s[t].compute_inline()
        s[c].prefetch(t, s[c].op.axis[0], 1)
        lower_schedule(s, [p, c])


def test_a_prefetch_of_what_is_never_read() -> None:
    p = te.placeholder((4,), name="P")
    zero = te.const(0, "float32")
    c = te.compute((2,), lambda i: te.if_then_else(i >= 2, p[i - 2], zero), name="C")
    s = te.create_schedule(c)
    s[c].prefetch(p, s[c].op.axis[0], 2)
    assert_computes(s, [p], c)


def test_padding_of_a_reduction_that_reads_a_part() -> None:
    a = te.placeholder((3,), name="A")
    r = te.reduce_axis((0, 3), name="r")
    zero = te.const(0, "float32")
    c = te.compute((1,), lambda i: te.sum(te.if_then_else(r >= 1, a[r - 1], zero), axis=r), name="C")
    s = te.create_schedule(c)
    try:
        s.pad_to_multiple(c, r, 4)
    except ScheduleError:
        return
    assert_computes(s, [a], c)


def test_a_prefetch_beside_an_output_of_a_tuple_that_nothing_reads() -> None:
    p = te.placeholder((2,), name="P")
    _, b = te.compute((2,), lambda i: (p[i], p[i] + 1), name="T")
    c = te.compute((2, 2), lambda i, j: b[j] * 2, name="C")
    s = te.create_schedule(c)
    s[b].prefetch(p, s[b].op.axis[0], 3)
    s[b].compute_at(s[c], s[c].op.axis[0])
    assert_computes(s, [p], c)


def test_another_layout_of_a_prefetched_stage() -> None:
    p = te.placeholder((8,), name="P")
    t = te.compute((8,), lambda i: p[i] + 1, name="T")
    c = te.compute((8,), lambda i: t[i] * 2, name="C")
    s = te.create_schedule(c)
    s[c].prefetch(t, s[c].op.axis[0], 3)
    try:
        s.transform_layout(t, lambda i: [i // 4, i % 4])
    except ScheduleError:
        return
    assert_computes(s, [p], c)


def test_padding_keeps_epilogues() -> None:
    """A padded data axis lost the epilogue that was folded in before; it is refused, and the other order works."""

    def made() -> tuple[Schedule, te.Tensor, te.Tensor]:
        a = te.placeholder((3, 5), name="A")
        k = te.reduce_axis((0, 5), name="k")
        b = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="B")
        c = te.compute((3,), lambda i: b[i] * 2 + 1, name="C")
        return te.create_schedule(c), a, c

    s, a, c = made()
    s[c].reverse_compute_inline()
    with pytest.raises(ScheduleError, match="B has an epilogue; call pad_to_multiple first"):
        s.pad_to_multiple(s["B"].tensor, s["B"].op.axis[0], 4)
    assert_computes(s, [a], c)


def test_the_operands_of_an_intrinsic_are_stored() -> None:
    """Loops that an intrinsic without instructions replaces had no operand to name: an assertion failed."""
    p = te.placeholder((4,), name="P")
    t = te.compute((4,), lambda i: p[i], name="T")
    c = te.compute((4,), lambda i: t[i] * 2, name="C")
    s = te.create_schedule(c)
    copy = s.cache_read(t, "local", [c])
    source = te.placeholder((4,), name="source")
    moved = te.decl_tensor_intrin(te.compute((4,), lambda i: source[i], name="moved_4").op)
    s[t].compute_inline()
    with pytest.raises(ScheduleError, match="moved_4 reads source from memory, here T, which is inlined"):
        s[copy].tensorize(s[copy].op.axis[0], moved)
    s[t].compute_root()
    s[copy].tensorize(s[copy].op.axis[0], moved)
    assert_computes(s, [p], c)


def test_shared_memory_holds_what_all_threads_of_a_fused_loop_need() -> None:
    """The loops that a fused one is made of have names; that they differ by thread was not seen."""
    p = te.placeholder((3, 3), name="P")
    t = te.compute((3, 3), lambda i, j: p[i, j] + 1, name="T")
    c = te.compute((3, 3), lambda i, j: t[j, i] * 2, name="C")
    s = te.create_schedule(c)
    fused = s[c].fuse(*s[c].op.axis)
    s[t].compute_at(s[c], fused)
    s[t].set_scope("shared")
    s[c].bind(fused, te.thread_axis("threadIdx.x"))
    arrays = {"P": np.arange(9, dtype="float32").reshape(3, 3), "C": np.zeros((3, 3), "float32")}
    interpreter.run_program(lower_schedule(s, [p, c]), arrays)
    np.testing.assert_array_equal(arrays["C"], (arrays["P"].T + 1) * 2)


@pytest.mark.parametrize("tail", ["overlap", "peel"])
@pytest.mark.parametrize("factor", [8, 1])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_loop_of_one_iteration_leaves_a_remainder_as_asked(
    tail: str, factor: int, order: tuple[int, ...]
) -> None:
    """A loop of one iteration in front of a remainder made it guarded: a condition inside of vectors."""
    a = te.placeholder((21,), name="A")
    c = te.compute((21,), lambda i: a[i] + 1, name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(s[c].op.axis[0], factor=8, tail=tail)
    loops = [outer, *s[c].split(inner, factor=factor)]
    s[c].reorder(*(loops[n] for n in order))
    assert_computes(s, [a], c)
    if order.index(0) < order.index(1 if factor == 1 else 2):  # else no loop knows the remainder
        conditions = [p for k in lower_schedule(s, [a, c]).kernels for p in walk(k.body) if isinstance(p, If)]
        assert conditions == []


def test_a_remainder_of_one_is_an_axis_of_one_place() -> None:
    """Panels of one column, as an attention over a single key has them."""
    a = te.placeholder((4, 6), name="A")
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 6), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    panels = s.transform_layout(b, lambda i, j: [i, j // 1, j % 1])
    assert panels.shape == (4, 6, 1)
    assert_computes(s, [a], c)


def test_a_stage_that_is_inlined_at_a_looked_up_index_of_32_bits() -> None:
    """Its conditions compared the index with numbers of 64 bits, which LLVM refuses."""
    p = te.placeholder((4,), name="P", dtype="int32")
    q = te.placeholder((8,), name="Q")
    padded = te.compute((8,), lambda i: te.if_then_else(te.all(i >= 1, i < 7), q[i - 1], 0.0), name="T")
    inside = lambda i: te.all(p[i] >= 0, p[i] < 8)  # noqa: E731
    c = te.compute((4,), lambda i: te.if_then_else(inside(i), padded[p[i]], 1.0), name="C")
    s = te.create_schedule(c.op)
    s[padded].compute_inline()
    s[c].vectorize(s[c].op.axis[0])
    assert_computes(s, [p, q], c)


@pytest.mark.parametrize(("unrolled", "overlaps"), [(False, False), (True, True)])
def test_concurrent_tiles_that_overlap_do_not_add_to_the_same_elements(
    unrolled: bool, overlaps: bool
) -> None:
    """The last of three tiles of four rows started a row early: two workers added to row 7 in memory at once.

    Where a tile adds in registers and stores what is finished, both store the same, and the tiles still overlap.
    """
    p = te.placeholder((14, 11), name="P")
    r = te.reduce_axis((0, 14), name="r")
    c = te.compute((11, 11), lambda i, j: te.sum(p[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    outer, inner = s[c].split(i, factor=4, tail="overlap")
    s[c].parallel(outer)
    s[c].reorder(outer, r, inner, j)
    if unrolled:
        s[c].unroll(inner)
        s[c].unroll(j)
    program = lower_schedule(s, [p, c])
    assert ("min(i.outer * 4, 7)" in program_text(program)) == overlaps
    pytest.importorskip("islpy")
    assert verify(s, [p, c]).status == "proven"
    assert_computes(s, [p], c)


def test_a_branch_that_the_range_of_data_decides_is_proved() -> None:
    """A maximum with 0 is not negative: lowering left out the branch for negative numbers, and the proof missed it."""
    pytest.importorskip("islpy")
    p = te.placeholder((9,), name="P", dtype="int32")
    c = te.compute((9,), lambda i: te.truncdiv(te.maximum(p[i], 0), 2), name="C")
    assert verify(te.create_schedule(c.op), [p, c]).status == "proven"
