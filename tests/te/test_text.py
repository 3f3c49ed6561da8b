"""The text of programs: what it looks like, that it comes back, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import ScheduleError
from autotune.te.parse import parse_program
from autotune.te.text import program_text
from tests.schedule.random_programs import random_program


def softmax_like() -> list[te.Tensor]:
    a = te.placeholder((4, 7), name='a "b"')
    n, k = te.reduce_axis((0, 7), name="n"), te.reduce_axis((1, 6), name="k")
    top = te.compute((4,), lambda i: te.max(a[i, n], axis=n), name="top")
    e = te.compute((4, 7), lambda i, j: te.exp(a[i, j] - top[i]), name="e")
    best = te.compute((4,), lambda i: te.argmax((te.cast(k, "int32"), e[i, k]), axis=k), name="best")
    twice = te.compute(
        (4, 7),
        lambda i, j: te.if_then_else(
            te.all(j > 0, te.any(i < 3, j != 2)), e[i, j] * -0.5, te.max_value("float32")
        ),
        name="twice",
    )
    return [a, e, *best, twice]


def test_a_program_as_text(golden: Any) -> None:
    golden(program_text(softmax_like()))


def test_a_shared_part_is_written_once() -> None:
    a = te.placeholder((8,), name="a")

    def squared(i: Any) -> Any:
        x = a[i] + 1.0
        for _ in range(12):
            x = x * x
        return x

    text = program_text([a, te.compute((8,), squared, name="c")])
    assert len(text) < 500
    assert program_text(parse_program(text)) == text


def same_numbers(args: list[te.Tensor], again: tuple[te.Tensor, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = [t for t in args if isinstance(t.op, te.PlaceholderOp)]
    arrays = [(4 * rng.standard_normal(t.shape)).astype(t.dtype) for t in inputs]
    fresh = [t for t in again if isinstance(t.op, te.PlaceholderOp)]
    outputs = [[t for t in tensors if t not in known] for tensors, known in ((args, inputs), (again, fresh))]
    before = te.evaluate(outputs[0], dict(zip(inputs, arrays, strict=True)))
    after = te.evaluate(outputs[1], dict(zip(fresh, arrays, strict=True)))
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, y)


def test_what_is_read_back_computes_the_same() -> None:
    args = softmax_like()
    same_numbers(args, parse_program(program_text(args)), 0)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_random_programs_come_back(seed: int) -> None:
    inputs, outputs = random_program(random.Random(seed)).tensors()
    args = [*inputs, *outputs]
    text = program_text(args)
    again = parse_program(text)
    assert program_text(again) == text
    same_numbers(args, again, seed)


HEAD = 'program\nt0 = placeholder("A", (4,), "float32")\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not the text of a program: ''"),
        ("program", "the text of a program ends without its arguments"),
        ("program\nimport os", "line 2 of a program, import os: expected a tensor and what computes it"),
        ('program\nt0 = placeholder("A", (4.0,), "float32")', "expected numbers of at least 0, got (4.0,)"),
        (HEAD + 't1 = compute("B", [("i", 4)], open("x"))', "unknown function 'open'"),
        (HEAD + 't1 = compute("B", [("i", 4)], t0.op[i0])', "t0.op is no tensor"),
        (HEAD + 't1 = compute("B", [("i", 4)], t0[i0] + 1)', "operands have the types float32, int64"),
        (HEAD + 't1 = compute("B", [("i", 4)], t0[i0] + j)', "unknown name 'j'"),
        (HEAD + 't1 = compute("B", [("i", 4)], t0[i0, i0])', "has 1 dimensions (4,), got 2 indices"),
        (
            HEAD + 't1 = compute("B", [("i", 4)], call("system", "float32", t0[i0]))',
            "unknown function 'system'",
        ),
        (HEAD + "arguments(t1)", "t1 is no tensor"),
        (HEAD + "arguments(t0", "line 3 of a program, arguments(t0: '(' was never closed"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as refusal:
        parse_program(text)
    assert message in str(refusal.value)


def test_a_missing_argument_and_a_free_variable_are_refused() -> None:
    a, b = (te.placeholder((4,), name=name) for name in "ab")
    c = te.compute((4,), lambda i: a[i] + b[i], name="c")
    with pytest.raises(ScheduleError, match="the program reads b, which is not among the arguments"):
        program_text([a, c])
    with pytest.raises(ScheduleError, match="the variable n is no loop of the operation that reads it"):
        program_text([a, te.compute((4,), lambda i: a[i] * te.cast(te.Var("n"), "float32"), name="d")])
