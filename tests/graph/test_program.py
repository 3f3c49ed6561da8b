"""Workloads that are programs: keys, inputs, references."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from autotune import te
from autotune.errors import InputError
from autotune.graph.program import ProgramWorkload, parse_workload
from autotune.graph.region import Workload
from autotune.lower.examples import matmul


def product(n: int = 8) -> ProgramWorkload:
    _, a, b, c = matmul(n, 6, 4)
    return ProgramWorkload.of([a, b, c])


def test_equal_programs_are_one_workload() -> None:
    assert product() == product()
    assert product().key != product(9).key
    again = parse_workload(product().text)
    assert isinstance(again, ProgramWorkload)
    assert again == product()
    assert (again.flops, again.bytes) == (2 * 8 * 6 * 4, 4 * (8 * 4 + 4 * 6 + 8 * 6))
    assert again.signature == "(float32[8, 4], float32[4, 6]) -> (float32[8, 6])"


def test_texts_of_regions_are_regions() -> None:
    text = "region workload {\n  input i0: float32[4]\n  v0 = Relu(i0) : float32[4]\n  output v0\n}"
    assert isinstance(parse_workload(text), Workload)


def test_the_reference_is_what_the_program_says() -> None:
    workload = product()
    a, b = workload.random_inputs(3)
    (c,) = workload.reference([a, b])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    with pytest.raises(InputError, match="the program has 2 inputs, got 1"):
        workload.reference([a])
    assert all((array >= 0).all() for array in workload.random_inputs(3, same_sign=True))


def test_large_programs_are_worked_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = product()
    inputs = workload.random_inputs(0)
    whole = workload.reference(inputs)
    monkeypatch.setattr(importlib.import_module("autotune.te.evaluate"), "MOST_POINTS", 30)
    np.testing.assert_array_equal(workload.reference(inputs)[0], whole[0])


def test_indices_stay_within_what_they_index() -> None:
    table = te.placeholder((5, 3), name="table")
    rows = te.placeholder((64,), "int32", name="rows")
    scale = te.placeholder((64,), "int8", name="scale")
    out = te.compute((64, 3), lambda i, j: table[rows[i], j] * te.cast(scale[i], "float32"), name="out")
    _, drawn, scales = ProgramWorkload.of([table, rows, scale, out]).random_inputs(0)
    assert set(drawn.tolist()) == set(range(5))
    assert scales.min() < 0 < scales.max()


def test_a_program_without_outputs_is_refused() -> None:
    a, k = te.placeholder((4,), name="a"), te.reduce_axis((0, 4), name="k")
    with pytest.raises(InputError, match="none of the arguments is computed"):
        ProgramWorkload.of([a])
    best = te.compute((1,), lambda i: te.argmax((te.cast(k, "int32"), a[k]), axis=k), name="best")
    with pytest.raises(InputError, match=r"best also computes best\.v0, which must be among the arguments"):
        ProgramWorkload.of([a, best[1]])
