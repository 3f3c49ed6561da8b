"""The tutorial docs/gemm.md: every step computes what NumPy does, and the page is up to date."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune import te
from autotune.lower import lower_schedule, verify
from results.bench import gemm_steps
from tests.schedule import loop_interpreter
from tests.schedule.machine import run_machine_code

PAGE = Path(__file__).parents[2] / "docs" / "gemm.md"


@pytest.mark.parametrize("step", gemm_steps.STEPS, ids=lambda step: step.__name__)
def test_every_step_computes_the_product(step: gemm_steps.Steps) -> None:
    s, args = gemm_steps.scheduled(step, 64)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (64, 64)).astype("float32") for _ in range(2))
    np.testing.assert_array_equal(run_machine_code(s, args, {"A": a, "B": b})["C"], a @ b)


@pytest.mark.parametrize("step", gemm_steps.STEPS, ids=lambda step: step.__name__)
def test_every_step_respects_the_dependences(step: gemm_steps.Steps) -> None:
    pytest.importorskip("islpy")
    s, args = gemm_steps.scheduled(step, 96)
    assert verify(s, args).dependences > 0


def test_sizes_that_blocks_do_not_divide() -> None:
    s, args = gemm_steps.scheduled(gemm_steps.registers, 37)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (37, 37)).astype("float32") for _ in range(2))
    program = lower_schedule(s, args)
    np.testing.assert_array_equal(loop_interpreter.run_program(program, {"A": a, "B": b})["C"], a @ b)
    np.testing.assert_array_equal(run_machine_code(s, args, {"A": a, "B": b})["C"], a @ b)


def test_the_command_times_every_step() -> None:
    found = gemm_steps.step_times(64, 1, 1)
    assert [step.name for step in found] == [*(s.__name__ for s in gemm_steps.STEPS), "NumPy"]
    assert all(step.minimum_s > 0 for step in found)


def test_the_page_is_up_to_date() -> None:
    message = "run: python -m results.bench.gemm_steps > docs/gemm.md"
    assert PAGE.read_text(encoding="utf-8") == gemm_steps.page(), message


def test_the_program_is_that_of_the_page() -> None:
    s, a, b, c = gemm_steps.matmul(8)
    arrays = {t: np.ones(t.shape, "float32") for t in (a, b)}
    assert te.evaluate([c], arrays)[0].tolist() == [[8.0] * 8] * 8
    assert s[c].leaf_iter_vars == [*c.op.axis, *c.op.reduce_axis]
