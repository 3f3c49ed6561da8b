"""Patches: every row is the window of a position, and its product with the weights is the convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph import ops
from tests.graph.ops.op_checks import check, normal, refusal

GEOMETRIES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((2, 9, 3), (3,), {"pads": (1, 1)}),
    "2-D": ((2, 6, 7, 3), (3, 3), {"pads": (1, 1, 1, 1)}),
    "3-D": ((1, 3, 4, 5, 2), (2, 3, 2), {"pads": (1, 1, 0, 0, 1, 2), "strides": (1, 2, 1)}),
    "stride beyond the window": ((1, 9, 8, 4), (2, 1), {"strides": (4, 3)}),
    "asymmetric padding": ((1, 5, 6, 2), (3, 2), {"pads": (0, 1, 2, 0)}),
    "dilation": ((1, 9, 8, 2), (3, 2), {"dilations": (2, 3), "pads": (1, 0, 2, 1)}),
    "window larger than the image": ((1, 2, 3, 5), (5, 5), {"pads": (2, 2, 2, 2)}),
    "rows of nothing but padding": ((1, 2, 2, 3), (1, 1), {"pads": (2, 3, 1, 2)}),
    "one channel": ((1, 7, 6, 1), (3, 4), {"pads": (1, 0, 1, 2)}),
    "one position": ((2, 4, 3, 6), (4, 3), {}),
    "one pixel": ((3, 6, 5, 7), (1, 1), {"strides": (2, 2)}),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_product_with_the_weights_is_the_convolution(name: str) -> None:
    shape, kernel, attrs = GEOMETRIES[name]
    x, w = normal(*shape), normal(*kernel, shape[-1], 4)
    patches = check("Patches", x, kernel_shape=kernel, **attrs)
    (expected,) = ops.get("Conv").reference([x, w], {"layout": "NHWC", **attrs})
    found = (patches @ w.reshape(-1, 4)).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_rows_are_windows_tap_by_tap() -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 3, 4, 2)
    patches = check("Patches", x, kernel_shape=(2, 2), pads=(0, 1, 0, 0))
    assert patches.shape == (2 * 4, 2 * 2 * 2)
    np.testing.assert_array_equal(patches[0], [0, 0, *x[0, 0, 0], 0, 0, *x[0, 1, 0]])
    np.testing.assert_array_equal(patches[6], x[0, 1:, 1:3].reshape(-1))


def test_refusals() -> None:
    assert "a window of 5 elements does not fit" in refusal(
        "Patches", normal(1, 4, 4, 2), kernel_shape=(5, 1)
    )
    assert "Patches takes 3 dimensions or more" in refusal("Patches", normal(4, 4), kernel_shape=())
    assert "it takes 2 ints" in refusal("Patches", normal(1, 4, 4, 2), kernel_shape=(1,))
