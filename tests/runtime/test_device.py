"""Memory laid out for the host."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from autotune.errors import BuildError
from autotune.runtime.cpu.device import ALIGNMENT, HOST_MEMORY, HUGE_PAGE, address_of, allocate_pages


@pytest.mark.parametrize("nbytes", [100, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE])
def test_memory_on_pages_is_aligned_and_can_be_written(nbytes: int) -> None:
    memory = allocate_pages(nbytes)
    assert memory.nbytes == nbytes
    whole_pages = nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
    assert address_of(memory) % (HUGE_PAGE if whole_pages else ALIGNMENT) == 0
    memory[...] = 7
    assert np.all(memory == 7)


def test_memory_that_is_not_there_is_refused() -> None:
    with pytest.raises(BuildError, match="there is no memory for 4611686018427387904 bytes"):
        allocate_pages(1 << 62)


@pytest.mark.parametrize("count", [1, 9])
def test_constants_keep_their_values_wherever_they_are_put(count: int) -> None:
    rng = np.random.default_rng(0)
    small = [rng.standard_normal((300, 1000)).astype(np.float32) for _ in range(count)]
    other = [np.zeros(0, np.float32), np.ones((3, 5), np.int64).T, rng.integers(0, 9, 5 << 20, np.uint8)]
    arrays = [*small, *other, small[0]]
    found = HOST_MEMORY.constants(arrays)
    for one, array in zip(found, arrays, strict=True):
        assert one.flags.c_contiguous
        assert address_of(one) % ALIGNMENT == 0
        assert one.dtype == array.dtype
        np.testing.assert_array_equal(one, array)
