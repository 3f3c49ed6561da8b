"""Reductions in blocks: the sums of a block of the output wait in memory, and come out as they should."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from autotune.errors import KnobError
from autotune.graph.region import Workload
from autotune.schedule.knob import Value
from cost_models import analytic
from search_spaces import spaces
from tests.search_spaces import workloads as make

CONFIGS: dict[str, Mapping[str, Value]] = {
    "one block": {"row_block": 0, "vector_block": 0, "tail": "peel"},
    "one block, serial": {"row_block": 0, "vector_block": 0, "tail": "peel", "parallel": False},
    "rows": {"rows": 5, "row_block": 2, "tail": "peel", "block_order": "rows"},
    "overlap": {"rows": 5, "row_block": 2, "tail": "overlap", "pack": False},
    "vectors": {"rows": 3, "vectors": 1, "row_block": 0, "vector_block": 1, "block_order": "vector"},
    "tiles by rows": {"rows": 4, "tile_order": "rows", "row_block": 1, "tail": "peel"},
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("relu", [False, True])
def test_blocks_of_the_reduction_add_up(name: str, relu: bool) -> None:
    space = spaces.space_for(make.matmul(17, 515, 37, relu=relu), make.host())
    config = {**space.default(), "k_block": 256, **CONFIGS[name]}
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=2e-4, atol=2e-3, err_msg=str(config))


def test_batches_have_blocks_too() -> None:
    space = spaces.space_for(make.matmul(6, 512, 20, batch=(2, 3), constant=False, relu=False), make.host())
    config = {**space.default(), "k_block": 256, "row_block": 0, "vector_block": 0}
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=2e-4, atol=2e-3)


CONVOLUTIONS: dict[str, tuple[Workload, Mapping[str, Value]]] = {
    "window outermost": (make.conv((1, 7, 7, 64), 40, 3, pad=1, residual=True), {"reduce_order": "window"}),
    "channels outermost": (make.conv((2, 7, 6, 64), 40, 3, pad=1), {"reduce_order": "channel"}),
    "padding by blocks": (make.conv((1, 8, 7, 64), 40, 3, pad=1), {"stage": "block", "row_block": 2}),
    "stride": (make.conv((1, 15, 13, 72), 24, 3, stride=2, pad=1), {"rows": 3, "outer_rows": 2}),
    "peeled": (make.conv((1, 5, 7, 64), 40, 3, pad=1), {"rows": 3, "tail": "peel"}),
    "1-D": (make.conv_nd((30,), 256, 24, 3, pad=1, dilation=2), {"k_block": 128, "rows": 5}),
    "3-D": (make.conv_nd((3, 5, 6), 32, 24, 3, pad=1), {"k_block": 16}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_blocks_of_a_convolution_are_channels_times_the_window(name: str) -> None:
    workload, changed = CONVOLUTIONS[name]
    space = spaces.space_for(workload, make.host())
    config = {**space.default(), "row_block": 0, "k_block": 32, **changed}
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=2e-4, atol=2e-3, err_msg=str(config))


def test_short_reductions_have_no_blocks() -> None:
    assert "k_block" not in spaces.space_for(make.matmul(64, 511, 64), make.host()).names
    assert "k_block" in spaces.space_for(make.matmul(64, 512, 64), make.host()).names


def test_blocks_that_fit_no_cache_are_refused() -> None:
    space = spaces.space_for(make.matmul(40_000, 512, 4096), make.host())
    config = space.default() | {"k_block": 256, "row_block": 0, "vector_block": 0}
    with pytest.raises(KnobError, match="the sums of a block would not fit a cache"):
        space.check(config)


def test_the_model_counts_how_often_sums_are_gone_through() -> None:
    space = spaces.space_for(make.matmul(2048, 2048, 2048, constant=False), make.host())
    config = analytic.default_config(space) | {"row_block": 0, "vector_block": 1, "tail": "overlap"}
    config |= {"rows": 8, "vectors": 2}
    few, many = (config | {"k_block": size} for size in (1024, 256))
    ((_, nest),) = space.loop_nests(space.of([few, many]))
    assert nest.scratch is not None
    size, times = nest.scratch
    assert size[0] == size[1] > 0
    assert times[1] == 4 * times[0]


def test_the_model_takes_blocks_only_where_a_panel_outgrows_the_second_cache() -> None:
    wide = {"rows": 6, "vectors": 4, "row_block": 0, "vector_block": 1, "pack": True, "tail": "overlap"}
    wide |= {"kernel": "tiles"}
    target = replace(make.AVX512, l2_bytes=1 << 20)
    for size, wins in ((1024, 0), (8192, 512)):
        space = spaces.space_for(make.matmul(size, size, size, constant=False, relu=False), target)
        base = analytic.default_config(space) | wide | {"tile_order": "vector", "block_order": "rows"}
        seconds = {block: analytic.predict(space, [base | {"k_block": block}])[0] for block in (0, 512)}
        assert min(seconds, key=seconds.__getitem__) == wins
