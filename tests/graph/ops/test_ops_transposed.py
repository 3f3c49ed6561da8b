"""ConvTranspose against a scatter written as plain loops, and Interleave against slicing."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from autotune.graph import ops
from autotune.graph.ir import TensorType
from autotune.graph.ops.interleave import phases
from tests.graph.ops.op_checks import check, normal, refusal, stages


def loops(x: Any, w: Any, group: int, strides: Any, dilations: Any, pads: Any, extra: Any) -> Any:
    """NCHW transposed convolution of any rank, an element at a time."""
    rank, per_group = x.ndim - 2, w.shape[1]
    size = [
        (x.shape[2 + i] - 1) * strides[i]
        + (w.shape[2 + i] - 1) * dilations[i]
        + 1
        + extra[i]
        - pads[i]
        - pads[rank + i]
        for i in range(rank)
    ]
    out = np.zeros((x.shape[0], per_group * group, *size))
    for n, ic, *where in product(*map(range, x.shape)):
        first = ic // (x.shape[1] // group) * per_group
        for oc, *tap in product(*map(range, w.shape[1:])):
            at = [
                p * s + t * d - b for p, s, t, d, b in zip(where, strides, tap, dilations, pads, strict=False)
            ]
            if all(0 <= a < o for a, o in zip(at, size, strict=True)):
                out[(n, first + oc, *at)] += x[(n, ic, *where)] * w[(ic, oc, *tap)]
    return out


CASES = [
    # channels in, out a group, group, kernel, strides, dilations, pads, output_padding
    (3, 4, 1, (4, 4), (2, 2), (1, 1), (1, 1, 1, 1), (0, 0)),
    (3, 2, 1, (3, 2), (2, 3), (1, 1), (0, 1, 2, 0), (1, 2)),
    (4, 3, 2, (3, 3), (1, 2), (2, 1), (1, 0, 0, 1), (0, 1)),
    (4, 1, 4, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), (0, 0)),
    (2, 3, 1, (1, 2), (3, 1), (1, 1), (0, 0, 0, 0), (0, 0)),
    (3, 4, 1, (5,), (2,), (2,), (2, 1), (1,)),
    (2, 2, 1, (2, 1, 3), (2, 1, 2), (1, 1, 1), (1, 0, 0, 0, 0, 1), (0, 0, 1)),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_transposed_convolution(layout: str, case: tuple[Any, ...], biased: bool) -> None:
    ic, oc, group, kernel, strides, dilations, pads, extra = case
    x = normal(2, ic, *(4, 3, 3)[: len(kernel)])
    w, bias = normal(ic, oc, *kernel), normal(oc * group)
    expected = loops(x, w, group, strides, dilations, pads, extra)
    if biased:
        expected = expected + bias.reshape(-1, *[1] * len(kernel))
    if layout == "NHWC":
        x, w = np.moveaxis(x, 1, -1).copy(), np.moveaxis(w, (0, 1), (-2, -1)).copy()
        expected = np.moveaxis(expected, 1, -1)
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra}
    result = check("ConvTranspose", x, w, *([bias] if biased else []), layout=layout, group=group, **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "strides"), [((5,), (2,)), ((4, 5), (2, 3)), ((3, 4, 2), (1, 2, 2))])
def test_interleave_undoes_slicing(size: tuple[int, ...], strides: tuple[int, ...]) -> None:
    whole = normal(2, *size, 3)
    parts = [
        whole[(slice(None), *(slice(p, None, s) for p, s in zip(phase, strides, strict=True)))]
        for phase in phases(strides)
    ]
    result = check("Interleave", *map(np.ascontiguousarray, parts), strides=strides, size=size)
    np.testing.assert_array_equal(result, whole)


@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "size"),
    [
        ((4,), (2,), (1,), (6,)),
        ((4, 4), (2, 2), (1, 1), (6, 8)),
        ((3, 2), (3, 1), (4, 0), (2, 5)),
        ((6, 4, 2), (2, 4, 1), (3, 5, 0), (9, 17, 4)),
    ],
)
def test_overlap_add_is_a_transposed_convolution_by_ones(
    kernel: Any, strides: Any, pads: Any, size: Any
) -> None:
    taps, channels = int(np.prod(kernel)), 3
    x = normal(2, *(3, 4, 2)[: len(kernel)], taps * channels)
    w = np.eye(taps * channels, dtype=np.float32).reshape(taps * channels, *kernel, channels)
    w = np.moveaxis(w, 0, -2).copy()
    result = check("OverlapAdd", x, kernel_shape=kernel, strides=strides, pads=pads, size=size)
    whole = ops.get("ConvTranspose").reference([x, w], {"layout": "NHWC", "strides": strides})[0]
    widths = [
        (0, 0),
        *[(0, max(0, p + o - e)) for p, o, e in zip(pads, size, whole.shape[1:-1], strict=True)],
    ]
    whole = np.pad(whole, [*widths, (0, 0)])
    kept = tuple(slice(p, p + o) for p, o in zip(pads, size, strict=True))
    np.testing.assert_allclose(result, whole[(slice(None), *kept)], rtol=1e-5, atol=1e-5)


def test_stages() -> None:
    x, w = normal(1, 3, 3, 2), normal(2, 2, 2, 4)
    assert stages("ConvTranspose", x, w, layout="NHWC") == ["out.spread", "out"]
    assert stages("ConvTranspose", x, w, normal(4), layout="NHWC") == ["out.spread", "out.acc", "out"]


def test_refusals() -> None:
    x, w = normal(1, 4, 3, 3), normal(4, 2, 3, 3)
    assert refusal("ConvTranspose", x, normal(3, 2, 3, 3)) == (
        "ConvTranspose: w of shape (3, 2, 3, 3) has 3 input channels, x of shape (1, 4, 3, 3) has 4 (layout NCHW)"
    )
    assert refusal("ConvTranspose", x, w, group=3) == (
        "ConvTranspose: group = 3 does not divide 4 input channels"
    )
    assert refusal("ConvTranspose", x, w, pads=(3, 3, 3, 3)) == (
        "ConvTranspose: pads (3, 3, 3, 3) leave nothing of the output: its size would be (-1, -1)"
    )
    assert refusal("ConvTranspose", x, w, output_padding=(0, -1)) == (
        "ConvTranspose: output_padding = (0, -1); it takes 2 ints, each >= 0"
    )
    assert refusal("ConvTranspose", x, w, strides=(2,)) == (
        "ConvTranspose: strides = (2,); it takes 2 ints, each >= 1"
    )
    assert refusal("Interleave", normal(1, 3, 5), strides=(2,), size=(5,)).startswith(
        "Interleave of 1 operands"
    )


def test_flops_count_each_meeting_of_an_element_and_a_tap() -> None:
    types = [TensorType((1, 8, 4, 4), "float32"), TensorType((8, 3, 4, 4), "float32")]
    assert ops.get("ConvTranspose").flops(types, {"strides": (2, 2)}) == 2 * 8 * 16 * 3 * 16
