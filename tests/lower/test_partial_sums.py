"""Long sums are made of partial sums: the loops that come of it, and how exact they are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen.interpreter import run_program
from autotune.lower.partial_sums import LONGEST
from autotune.lower.printer import program_text
from autotune.lower.program import lower_schedule
from autotune.schedule.schedule import Schedule
from autotune.te.tensor import Tensor

_LOOPS = """\
program(x: float32[266, 16], out: float32[16]) {
  kernel out {
    allocate out.acc: float32[16]
    vectorized (j.inner, 0, 16) {
      out.acc[j.inner] = 0f
    }
    for (k.part, 0, 2) {
      allocate out.acc.part: float32[16]
      vectorized (j.inner, 0, 16) {
        out.acc.part[j.inner] = 0f
      }
      for (k, 0, 128) {
        vectorized (j.inner, 0, 16) {
          out.acc.part[j.inner] = out.acc.part[j.inner] + x[k + k.part * 128, j.inner]
        }
      }
      vectorized (j.inner, 0, 16) {
        out.acc[j.inner] = out.acc[j.inner] + out.acc.part[j.inner]
      }
    }
    allocate out.acc.part: float32[16]
    vectorized (j.inner, 0, 16) {
      out.acc.part[j.inner] = 0f
    }
    for (k, 0, 10) {
      vectorized (j.inner, 0, 16) {
        out.acc.part[j.inner] = out.acc.part[j.inner] + x[k + 256, j.inner]
      }
    }
    vectorized (j.inner, 0, 16) {
      out.acc[j.inner] = out.acc[j.inner] + out.acc.part[j.inner]
    }
    vectorized (j.inner, 0, 16) {
      out[j.inner] = out.acc[j.inner]
    }
  }
}"""


def dot(terms: int, dtype: str = "float32", columns: int = 16) -> tuple[Tensor, Tensor, Schedule]:
    """Sums over the rows of a matrix, sixteen columns in registers."""
    x = te.placeholder((terms, columns), dtype, name="x")
    k = te.reduce_axis((0, terms), name="k")
    out = te.compute((columns,), lambda j: te.sum(x[k, j], axis=k), name="out")
    s = te.create_schedule(out.op)
    outer, lanes = s[out].split(s[out].op.axis[0], factor=16)
    s[out].reorder(outer, k, lanes)
    s[out].vectorize(lanes)
    return x, out, s


def test_the_loops_of_a_long_sum() -> None:
    x, out, s = dot(266)
    assert program_text(lower_schedule(s, [x, out])) == _LOOPS


@pytest.mark.parametrize(("terms", "dtype"), [(LONGEST, "float32"), (1000, "int32"), (1000, "float64")])
def test_sums_that_are_short_or_of_other_types_stay_whole(terms: int, dtype: str) -> None:
    x, out, s = dot(terms, dtype)
    assert ".part" not in program_text(lower_schedule(s, [x, out]))


@pytest.mark.parametrize("terms", [129, 200, 263, 1024, 1031])
def test_the_interpreter_and_machine_code_add_up_alike(terms: int) -> None:
    """Every term is there once; integers are summed without rounding in any order."""
    x, out, s = dot(terms)
    values = np.random.default_rng(terms).integers(-99, 99, (terms, 16)).astype(np.float32)
    interpreted, compiled = np.zeros(16, np.float32), np.zeros(16, np.float32)
    run_program(lower_schedule(s, [x, out]), {"x": values, "out": interpreted})
    autotune.build(s, [x, out])(values, compiled)
    np.testing.assert_array_equal(interpreted, values.sum(axis=0))
    np.testing.assert_array_equal(compiled, interpreted)


def test_a_long_sum_is_nearly_as_exact_as_its_rounding() -> None:
    """4608 terms added one after another are off by 20 and more roundings, by parts by seven at most."""
    x, out, s = dot(4608)
    values = np.random.default_rng(0).random((4608, 16), dtype=np.float32)
    exact = np.array([float(sum(map(Fraction, map(float, column)))) for column in values.T])
    compiled = np.zeros(16, np.float32)
    autotune.build(s, [x, out])(values, compiled)
    chain = np.add.accumulate(values, axis=0, dtype=np.float32)[-1]
    rounding = np.finfo(np.float32).eps / 2
    assert np.abs(compiled / exact - 1).max() < 7 * rounding
    assert np.abs(chain / exact - 1).max() > 20 * rounding


def test_loops_of_a_window_are_parts_where_they_are_long_enough() -> None:
    """A part is so many whole iterations of an outer loop as make a few dozen steps, with a shorter one at the end."""
    x = te.placeholder((7, 96, 16), name="x")
    p, k = te.reduce_axis((0, 7), name="p"), te.reduce_axis((0, 96), name="k")
    out = te.compute((16,), lambda j: te.sum(x[p, k, j], axis=[p, k]), name="out")
    s = te.create_schedule(out.op)
    (j,) = s[out].op.axis
    s[out].reorder(p, k, j)
    s[out].vectorize(j)
    text = program_text(lower_schedule(s, [x, out]))
    assert "for (p.part, 0, 7) {" in text
    values = np.random.default_rng(0).integers(-99, 99, (7, 96, 16)).astype(np.float32)
    compiled = np.zeros(16, np.float32)
    autotune.build(s, [x, out])(values, compiled)
    np.testing.assert_array_equal(compiled, values.sum(axis=(0, 1)))
