"""Staged copies in the order of what they copy: other loops, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.region import Workload
from autotune.te.tensor import ComputeOp
from cost_models import analytic
from search_spaces import spaces
from search_spaces.tile.order import source_order
from tests.search_spaces import workloads as make

_RNG = np.random.default_rng(7)
SHAPES = [
    (
        (int(_RNG.integers(1, 3)), int(_RNG.integers(1, 5)), *(int(s) for s in _RNG.integers(15, 42, 2))),
        int(_RNG.integers(9, 40)),
        kernel,
        int(_RNG.integers(1, 5)),
        int(_RNG.integers(1, kernel)),
    )
    for kernel in (2, 3, 5, 7, 11)
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("stage", ["root", "block"])
@pytest.mark.parametrize("order", ["read", "source"])
def test_the_numbers_stay(
    shape: tuple[tuple[int, int, int, int], int, int, int, int], stage: str, order: str
) -> None:
    space = spaces.space_for(make.stem(*shape), make.host())
    config = space.default() | {"stage": stage}
    if "stage_order" in space.names:
        config |= {"stage_order": order}
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4, err_msg=str(config))


def test_planes_are_copied_as_planes_by_default() -> None:
    space = spaces.space_for(make.stem((1, 3, 64, 64), 32, 3, 2, 1), make.AVX512)
    assert analytic.default_config(space)["stage_order"] == "source"


@pytest.mark.parametrize(
    "workload",
    [
        make.conv((1, 40, 40, 3), 32, 3, pad=1),  # lies as it is read
        make.stem((1, 64, 40, 40), 32, 3, 1, 1),  # vectors of channels are full
        make.stem((1, 3, 40, 40), 32, 3, 1, 0),  # nothing is staged
    ],
)
def test_no_order_where_there_is_nothing_to_choose(workload: Workload) -> None:
    assert "stage_order" not in spaces.space_for(workload, make.host()).names


def test_the_order_of_a_source_is_read_through_views() -> None:
    def padded(workload: Workload) -> ComputeOp:
        stage = workload.program().anchor
        assert stage is not None
        return next(
            tensor.op
            for tensor in stage.op.input_tensors
            if isinstance(tensor.op, ComputeOp) and tensor.name.endswith("pad")
        )

    assert source_order(padded(make.stem((2, 3, 20, 30), 8, 3, 1, 1))) == (0, 3, 1, 2)
    assert source_order(padded(make.conv((2, 20, 30, 3), 8, 3, pad=1))) is None
