"""The choice of the dot product that computes a number of columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.target import Target
from autotune.te.dot_products import DOT_PRODUCTS, dot_product

pytestmark = pytest.mark.registers


@pytest.mark.parametrize(
    ("columns", "lanes"), [(3, None), (4, 4), (8, 8), (16, 16), (20, 4), (24, 8), (64, 16), (1000, 16)]
)
def test_columns_that_wide_vectors_leave_over_take_narrow_ones(columns: int, lanes: int | None) -> None:
    found = dot_product(Target.parse("x86-64-v4-vnni"), "uint8", "int8", columns)
    assert (None if found is None else found.lanes) == lanes


def test_the_page_of_intrinsics_has_every_instruction() -> None:
    page = (Path(__file__).parents[2] / "docs" / "intrinsics.md").read_text()
    for dot in DOT_PRODUCTS:
        assert f"`{dot.name}`" in page, dot.name
        assert all(f"`{feature}`" in page for feature in dot.requires), dot.name


def test_tiles_are_no_vectors() -> None:
    found = dot_product(Target.parse("x86-64-v4-amx"), "bfloat16", "bfloat16", 64)
    assert found is not None
    assert found.name == "vdpbf16ps"
    assert dot_product(Target.parse("x86-64-v4-amx"), "int8", "uint8", 64).name == "vpmaddwd"  # type: ignore[union-attr]
