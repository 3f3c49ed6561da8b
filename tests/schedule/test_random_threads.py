"""Random programs with loops bound to GPU thread axes: the interpreter of threads gives NumPy's answer."""

from __future__ import annotations

import pytest

from autotune.schedule import Schedule
from tests.schedule.three_ways import Case, check, describe, minimised, random_case


def splits_private_memory(schedule: Schedule) -> bool:
    """Whether threads that do not share a stage's memory each compute a part of it."""
    return any(
        kind.startswith("blockIdx") or (kind.startswith("threadIdx") and stage.scope != "shared")
        for stage in schedule.stages
        if stage.attach_type == "scope"
        for kind in stage.kinds.values()
    )


def run_block(first: int, count: int) -> None:
    """Check seeds first..first+count; a failure reports its smallest form as Python text."""
    for seed in range(first, first + count):
        case: Case = random_case(seed, threads=True)
        if splits_private_memory(case.schedule()[0]):
            continue
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
