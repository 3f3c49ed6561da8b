"""Scratch memory has a limit: what takes more is no default, and is not measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.database.records import Footprint, Origin, Outcome
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.interface import Built
from cost_models import analytic
from cost_models.machine import Machine
from cost_models.terms.memory import most_scratch, refusal
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.search_spaces.workloads import AVX512, conv

MACHINE = Machine.of(AVX512)


@pytest.fixture(scope="module")
def space() -> Space:
    return space_for(conv((1, 224, 224, 64), 64, 3, pad=1), AVX512)


def test_the_limit_is_what_is_read_and_written_or_what_caches_hold() -> None:
    assert most_scratch(MACHINE, 1e9) == 1e9
    assert most_scratch(MACHINE, 1.0) == MACHINE.l2 * MACHINE.threads


def test_what_takes_more_is_not_picked(space: Space) -> None:
    population = space.population(np.random.default_rng(0), 500)
    factors = np.ones(len(population))
    for rows, nest in space.loop_nests(population):
        factors[rows] = refusal(nest, MACHINE, space.workload.bytes)
    assert set(factors[factors <= 1]) == {1.0}
    assert 0 < np.sum(factors > 1) < len(population) / 2
    seconds = analytic.predict(space, population)
    assert seconds[factors > 1].min() > seconds[factors == 1].max()
    chosen = space.of([analytic.default_config(space)])
    for _, nest in space.loop_nests(chosen):
        assert refusal(nest, MACHINE, space.workload.bytes).tolist() == [1.0]


def test_gigabytes_never_win(space: Space) -> None:
    chosen = space.of([analytic.default_config(space)])
    ((_, nest),) = space.loop_nests(chosen)
    huge = replace(nest, scratch=(np.array([2.0**33]), np.array([1.0])))
    assert refusal(huge, MACHINE, space.workload.bytes) > 1e5


def test_a_job_does_not_measure_what_takes_more(space: Space) -> None:
    nothing: Any = None
    task = Task((), space.workload, space, nothing, {})
    most = most_scratch(MACHINE, space.workload.bytes)

    def refused(scratch: float, origin: Origin = Origin.SEARCH) -> Any:
        takes = Footprint(memory_bytes=int(scratch), artifact_bytes=0, scratch_bytes=int(scratch))
        return task.refused(Built(nothing, "other", "", footprint=takes), origin)

    assert refused(2 * most) is None  # nothing is known of the default yet
    task.default_trace = "default"
    task.footprints["default"] = Footprint(0, 0, 0)
    assert refused(most) is None
    assert refused(2 * most, Origin.DEFAULT) is None
    found = refused(2 * most)
    assert found.outcome is Outcome.ILLEGAL
    assert found.message == (
        f"{2 * most:.0f} bytes of scratch memory: more than the {most:.0f} that it may take"
    )
    task.footprints["default"] = Footprint(0, 0, int(2 * most))
    assert refused(2 * most) is None
