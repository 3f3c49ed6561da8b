"""Panels of the right operand that are packed at every call hold what they should, whatever the shape."""

from __future__ import annotations

import numpy as np
import pytest

from search_spaces import spaces
from tests.search_spaces import workloads as make

SHAPES = {
    "one row of panels": (5, 3, 7),
    "rows that 16 does not divide": (9, 37, 65),
    "as many rows as a block": (7, 16, 64),
    "narrower than a vector": (6, 50, 5),
    "wide": (4, 130, 301),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("vectors", [1, 3])
def test_packing_at_the_call(name: str, batch: tuple[int, ...], vectors: int) -> None:
    space = spaces.space_for(make.matmul(*SHAPES[name], batch=batch, constant=False, relu=False), make.host())
    wanted = {"pack": True, "rows": 3, "vectors": min(vectors, max(_values(space, "vectors"))), "unroll": 1}
    config = space.default() | wanted
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4, err_msg=str(config))


def _values(space: spaces.Space, name: str) -> list[int]:
    return [int(value) for knob in space.knobs if knob.name == name for value in knob.values]
