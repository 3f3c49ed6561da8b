"""Random models of most operators, compiled in random ways, compute what NumPy computes."""

from __future__ import annotations

import random

import pytest

from tests.compiler.random_models import check_model, random_graph, random_way
from tests.seeds import seeds

pytestmark = pytest.mark.registers


def run_block(first: int, count: int) -> None:
    """Check seeds first..first+count; a failure shows the graph and how it was compiled."""
    for seed in range(first, first + count):
        rng = random.Random(seed)
        graph, way = random_graph(rng), random_way(rng)
        try:
            check_model(graph, way)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its model
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{way}\n{graph}")


@pytest.mark.parametrize("block", seeds(3, 6))
def test_models_compute_their_reference(block: int) -> None:
    run_block(6 * block, 6)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_many_models_compute_their_reference(block: int) -> None:
    run_block(1_000_000 + 50 * block, 50)
