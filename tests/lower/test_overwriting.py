"""Outputs in the memory of inputs: which programs allow it, by hand, by isl, and by running them in one memory."""

from __future__ import annotations

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.errors import LoweringError
from autotune.lower import lower_schedule, verify, verify_isl
from autotune.lower.overwriting import overwriting
from autotune.schedule import Schedule
from tests.schedule.three_ways import all_outputs, random_case

ROWS, COLUMNS = 20, 37


def lowered(schedule: Schedule, args: list[te.Tensor], **options: object):
    return lower_schedule(schedule, args, **options)  # type: ignore[arg-type]


def names(schedule: Schedule, args: list[te.Tensor], **options: object) -> list[tuple[str, str]]:
    """The pairs that are allowed; isl must not object to any."""
    pytest.importorskip("islpy")
    verify(schedule, args, **options)  # type: ignore[arg-type]
    return [(output.name, source.name) for output, source in overwriting(lowered(schedule, args, **options))]


def placeholders(*shapes: tuple[int, ...]) -> list[te.Tensor]:
    return [te.placeholder(shape, name=name) for name, shape in zip("AB", shapes, strict=False)]


def softmax(rows: int) -> tuple[Schedule, list[te.Tensor]]:
    """Softmax of rows whose maxima, exponentials and sums are computed so many rows at a time."""
    (a,) = placeholders((ROWS, COLUMNS))
    k, n = te.reduce_axis((0, COLUMNS), name="k"), te.reduce_axis((0, COLUMNS), name="n")
    top = te.compute((ROWS,), lambda i: te.max(a[i, k], axis=k), name="top")
    exp = te.compute((ROWS, COLUMNS), lambda i, j: te.exp(a[i, j] - top[i]), name="exp")
    total = te.compute((ROWS,), lambda i: te.sum(exp[i, n], axis=n), name="total")
    out = te.compute((ROWS, COLUMNS), lambda i, j: exp[i, j] / total[i], name="C")
    s = te.create_schedule(out.op)
    outer, _ = s[out].split(s[out].op.axis[0], rows)
    for stage in (total, exp, top):
        s[stage].compute_at(s[out], outer)
    return s, [a, out]


def test_elementwise_operations_overwrite_either_operand() -> None:
    a, b = placeholders((ROWS, COLUMNS), (ROWS, COLUMNS))
    c = te.compute((ROWS, COLUMNS), lambda i, j: a[i, j] * 2.0 + b[i, j], name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    s[c].parallel(i)
    s[c].vectorize(s[c].split(j, 8)[1])
    assert names(s, [a, b, c]) == [("C", "A"), ("C", "B")]


@pytest.mark.parametrize("rows", [1, 4])
def test_rows_are_read_before_they_are_overwritten(rows: int) -> None:
    assert names(*softmax(rows)) == [("C", "A")]


def test_rows_of_a_tail_may_be_read_in_a_tile_before() -> None:
    assert names(*softmax(8)) == [("C", "A")]


def test_an_operand_of_an_epilogue_is_overwritten() -> None:
    a, b = te.placeholder((16, 24), name="A"), te.placeholder((24, 32), name="B")
    r = te.placeholder((16, 32), name="R")
    k = te.reduce_axis((0, 24), name="k")
    product = te.compute((16, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="P")
    c = te.compute((16, 32), lambda i, j: product[i, j] + r[i, j], name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    outer, _, _, _ = s[c].tile(i, j, 4, 8)
    s[product].compute_at(s[c], outer)
    assert names(s, [a, b, r, c]) == [("C", "R")]


@pytest.mark.parametrize(("tail", "found"), [("peel", 1), ("overlap", 0), ("guard", 0)])
def test_elements_that_are_stored_twice_keep_memory_of_their_own(tail: str, found: int) -> None:
    (a,) = placeholders((COLUMNS,))
    c = te.compute((COLUMNS,), lambda i: a[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[c].split(s[c].op.axis[0], 8, tail=tail)
    assert len(names(s, [a, c])) == found


@pytest.mark.parametrize(
    "body",
    [
        lambda a: lambda i, j: a[i, j] + a[(i + 1) % 8, j],
        lambda a: lambda i, j: a[i, 7 - j],
        lambda a: lambda i, j: a[j, i],
    ],
)
def test_elements_that_others_read_are_not_overwritten(body) -> None:
    (a,) = placeholders((8, 8))
    c = te.compute((8, 8), body(a), name="C")
    assert names(te.create_schedule(c.op), [a, c]) == []


def test_what_adds_up_in_the_output_is_not_overwritten() -> None:
    a = te.placeholder((8, 1), name="A")
    k = te.reduce_axis((0, 5), name="k")
    c = te.compute((8, 1), lambda i, j: te.sum(a[i, j] * 2.0, axis=k), name="C")
    s = te.create_schedule(c.op)
    assert names(s, [a, c]) == [("C", "A")]  # in a register
    s[c].reorder(k, *s[c].op.axis)
    assert names(s, [a, c]) == []


def test_a_pitch_must_be_that_of_the_output() -> None:
    (a,) = placeholders((4, 8))
    c = te.compute((4, 8), lambda i, j: a[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    assert names(s, [a, c], strides={"A": (16, 1), "C": (16, 1)}) == [("C", "A")]
    assert names(s, [a, c], strides={"A": (1, 4)}) == []


def test_what_is_read_in_a_later_kernel_is_not_overwritten() -> None:
    (a,) = placeholders((8,))
    c = te.compute((8,), lambda i: a[i] * 2.0, name="C")
    d = te.compute((8,), lambda i: a[i] + c[i], name="D")
    s = te.create_schedule([c.op, d.op])
    assert names(s, [a, c, d]) == [("D", "A")]


def test_isl_has_a_counterexample_for_a_wrong_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("islpy")
    (a,) = placeholders((8, 8))
    c = te.compute((8, 8), lambda i, j: a[i, 7 - j], name="C")
    s = te.create_schedule(c.op)
    monkeypatch.setattr(
        verify_isl, "overwriting", lambda program: [(program.outputs[0], program.arguments[0])]
    )
    with pytest.raises(LoweringError, match="verify: A is read where C has overwritten it: "):
        verify(s, [a, c])
    s[c].parallel(s[c].op.axis[0])
    turned = te.compute((8, 8), lambda i, j: a[j, i], name="C")
    s = te.create_schedule(turned.op)
    s[turned].parallel(s[turned].op.axis[0])
    with pytest.raises(LoweringError, match=r"verify: A is read (where|beside)"):
        verify(s, [a, turned])


@pytest.mark.parametrize("first", range(0, 80, 40))
def test_random_programs_compute_the_same_in_one_memory(first: int) -> None:
    shared = 0
    for seed in range(first, first + 40):
        case = random_case(seed)
        program = case.lowered()
        inputs, outputs = case.program.tensors()
        outputs = all_outputs(outputs)
        arrays = case.program.arrays(seed)
        expected = te.evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
        for output, source in [] if case.strides else overwriting(program):
            memory = {p.name: a.copy() for p, a in zip(inputs, arrays, strict=True)}
            memory |= {t.name: np.zeros(t.shape, t.dtype) for t in outputs}
            memory[output.name] = memory[source.name].reshape(output.shape)
            interpreter.run_program(program, memory)
            for tensor, wanted in zip(outputs, expected, strict=True):
                np.testing.assert_allclose(
                    memory[tensor.name], wanted, rtol=1e-4, atol=case.program.tolerance, err_msg=case.text()
                )
            shared += 1
    assert shared
