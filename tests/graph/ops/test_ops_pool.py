"""Pools against plain loops over windows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.graph import ops
from autotune.te.tensor import post_order
from tests.graph.ops.op_checks import check, normal, refusal, stages


def loops(x: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, out: Any, **how: Any) -> Any:
    """NCHW pool of any rank: gather the cells of each window that count, then fold them."""
    rank = x.ndim - 2
    result = np.zeros((*x.shape[:2], *out))
    for n, c, *where in product(*map(range, result.shape)):
        cells, count = [], 0
        for tap in product(*map(range, kernel)):
            at = [
                p * s + t * d - b
                for p, s, t, d, b in zip(where, strides, tap, dilations, pads[:rank], strict=True)
            ]
            inside = all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True))
            in_padding = all(-pads[i] <= a < x.shape[2 + i] + pads[rank + i] for i, a in enumerate(at))
            if inside:
                cells.append(x[(n, c, *at)])
            count += inside or (how.get("count_include_pad", 0) and in_padding)
        result[(n, c, *where)] = max(cells) if how["fold"] == "max" else sum(cells) / count
    return result


CASES = [
    # kernel, strides, dilations, pads, ceil_mode, output size for a 7 x 6 (x 5) input
    ((3, 3), (2, 2), (1, 1), (0, 0, 0, 0), 0, (3, 2)),
    ((3, 3), (2, 2), (1, 1), (0, 0, 0, 0), 1, (3, 3)),
    ((3, 2), (2, 3), (1, 1), (1, 0, 1, 1), 0, (4, 2)),
    ((3, 2), (2, 2), (1, 1), (1, 1, 1, 1), 1, (4, 4)),
    ((2, 2), (1, 1), (2, 3), (0, 1, 1, 0), 0, (6, 4)),
    ((2, 2), (3, 3), (1, 1), (0, 0, 0, 0), 1, (3, 2)),
    ((3,), (2,), (1,), (1, 1), 0, (4,)),
    ((40, 30), (1, 1), (1, 1), (20, 15, 20, 15), 0, (8, 7)),  # beyond the image
    ((9, 4), (1, 2), (3, 5), (12, 10, 13, 6), 1, (8, 4)),
    ((20, 20), (5, 7), (1, 1), (19, 0, 3, 19), 0, (2, 1)),
    ((2, 2, 2), (2, 2, 2), (1, 1, 1), (0, 0, 0, 0, 0, 0), 1, (4, 3, 3)),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    ("op", "how"),
    [
        ("MaxPool", {"fold": "max"}),
        ("AveragePool", {"fold": "mean"}),
        ("AveragePool", {"fold": "mean", "count_include_pad": 1}),
    ],
)
def test_pools(layout: str, case: tuple[Any, ...], op: str, how: dict[str, Any]) -> None:
    kernel, strides, dilations, pads, ceil_mode, out = case
    x = normal(1, 2, *(7, 6, 5)[: len(kernel)])
    expected = loops(x, kernel, strides, dilations, pads, out, **how)
    attrs = {k: v for k, v in how.items() if k != "fold"}
    attrs |= {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if layout == "NHWC":
        x, expected = np.moveaxis(x, 1, -1).copy(), np.moveaxis(expected, 1, -1)
    result = check(op, x, layout=layout, ceil_mode=ceil_mode, **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 4, 2)])
@pytest.mark.parametrize(("op", "fold"), [("GlobalMaxPool", np.max), ("GlobalAveragePool", np.mean)])
def test_global_pools(shape: tuple[int, ...], op: str, fold: Any) -> None:
    x = normal(*shape)
    spatial = tuple(range(2, len(shape)))
    expected = fold(x, axis=spatial, keepdims=True)
    np.testing.assert_allclose(check(op, x), expected, rtol=1e-5, atol=1e-6)
    result = check(op, np.moveaxis(x, 1, -1).copy(), layout="NHWC")
    np.testing.assert_allclose(result, np.moveaxis(expected, 1, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_far_beyond_its_image_reads_the_image(op: str) -> None:
    x = te.placeholder((1, 8, 7, 7), name="x")
    attrs = {"kernel_shape": (1280, 1280), "pads": (640, 640, 640, 640)}
    (y,) = ops.get(op).compute([x], attrs, "y")
    stages_ = [o for o in post_order([y]) if isinstance(o, te.ComputeOp)]
    assert stages_[0].shape == (1, 8, 21, 21)
    assert [a.extent for o in stages_ for a in o.reduce_axis] == [14, 14]
    data = normal(1, 8, 7, 7)
    result = check(op, data, **attrs)
    expected = data.max((2, 3)) if op == "MaxPool" else data.mean((2, 3))
    np.testing.assert_allclose(result[:, :, 4, 4], expected, rtol=1e-5, atol=1e-6)


def test_the_count_of_a_mean_takes_no_room_for_each_cell_of_its_window() -> None:
    x = normal(1, 1, 4, 4)
    result = check("AveragePool", x, kernel_shape=(2**40, 1), pads=(2**39, 0, 2**39 - 1, 0))
    np.testing.assert_allclose(result, np.broadcast_to(x.mean(2, keepdims=True), x.shape), rtol=1e-5)


def test_integer_max_pool_pads_with_the_smallest_value() -> None:
    x = np.full((1, 1, 2, 2), -5, np.int8)
    result = check("MaxPool", x, kernel_shape=(2, 2), pads=(1, 1, 1, 1))
    assert (result == -5).all()


def test_stages() -> None:
    x = normal(1, 4, 4, 2)
    window = {"kernel_shape": (2, 2), "layout": "NHWC"}
    assert stages("MaxPool", x, **window) == ["out"]
    assert stages("MaxPool", x, pads=(1, 0, 0, 0), **window) == ["out.pad", "out"]
    assert stages("AveragePool", x, **window) == ["out.sum", "out"]
    assert stages("AveragePool", x, pads=(1, 0, 0, 0), **window) == ["out.pad", "out.sum", "out"]
    assert stages("GlobalAveragePool", x, layout="NHWC") == ["out.sum", "out"]


def test_refusals() -> None:
    x = normal(1, 1, 4, 4)
    message = refusal("MaxPool", x, kernel_shape=(2, 2), pads=(2, 0, 0, 0))
    assert message == "MaxPool: pads (2, 0, 0, 0) must be smaller than the window (2, 2)"
    assert refusal("MaxPool", x) == "MaxPool needs attribute 'kernel_shape'"
    message = refusal("AveragePool", x, kernel_shape=(2,))
    assert message == "AveragePool: kernel_shape = (2,); it takes 2 ints, each >= 1"
    message = refusal("GlobalMaxPool", normal(2, 3))
    assert message == "GlobalMaxPool takes 3 to 5 dimensions, got x of shape (2, 3)"
