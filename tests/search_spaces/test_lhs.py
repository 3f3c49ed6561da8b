"""Lhs packing and prefetches of the left operand: the same numbers; a knob where it outgrows the second cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from autotune.errors import KnobError
from autotune.schedule.knob import Value
from cost_models import analytic
from search_spaces import spaces
from search_spaces.space import Space
from tests.search_spaces import workloads as make

CONFIGS: dict[str, Mapping[str, Value]] = {
    "whole": {"left": "panels", "rows": 5},
    "whole, all": {"left": "panels", "rows": 4, "row_block": 0, "vector_block": 0, "pack": True},
    "block": {"left": "block", "rows": 3, "row_block": 1, "parallel": False},
    "block, two": {"left": "block", "rows": 4, "row_block": 0, "vector_block": 1, "vectors": 1},
    "ahead": {"left": "ahead", "rows": 6},
    "far ahead": {"left": "ahead", "rows": 4, "tail": "overlap", "unroll": 2},
}


def _space(m: int, k: int, n: int, batch: tuple[int, ...] = ()) -> Space:
    small = replace(make.host(), l2_bytes=1 << 8)
    workload = make.matmul(m, k, n, batch=batch, constant=False, relu=False)
    return spaces.space_for(workload, small)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shape", [(17, 37, 35), (23, 515, 37), (31, 13, 50)])
def test_the_numbers_stay(name: str, shape: tuple[int, int, int]) -> None:
    space = _space(*shape)
    config = space.default() | {"tail": "peel"} | CONFIGS[name]
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=2e-4, atol=2e-3, err_msg=str(config))


@pytest.mark.parametrize("wanted", [{"left": "panels"}, {"left": "block"}, {"left": "ahead"}])
def test_with_blocks_of_the_reduction_and_batches(wanted: Mapping[str, Value]) -> None:
    space = _space(10, 515, 37, (2,))
    config = space.default() | {"k_block": 256, "rows": 4, "tail": "peel"} | wanted
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=2e-4, atol=2e-3, err_msg=str(config))


def test_small_operands_have_no_such_knob() -> None:
    names = spaces.space_for(make.matmul(64, 64, 64, constant=False), make.host()).names
    assert "left" not in names


def test_panels_begin_where_tiles_do() -> None:
    space = _space(17, 37, 35)
    with pytest.raises(KnobError, match="panels begin where tiles do"):
        space.check(space.default() | {"rows": 5, "tail": "overlap", "left": "panels"})


def test_the_default_reads_rows_where_they_lie() -> None:
    space = spaces.space_for(make.matmul(2048, 2048, 2048, constant=False), make.host())
    config = analytic.default_config(space)
    assert config["left"] == "rows"
