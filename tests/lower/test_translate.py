"""Expressions with axes replaced by loop variables, and reads by loads."""

from __future__ import annotations

import numpy as np

from autotune import te
from tests.schedule.machine import run_machine_code


def test_a_choice_between_indices_by_data_is_no_index_arithmetic() -> None:
    x = te.placeholder((5,), "int64", name="x")
    y = te.compute((5,), lambda i: te.maximum(te.if_then_else(x(i) < 0, -1, i), i // 2), name="y")
    given = np.array([-3, 4, -5, 0, -1])
    found = run_machine_code(te.create_schedule([y.op]), [x, y], {"x": given})
    np.testing.assert_array_equal(found["y"], [0, 1, 1, 3, 2])
