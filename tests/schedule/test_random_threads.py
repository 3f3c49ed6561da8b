"""Random programs with loops bound to GPU thread axes: the interpreter of threads gives NumPy's answer."""

from __future__ import annotations

import pytest

from tests.schedule.three_ways import check, describe, minimised, random_case


def run_block(first: int, count: int) -> None:
    """Check seeds first..first+count; a failure reports its smallest form as Python text."""
    for seed in range(first, first + count):
        case = random_case(seed, threads=True)
        try:
            check(case)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its program
            small = minimised(case, error)
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n\n{describe(small)}")


@pytest.mark.parametrize("block", range(3))
def test_threads_compute_the_same(block: int) -> None:
    run_block(20 * block, 20)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_threads_compute_the_same_in_many_programs(block: int) -> None:
    run_block(1_000_000 + 100 * block, 100)
