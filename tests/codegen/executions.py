"""One elementwise expression, run in every way there is: NumPy, interpreter, scalar code, vector code and numba."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.codegen import interpreter
from autotune.lower import lower_schedule, program_text
from tests.codegen.opencl_device import installed, run_on_device
from tests.schedule.machine import numba_target, run_machine_code, runnable_target

LANES = 64
"""Vectors of several registers, and a rest that is none."""
NUMBA_EVERY = 4
"""One program in so many, by its text, is compiled by numba too, which takes longer than all the others."""
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def everywhere(arrays: Sequence[Any], element: Callable[..., te.Expr]) -> Any:
    """The values of ``element`` over the elements of one-dimensional arrays, which all executions must agree on."""
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"P{n}") for n, a in enumerate(arrays)]
    c = te.compute(arrays[0].shape, lambda i: element(*[p[i] for p in inputs]), name="C")
    named = {p.name: a for p, a in zip(inputs, arrays, strict=True)}
    (expected,) = te.evaluate([c], dict(zip(inputs, arrays, strict=True)))
    schedule, outer = te.create_schedule(c), np.zeros(c.shape, c.dtype)
    interpreter.run_program(lower_schedule(schedule, [*inputs, c]), {**named, "C": outer})
    same(outer, expected, "interpreter")
    for target in dict.fromkeys(map(runnable_target, TARGETS)):
        for lanes in (0, LANES):
            schedule = te.create_schedule(c)
            if lanes:
                _, inner = schedule[c].split(schedule[c].op.axis[0], lanes)
                schedule[c].vectorize(inner)
            found = run_machine_code(schedule, [*inputs, c], named, target=target)["C"]
            same(found, expected, f"{target.cpu}, {lanes or 1} lanes")
    if (
        zlib.crc32(program_text(lower_schedule(te.create_schedule(c), [*inputs, c])).encode()) % NUMBA_EVERY
        == 0
    ):
        by_numba = run_machine_code(te.create_schedule(c), [*inputs, c], named, target=numba_target())
        same(by_numba["C"], expected, "numba")
    if installed():
        schedule = te.create_schedule(c)
        _, inner = schedule[c].split(schedule[c].op.axis[0], LANES)
        schedule[c].vectorize(inner)
        same(run_on_device(schedule, [*inputs, c], named)["C"], expected, "OpenCL")
    return expected


def same(found: Any, expected: Any, who: str) -> None:
    """All elements equal, NaN and the sign of zeros among them."""
    assert found.dtype == expected.dtype
    if found.dtype.kind in "fV":
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]), who)
    np.testing.assert_array_equal(found, expected, who)


def pairs(values: Any) -> tuple[Any, Any]:
    """Every value beside every other."""
    a, b = np.meshgrid(values, values)
    return a.ravel().copy(), b.ravel().copy()
