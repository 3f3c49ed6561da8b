"""Indices that leave a tensor are errors before any code is made; those that data decide follow one rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import InputError, LoweringError
from autotune.te.guards import MOST_CASES
from autotune.te.sequential import sequential
from autotune.te.statements import Steps
from autotune.te.witness import MOST_POINTS, Undecided, witness

X = te.placeholder((9,), name="X")
M = te.placeholder((5, 7), name="M")
I = te.placeholder((4,), "int32", name="I")  # noqa: E741
NUMBERS = np.arange(1, 10, dtype=np.float32)

Read = Callable[..., Any]


def stage(read: Read, *shape: int) -> te.Tensor:
    tensor: te.Tensor = te.compute(shape or (9,), read, name="C")
    return tensor


def refused(tensor: te.Tensor) -> str:
    """The error of lowering, which is that of evaluation."""
    inputs = [op.output(0) for op in (X.op, M.op, I.op)]
    used = [t for t in inputs if t in tensor.op.input_tensors]
    with pytest.raises(LoweringError) as lowered:
        autotune.lower(te.create_schedule(tensor.op), [*used, tensor])
    with pytest.raises(LoweringError) as evaluated:
        te.evaluate([tensor], {t: np.zeros(t.shape, t.dtype) for t in used})
    assert str(evaluated.value) == str(lowered.value)
    return str(lowered.value)


def results(tensor: te.Tensor, **inputs: Any) -> list[Any]:
    """Return the tensor by evaluation, the interpreter and machine code, all of which agree."""
    used = list(tensor.op.input_tensors)
    arrays = [np.asarray(inputs[t.name], t.dtype) for t in used]
    (expected,) = te.evaluate([tensor], dict(zip(used, arrays, strict=True)))
    for target in ("host", "interpreter"):
        found = np.zeros(tensor.shape, tensor.dtype)
        autotune.build(te.create_schedule(tensor.op), [*used, tensor], target=target)(*arrays, found)
        np.testing.assert_array_equal(found, expected, err_msg=target)
    listed: list[Any] = expected.tolist()
    return listed


# -- what is refused -----------------------------------------------------------------------------------------


def test_the_whole_message() -> None:
    assert refused(stage(lambda i: X[i + 3])) == (
        "stage C reads X[i + 3] out of bounds: index 0, i + 3, is from 3 to 11, and X has indices from 0 to 8, as for "
        "i = 6\n  a read under te.if_then_else is not made where the condition does not hold; only an index that data "
        "decide counts from the end where it is negative"
    )


@pytest.mark.parametrize(
    ("read", "shape", "said"),
    [
        (lambda i: X[i - 1], (9,), "index 0, i - 1, is from -1 to 7"),
        (lambda i: X[i + 100_000_000], (9,), "is from 100000000 to 100000008"),
        (lambda i: X[-1], (9,), "index 0, -1, is -1,"),
        (lambda i: X[i * 2], (9,), "is from 0 to 16, and X has indices from 0 to 8, as for i = 5"),
        (lambda i: X[i * i // 8], (10,), "is from 0 to 10, and X has indices from 0 to 8, as for i = 9"),
        (lambda i: X[(i * 3) % 11], (9,), "is from 0 to 10"),
        (lambda i, j: M[j, i], (5, 7), "index 0, j, is from 0 to 6, and M has indices from 0 to 4"),
        (lambda i, j: M[i, i + j], (5, 7), "index 1, i + j, is from 0 to 10"),
        (lambda i: te.if_then_else(i < 7, X[i + 3], 0.0), (9,), "is from 3 to 9"),
        (lambda i: te.if_then_else(i < 6, 0.0, X[i + 3]), (9,), "is from 9 to 11"),
        (lambda i: te.if_then_else(te.any(i < 6, i > 7), X[i + 3], 0.0), (9,), "is from 3 to 11"),
        (lambda i, j: te.if_then_else(i + j < 10, X[i + j], 0.0), (9, 9), "is from 0 to 9"),
        (lambda i: te.if_then_else(te.all(i < 8, X[i + 2] > 0.0), 1.0, 0.0), (9,), "is from 2 to 9"),
        (lambda i: te.if_then_else(X[i + 1] > 0.0, 1.0, 0.0), (9,), "is from 1 to 9"),
    ],
)
def test_an_index_of_loops_that_leaves_its_tensor(read: Read, shape: tuple[int, ...], said: str) -> None:
    message = refused(stage(read, *shape))
    assert message.startswith("stage C reads ")
    assert said in message


def test_reads_of_a_reduction_and_of_an_intermediate_stage() -> None:
    k = te.reduce_axis((0, 4), name="k")
    assert "index 0, i + k, is from 0 to 11" in refused(stage(lambda i: te.sum(X[i + k], axis=k)))
    double = te.compute((9,), lambda i: X[i] * 2.0, name="double")
    last = stage(lambda i: double[i + 1])
    s = te.create_schedule(last.op)
    for inline in (False, True):
        if inline:
            s[double].compute_inline()
        with pytest.raises(LoweringError, match=r"stage C reads double\[i \+ 1\] out of bounds"):
            autotune.lower(s, [X, last])


def test_an_inlined_stage_has_the_shape_that_it_was_given() -> None:
    """A read of it is outside, although what it reads itself is there."""
    start = te.compute((5,), lambda i: X[i], name="start")
    last = te.compute((9,), lambda i: start[i], name="C")
    s = te.create_schedule(last.op)
    s[start].compute_inline()
    with pytest.raises(LoweringError, match="start has indices from 0 to 4"):
        autotune.lower(s, [X, last])


def test_the_padding_of_a_layout_is_outside() -> None:
    double = te.compute((9,), lambda i: X[i] * 2.0, name="double")
    last = te.compute((9,), lambda i: double[i + 3], name="C")
    s = te.create_schedule(last.op)
    with pytest.raises(LoweringError, match=r"stage C reads double\[i \+ 3\] out of bounds"):
        s.transform_layout(double, lambda i: [i // 4, i % 4])


def test_a_tensor_without_elements() -> None:
    empty = te.placeholder((0,), name="E")
    last = te.compute((3,), lambda i: empty[i], name="C")
    with pytest.raises(LoweringError, match="and E has no elements"):
        autotune.lower(te.create_schedule(last.op), [empty, last])
    chosen = te.compute((4,), lambda i: empty[I[i]], name="C")
    with pytest.raises(LoweringError, match="and E has no elements"):
        autotune.lower(te.create_schedule(chosen.op), [empty, I, chosen])


# -- what is right -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda i: te.if_then_else(i < 6, X[i + 3], 0.0), [4, 5, 6, 7, 8, 9, 0, 0, 0]),
        (lambda i: te.if_then_else(i >= 1, X[i - 1], 0.0), [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (lambda i: te.if_then_else(i > 5, 0.0, X[i + 3]), [4, 5, 6, 7, 8, 9, 0, 0, 0]),
        (lambda i: te.if_then_else(te.all(i >= 1, X[i - 1] > 2.0), 1.0, 0.0), [0, 0, 0, 1, 1, 1, 1, 1, 1]),
        (lambda i: te.if_then_else(te.any(i < 1, X[i - 1] > 2.0), 1.0, 0.0), [1, 0, 0, 1, 1, 1, 1, 1, 1]),
        (lambda i: X[te.minimum(i + 3, 8)], [4, 5, 6, 7, 8, 9, 9, 9, 9]),
        (lambda i: X[(i // 3) * 3 + i % 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (lambda i: X[i * i // 9], [1, 1, 1, 2, 2, 3, 5, 6, 8]),
        (lambda i: te.if_then_else(i * i < 40, X[i + 2], 0.0), [3, 4, 5, 6, 7, 8, 9, 0, 0]),
    ],
)
def test_what_a_condition_keeps_inside(read: Read, expected: list[float]) -> None:
    assert results(stage(read), X=NUMBERS) == expected


def test_a_part_that_is_read_under_several_conditions() -> None:
    """Each of them keeps it inside; what they have in common does not."""

    def read(i: te.IterVar) -> te.Expr:
        before = X[i - 1]
        return te.if_then_else(i >= 5, before + 1, te.if_then_else(i >= 1, before * 2, 0.0))

    assert results(stage(read), X=NUMBERS) == [0, 2, 4, 6, 8, 6, 7, 8, 9]


def test_more_conditions_than_are_kept_apart() -> None:
    """Nothing is refused that may be right: the index is settled instead."""

    def read(i: te.IterVar) -> te.Expr:
        before, value = X[i - 1], te.const(0.0)
        for n in range(1, MOST_CASES + 3):
            value = te.if_then_else(i.equal(n), before * float(n), value)
        return value

    assert results(stage(read), X=NUMBERS) == [0, 1, 4, 9, 16, 25, 36, 49, 64]


def test_loops_that_never_run_read_nothing() -> None:
    k = te.reduce_axis((0, 0), name="k")
    assert results(te.compute((2,), lambda i: te.sum(X[k + 50], axis=k), name="C"), X=NUMBERS) == [0, 0]
    assert results(te.compute((0,), lambda i: X[i + 50], name="C"), X=NUMBERS) == []


def undecided() -> tuple[tuple[te.IterVar, te.IterVar], te.Expr]:
    """Two loops and a condition that never holds in them, which the search does not find out."""
    side = 1 << 13
    i, j = (te.reduce_axis((0, side), name=name) for name in "ij")
    even = i * i + i + (i * 7919 + j * 104729) % 1_000_003 * 2
    assert side * side > MOST_POINTS
    return (i, j), even % 1_000_000 == 1


def test_an_index_that_is_too_much_to_decide_is_settled() -> None:
    """Nothing is refused that may be right."""
    (i, j), condition = undecided()
    with pytest.raises(Undecided):
        witness([condition], {var: (0, var.extent - 1) for var in (i, j)})
    c = te.compute((1,), lambda _: te.sum(te.if_then_else(condition, X[i + 1], 0.0), axis=[i, j]), name="C")
    assert "X[min(i + 1, 8)]" in str(autotune.lower(te.create_schedule(c.op), [X, c]))


def test_an_error_whose_place_is_too_much_to_find_names_none() -> None:
    (i, j), condition = undecided()
    empty = te.placeholder((0,), name="E")
    c = te.compute((1,), lambda _: te.sum(te.if_then_else(condition, empty[i], 0.0), axis=[i, j]), name="C")
    with pytest.raises(LoweringError, match="and E has no elements\n"):
        autotune.lower(te.create_schedule(c.op), [empty, c])


def test_conditions_of_floating_point_are_worked_out() -> None:
    half = te.const(0.5)
    right = stage(lambda i: te.if_then_else(te.cast(i, "float32") * half < 2.9, X[i + 3], 0.0))
    assert results(right, X=NUMBERS) == [4, 5, 6, 7, 8, 9, 0, 0, 0]
    never = stage(lambda i: te.if_then_else(half > 1.0, X[i + 3], 0.0))
    assert results(never, X=NUMBERS) == [0] * 9
    wrong = stage(lambda i: te.if_then_else(te.cast(i, "float32") * half < 3.1, X[i + 3], 0.0))
    assert "is from 3 to 9" in refused(wrong)


def test_a_look_up_of_two_outputs_is_one_check() -> None:
    up, down = te.compute((4,), lambda i: (X[I[i]] + 1.0, X[I[i]] - 1.0), name="C")
    function = autotune.build(te.create_schedule(up.op), [X, I, up, down])
    assert len(function.module.image.checks) == 1  # type: ignore[attr-defined]


# -- indices that are data -----------------------------------------------------------------------------------


def test_negative_indices_count_from_the_end() -> None:
    assert results(stage(lambda i: X[I[i]], 4), X=NUMBERS, I=[0, -1, 8, -9]) == [1, 9, 9, 1]


@pytest.mark.parametrize("wrong", [9, -10, 100_000_000, -(2**31)])
@pytest.mark.parametrize("target", ["host", "interpreter"])
def test_a_wrong_index_among_inputs_is_an_error(wrong: int, target: str) -> None:
    c = stage(lambda i: X[I[i]], 4)
    indices, found = np.array([0, 1, wrong, 2], np.int32), np.zeros(4, np.float32)
    said = f"index {wrong} is out of range: .*\n.*axis 0 has 9 elements: indices are from -9 to 8"
    function = autotune.build(te.create_schedule(c.op), [X, I, c], target=target)
    with pytest.raises(InputError, match=said):
        function(NUMBERS, indices, found)
    with pytest.raises(InputError, match=said):
        te.evaluate([c], {X: NUMBERS, I: indices})
    indices[2] = -3
    function(NUMBERS, indices, found)
    assert found.tolist() == [1, 2, 7, 3]


def test_indices_that_another_stage_computes_are_checked_where_they_are_stored() -> None:
    twice = te.compute((4,), lambda i: I[i] * 2, name="twice")
    c = stage(lambda i: X[twice[i]], 4)
    found = np.zeros(4, np.float32)
    function = autotune.build(te.create_schedule(c.op), [X, I, c])
    function(NUMBERS, np.array([0, -1, 4, -4], np.int32), found)
    assert found.tolist() == [1, 8, 9, 2]
    with pytest.raises(InputError, match="index 10 is out of range"):
        function(NUMBERS, np.array([0, 5, 4, 1], np.int32), found)


def test_the_part_of_the_indices_that_is_read_is_checked() -> None:
    table = te.placeholder((3, 6), "int64", name="T")
    c = te.compute((2, 3), lambda i, j: M[i, table[i + 1, j + 2]], name="C")
    function = autotune.build(te.create_schedule(c.op), [M, table, c])
    values, found = np.arange(35, dtype=np.float32).reshape(5, 7), np.zeros((2, 3), np.float32)
    indices = np.full((3, 6), 99, np.int64)
    indices[1:, 2:5] = [[0, 1, 2], [-1, -2, 6]]
    function(values, indices, found)
    assert found.tolist() == [[0, 1, 2], [13, 12, 13]]
    indices[2, 4] = 7
    with pytest.raises(InputError, match="index 7 is out of range"):
        function(values, indices, found)


def test_a_part_of_indices_in_another_layout_is_not_looked_up_in_the_wrong_place() -> None:
    table = te.placeholder((3, 3), "int64", name="T")
    copy = te.compute((3, 3), lambda i, j: table[i, j] + 0 * i, name="copy")
    c = te.compute((3,), lambda j: X[copy[0, j]], name="C")
    s = te.create_schedule(c.op)
    s.transform_layout(copy, lambda i, j: [j, i])
    indices, found = np.full((3, 3), 99, np.int64), np.zeros(3, np.float32)
    indices[0] = [0, 1, -1]
    autotune.build(s, [X, table, c])(NUMBERS, indices, found)
    assert found.tolist() == [1, 2, 9]


def test_computed_and_conditional_indices_read_the_nearest_element() -> None:
    assert results(stage(lambda i: X[I[i] - 1], 4), X=NUMBERS, I=[0, -1, 800, -800]) == [9, 8, 9, 1]
    guarded = stage(lambda i: te.if_then_else(I[i] < 9, X[I[i]], -5.0), 4)
    assert results(guarded, X=NUMBERS, I=[0, -1, 80_000, -80_000]) == [1, 9, -5, 1]
    masked = stage(lambda i: te.if_then_else(I[i] > 0, X[i + 6], -5.0), 4)
    assert results(masked, X=NUMBERS, I=[1, 1, 1, 0]) == [7, 8, 9, -5]


def test_small_types_index_what_they_can() -> None:
    small = te.placeholder((4,), "uint8", name="small")
    table = te.placeholder((256,), name="table")
    c = te.compute((4,), lambda i: table[small[i]], name="C")
    text = str(autotune.lower(te.create_schedule(c.op), [small, table, c]))
    assert "min(" not in text  # every value of the type is an index
    assert results(stage(lambda i: X[small[i]], 4), X=NUMBERS, small=[0, 8, 9, 255]) == [1, 9, 9, 9]


def test_indices_are_settled_before_the_layout_changes() -> None:
    double = te.compute((9,), lambda i: X[i] * 2.0, name="double")
    c = te.compute((4,), lambda i: double[I[i]], name="C")
    s = te.create_schedule(c.op)
    s.transform_layout(double, lambda i: [i // 4, i % 4])
    found = np.zeros(4, np.float32)
    autotune.build(s, [X, I, c])(NUMBERS, np.array([0, -1, 8, -9], np.int32), found)
    assert found.tolist() == [2, 18, 18, 2]


def test_an_inlined_stage_is_read_from_its_end() -> None:
    start = te.compute((5,), lambda i: X[i + 1], name="start")
    c = te.compute((4,), lambda i: start[I[i]], name="C")
    for inline, target in itertools.product((False, True), ("host", "interpreter")):
        s = te.create_schedule(c.op)
        if inline:
            s[start].compute_inline()
        found = np.zeros(4, np.float32)
        autotune.build(s, [X, I, c], target=target)(NUMBERS, np.array([0, -1, 4, -5], np.int32), found)
        assert found.tolist() == [2, 6, 6, 2]


def test_copies_of_indices_are_checked_like_the_indices() -> None:
    c = stage(lambda i: X[I[i]], 4)
    s = te.create_schedule(c.op)
    copied = s.cache_read(I, "local", [c])
    s[copied].compute_at(s[c], s[c].op.axis[0])
    function = autotune.build(s, [X, I, c])
    with pytest.raises(InputError, match="index 9 is out of range"):
        function(NUMBERS, np.array([0, 9, 1, 1], np.int32), np.zeros(4, np.float32))


# -- statements ----------------------------------------------------------------------------------------------


def kernel(write: Callable[[Steps, te.Tensor], None]) -> te.Tensor:
    return sequential((4,), ("float32",), [X, I], lambda steps, _: write(steps, steps.results[0]), ["Y"])[0]


def test_statements_that_leave_a_tensor() -> None:
    def reads(steps: Steps, y: te.Tensor) -> None:
        with steps.loop(4, "i") as i:
            steps.store(y, (i,), X[i + 6])

    def stores(steps: Steps, y: te.Tensor) -> None:
        with steps.loop(5, "i") as i:
            place = steps.let(i + 0 * 2, "place")
            steps.store(y, (place,), X[i])

    for write, said in ((reads, r"stage Y reads X\[i \+ 6\]"), (stores, r"stage Y stores to Y\[place\]")):
        y = kernel(write)
        with pytest.raises(LoweringError, match=said):
            autotune.lower(te.create_schedule(y.op), [X, I, y])
        with pytest.raises(LoweringError, match=said):
            te.evaluate([y], {X: NUMBERS, I: np.zeros(4, np.int32)})


def test_statements_in_places_that_data_decide() -> None:
    def write(steps: Steps, y: te.Tensor) -> None:
        with steps.loop(4, "i") as i:
            steps.store(y, (i,), 0.0)
        with steps.loop(4, "i") as i, steps.when(i >= 1):
            steps.store(y, (I[i],), X[I[i - 1]])

    y = kernel(write)
    indices = np.array([3, -1, 40, 0], np.int32)
    found = np.zeros(4, np.float32)
    autotune.build(te.create_schedule(y.op), [X, I, y])(NUMBERS, indices, found)
    # y[-1] = X[3]; y[40] is no place; y[0] = X[40], the nearest of which is X[8]
    assert found.tolist() == [9, 0, 0, 4]
    np.testing.assert_array_equal(te.evaluate([y], {X: NUMBERS, I: indices})[0], found)


def test_a_chain_of_selects_is_judged_in_time_linear_in_its_length() -> None:
    """Both sides of each share the next one: there are 2**60 ways through it."""

    def read(i: te.IterVar) -> te.Expr:
        value = X[i - 1]
        for n in range(60):
            value = te.if_then_else(i > n % 7, value + 1.0, value * 0.5)
        return te.if_then_else(i >= 1, value, 0.0)

    c = stage(read)
    assert len(autotune.lower(te.create_schedule(c.op), [X, c], simple_mode=False).kernels) == 1
