"""One elementwise expression, run in every way there is: NumPy, interpreter, scalar code, vector code and numba."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.codegen import interpreter
from autotune.lower import LoopProgram, lower_schedule, program_text
from autotune.schedule import Schedule
from autotune.target import ITEM_BYTES
from tests.codegen.opencl_device import installed, run_on_device
from tests.schedule.machine import numba_target, run_machine_code, runnable_target

BYTES, LEAST = 64, 16
"""Of a vector, in which there are so many elements at least: several registers of x86-64-v2 and -v3, with a rest."""
NUMBA_EVERY = 4
"""One program in so many, by its text, is compiled by numba too, which takes longer than all the others."""
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


Element = Callable[..., te.Expr]


def everywhere(arrays: Sequence[Any], element: Element) -> Any:
    """The values of ``element`` over the elements of one-dimensional arrays, which all executions must agree on."""
    (values,) = all_everywhere(arrays, [element])
    return values


def all_everywhere(arrays: Sequence[Any], elements: Sequence[Element]) -> list[Any]:
    """The values of each of ``elements``, which are compiled together: a compiler's start takes longer than one."""
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"P{n}") for n, a in enumerate(arrays)]
    made = [
        te.compute(arrays[0].shape, lambda i, one=one: one(*[p[i] for p in inputs]), name=f"C{n}")
        for n, one in enumerate(elements)
    ]
    args, named = [*inputs, *made], {p.name: a for p, a in zip(inputs, arrays, strict=True)}
    values = te.evaluate(made, dict(zip(inputs, arrays, strict=True)))
    expected = {c.name: each for c, each in zip(made, values, strict=True)}
    plain = lower_schedule(te.create_schedule(made), args)
    outer = {c.name: np.zeros(c.shape, c.dtype) for c in made}
    interpreter.run_program(plain, {**named, **outer})
    _all_same(outer, expected, "interpreter")
    targets = [*dict.fromkeys(map(runnable_target, TARGETS))]
    for target, vectors in [(targets[0], False), *((target, True) for target in targets)]:
        found = run_machine_code(_scheduled(made, vectors), args, named, target=target)
        _all_same(found, expected, f"{target.cpu}, vectors: {vectors}")
    if takes_numba(plain):
        by_numba = run_machine_code(te.create_schedule(made), args, named, target=numba_target())
        _all_same(by_numba, expected, "numba")
    if installed():
        _all_same(run_on_device(_scheduled(made, True), args, named), expected, "OpenCL")
    return list(values)


def takes_numba(program: LoopProgram) -> bool:
    """Return whether a program is one of those that numba compiles too."""
    return zlib.crc32(program_text(program).encode()) % NUMBA_EVERY == 0


def _scheduled(made: Sequence[te.Tensor], vectors: bool) -> Schedule:
    schedule = te.create_schedule(list(made))
    for c in made if vectors else ():
        _, inner = schedule[c].split(schedule[c].op.axis[0], max(LEAST, BYTES // ITEM_BYTES[c.dtype]))
        schedule[c].vectorize(inner)
    return schedule


def _all_same(found: Mapping[str, Any], expected: Mapping[str, Any], who: str) -> None:
    for name, values in expected.items():
        same(found[name], values, f"{who}, {name}")


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
