"""Buckets of sizes that TorchDynamo leaves open: arithmetic that needs no PyTorch."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiler.dynamic.buckets import SizeRange
from autotune.pytorch import open_sizes
from autotune.pytorch.open_sizes import COARSE, FINE, OpenSizes, SizeBucket
from autotune.pytorch.shared import SharedConstants


def test_examples_are_true() -> None:
    assert doctest.testmod(open_sizes).failed == 0


@given(
    size=st.integers(1, 3000),
    step=st.sampled_from([1, 2, 5, 32]),
    least=st.integers(1, 3),
    spare=st.integers(0, 99),
    parts=st.sampled_from([COARSE, FINE]),
)
def test_a_bucket_holds_its_size_and_is_a_range(
    size: int, step: int, least: int, spare: int, parts: int
) -> None:
    size = max(size, least)
    found = SizeBucket.of(size, least, size + spare, lambda other: (other - size) % step == 0, parts)
    assert found.holds(size)
    assert least <= found.least <= found.most <= size + spare
    assert found.most < size * (1 + 1 / parts)
    range_ = SizeRange.parse(found.text)
    assert (range_.least, range_.most, range_.buckets) == (found.least, found.most, (found.most,))


@given(size=st.integers(1, 500), other=st.integers(1, 500), parts=st.sampled_from([COARSE, FINE]))
def test_buckets_do_not_overlap(size: int, other: int, parts: int) -> None:
    mine, its = (SizeBucket.of(each, 1, None, lambda _: True, parts) for each in (size, other))
    assert mine == its or not mine.holds(other)


def test_a_size_that_stands_alone_is_compiled_exactly() -> None:
    found = SizeBucket.of(100, 2, None, lambda size: False)
    assert (found.text, found.holds(100), found.holds(99)) == ("100", True, False)


@pytest.mark.parametrize("arguments", [(3, 4.0), (4, 4.0)])
def test_numbers_are_part_of_the_key(arguments: tuple[int, float]) -> None:
    assert OpenSizes(numbers=(0, 1)).key(arguments) == arguments


def test_equal_constants_are_one_array() -> None:
    memory, weights = SharedConstants(), np.arange(6.0).reshape(2, 3)
    (first,) = memory.constants([weights])
    second, other = memory.constants([weights.copy(), weights + 1.0])
    assert second is first
    assert other is not first
    np.testing.assert_array_equal(first, weights)
