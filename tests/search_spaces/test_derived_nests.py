"""Loop nests that follow from schedules: they say of each candidate what its code does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from cost_models import analytic
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make
from tests.search_spaces.families import FIXED, LARGER

FEW_ROWS: dict[str, Callable[[], Workload]] = {
    "line": lambda: make.residual_add(1 << 22),
    "three rows": lambda: make.residual_add(3, 70_000),
    "fifteen rows": lambda: make.residual_add(15, 4099),
}
CASES = FIXED | LARGER | FEW_ROWS


def derived(name: str) -> Space | None:
    """The space of a case; None where its loop nests are written by hand."""
    space = space_for(CASES[name](), make.AVX512)
    return space if hasattr(space.recipe, "steps") else None


@pytest.mark.parametrize("name", sorted(CASES))
def test_workers_share_as_many_tiles_as_the_code_has(name: str) -> None:
    """With few rows the columns are shared too: four million elements are no single tile."""
    space = derived(name)
    if space is None:
        return
    population = space.population(np.random.default_rng(0), 12)
    for rows, nest in space.loop_nests(population):
        for config, count in zip(population.take(rows), nest.tiles, strict=True):
            program = space.workload.program()
            lowered = lower_schedule(space.apply(program, config), list(program.args))
            assert count in {kernel.tiles for kernel in lowered.kernels}, config


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_prediction_is_the_same_in_any_company(name: str) -> None:
    space = derived(name)
    if space is None:
        return
    population = space.population(np.random.default_rng(1), 60)
    together = analytic.predict(space, population)
    alone = [analytic.predict(space, [population.config(row)])[0] for row in range(len(population))]
    np.testing.assert_allclose(alone, together, rtol=1e-9)
