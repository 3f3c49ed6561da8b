"""Random programs under random schedules: NumPy, two interpreters and machine code give one answer."""

from __future__ import annotations

import pytest

from tests.schedule.three_ways import check, describe, minimised, random_case

BLOCK = 30


def run_block(first: int, count: int) -> None:
    """Check seeds first..first+count; a failure reports its smallest form as Python text."""
    for seed in range(first, first + count):
        case = random_case(seed)
        try:
            check(case, seed, with_reference=seed % 5 == 0)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its program
            small = minimised(case, error)
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n\n{describe(small)}")


@pytest.mark.parametrize("block", range(10))
def test_three_executions_agree(block: int) -> None:
    run_block(block * BLOCK, BLOCK)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(100))
def test_three_executions_agree_on_many_programs(block: int) -> None:
    run_block(1_000_000 + block * 200, 200)
