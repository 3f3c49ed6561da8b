"""The choice of the dot product that computes a number of columns."""

from __future__ import annotations

import pytest

from autotune.target import Target
from autotune.te.dot_products import dot_product

pytestmark = pytest.mark.registers


@pytest.mark.parametrize(
    ("columns", "lanes"), [(3, None), (4, 4), (8, 8), (16, 16), (20, 4), (24, 8), (64, 16), (1000, 16)]
)
def test_columns_that_wide_vectors_leave_over_take_narrow_ones(columns: int, lanes: int | None) -> None:
    found = dot_product(Target.parse("x86-64-v4-vnni"), "uint8", "int8", columns)
    assert (None if found is None else found.lanes) == lanes
