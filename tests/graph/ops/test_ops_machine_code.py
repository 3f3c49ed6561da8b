"""Every operator through the whole compiler: its unscheduled machine code, and numba's, equals the reference."""

from __future__ import annotations

import numpy as np
import pytest

from autotune import te
from autotune.graph import ops
from autotune.target import Target
from tests.graph.ops.cases import CASES, Case
from tests.schedule.machine import host, numba_target, run_machine_code

pytestmark = pytest.mark.registers


def test_every_operator_with_an_expression_has_a_case() -> None:
    with_expression = {n for n in ops.names() if ops.get(n).compute_rule is not None}
    assert {c.op for c in CASES} == with_expression


@pytest.mark.parametrize("case", CASES, ids=str)
def test_machine_code_equals_the_reference(case: Case) -> None:
    equals_the_reference(case, host())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_numba_equals_the_reference(case: Case) -> None:
    equals_the_reference(case, numba_target())


def equals_the_reference(case: Case, target: Target) -> None:
    definition = ops.get(case.op)
    expected = definition.reference(case.arrays, case.attrs)
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(case.arrays)]
    names = [f"y{i}" for i in range(len(expected))]
    outputs = definition.compute(inputs, case.attrs, names)
    schedule = te.create_schedule([t.op for t in outputs])
    arrays = {t.name: a for t, a in zip(inputs, case.arrays, strict=True)}
    found = run_machine_code(schedule, [*inputs, *outputs], arrays, target=target)
    for name, wanted in zip(names, expected, strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=2e-5)
