"""Conv against a convolution written as plain loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from autotune.graph import ops
from autotune.graph.ir import TensorType
from tests.graph.ops.op_checks import check, normal, reduction, refusal, stages


def loops(x: Any, w: Any, group: int, strides: Any, dilations: Any, pads: Any) -> Any:
    """NCHW convolution of any rank, an element at a time."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    size = [
        (padded.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    per_group = w.shape[0] // group
    for n, oc, *where in product(*map(range, out.shape)):
        for ic, *tap in product(*map(range, w.shape[1:])):
            source = [p * s + t * d for p, s, t, d in zip(where, strides, tap, dilations, strict=True)]
            channel = oc // per_group * w.shape[1] + ic
            out[(n, oc, *where)] += padded[(n, channel, *source)] * w[(oc, ic, *tap)]
    return out


CASES = [
    # channels in, out, group, kernel, strides, dilations, pads
    (3, 4, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (3, 4, 1, (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
    (3, 2, 1, (3, 2), (2, 1), (1, 2), (0, 1, 2, 0)),
    (4, 4, 4, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    (2, 6, 2, (3, 3), (1, 1), (1, 1), (0, 1, 1, 0)),
    (4, 6, 2, (2, 3), (1, 2), (2, 1), (1, 0, 0, 1)),
    (3, 4, 1, (3,), (2,), (2,), (2, 1)),
    (2, 4, 2, (2, 1, 2), (1, 2, 1), (1, 1, 2), (1, 0, 0, 0, 0, 1)),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_convolution(layout: str, case: tuple[Any, ...], biased: bool) -> None:
    ic, oc, group, kernel, strides, dilations, pads = case
    x = normal(2, ic, *(5, 6, 4)[: len(kernel)])
    w, bias = normal(oc, ic // group, *kernel), normal(oc)
    expected = loops(x, w, group, strides, dilations, pads)
    if biased:
        expected = expected + bias.reshape(-1, *[1] * len(kernel))
    if layout == "NHWC":
        x, w = np.moveaxis(x, 1, -1).copy(), np.moveaxis(w, (0, 1), (-1, -2)).copy()
        expected = np.moveaxis(expected, 1, -1)
    operands = (x, w, bias) if biased else (x, w)
    attrs = {"strides": strides, "dilations": dilations, "pads": pads}
    result = check("Conv", *operands, layout=layout, group=group, **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_defaults_are_completed() -> None:
    types = [TensorType((1, 3, 5, 5), "float32"), TensorType((4, 3, 3, 3), "float32")]
    assert ops.get("Conv").canonical(types, {}) == {
        "dilations": (1, 1),
        "group": 1,
        "kernel_shape": (3, 3),
        "layout": "NCHW",
        "pads": (0, 0, 0, 0),
        "strides": (1, 1),
    }


def test_stages_and_axes() -> None:
    x, w, bias = normal(1, 5, 5, 3), normal(3, 3, 3, 4), normal(4)
    assert stages("Conv", x, w, layout="NHWC") == ["out"]
    padded = {"layout": "NHWC", "pads": (1, 1, 1, 1)}
    assert stages("Conv", x, w, **padded) == ["out.pad", "out"]
    assert stages("Conv", x, w, bias, **padded) == ["out.pad", "out.acc", "out"]
    op = reduction("Conv", x, w, layout="NHWC")
    assert [a.name for a in op.axis] == ["n", "h", "w", "oc"]
    assert [a.name for a in op.reduce_axis] == ["rh", "rw", "rc"]
    op = reduction("Conv", normal(1, 3, 5, 5), normal(4, 3, 3, 3))
    assert [a.name for a in op.axis] == ["n", "oc", "h", "w"]
    assert [a.name for a in op.reduce_axis] == ["rc", "rh", "rw"]


def test_depthwise_reads_the_weights_without_group_arithmetic() -> None:
    op = reduction("Conv", normal(1, 5, 5, 4), normal(3, 3, 1, 4), layout="NHWC", group=4)
    assert str(op.body[0]).count("//") == 0


def test_padding_only_where_there_is_some() -> None:
    from autotune import te

    x, w = te.placeholder((1, 5, 5, 3), name="x"), te.placeholder((3, 1, 3, 4), name="w")
    attrs = {"layout": "NHWC", "pads": (1, 0, 1, 0)}
    (out,) = ops.get("Conv").compute([x, w], attrs, "out")
    pad = out.op.input_tensors[0]
    assert pad.name == "out.pad"
    assert pad.shape == (1, 7, 5, 3)
    text = str(pad.op.body[0])
    assert ">=" in text
    assert "i2 <" not in text


@pytest.mark.parametrize(
    ("x", "w", "attrs", "message"),
    [
        (
            (1, 3, 5, 5),
            (4, 2, 3, 3),
            {},
            "Conv: w of shape (4, 2, 3, 3) has 2 input channels a group, x of shape (1, 3, 5, 5) "
            "has 3 (layout NCHW, group 1)",
        ),
        (
            (1, 3, 5, 5),
            (4, 3, 3, 3),
            {"group": 2},
            "Conv: group = 2 does not divide 3 input and 4 output channels",
        ),
        (
            (1, 3, 5, 5),
            (4, 3, 7, 3),
            {},
            "Conv: a window of 7 elements does not fit into dimension 0 of (5, 5), which has 5 with padding",
        ),
        (
            (1, 3, 5, 5),
            (4, 3, 3, 3),
            {"strides": (0, 1)},
            "Conv: strides = (0, 1); it takes 2 ints, each >= 1",
        ),
        (
            (1, 3, 5, 5),
            (4, 3, 3, 3),
            {"kernel_shape": (1, 1)},
            "Conv: kernel_shape (1, 1) but w has kernel (3, 3)",
        ),
        ((3, 5), (4, 3), {}, "Conv takes 3 to 5 dimensions, got x of shape (3, 5)"),
        (
            (1, 3, 5),
            (4, 3, 3, 3),
            {},
            "Conv: x of shape (1, 3, 5) and w of shape (4, 3, 3, 3) have different ranks",
        ),
    ],
)
def test_refusals(x: Any, w: Any, attrs: dict[str, Any], message: str) -> None:
    assert refusal("Conv", np.ones(x, np.float32), np.ones(w, np.float32), **attrs) == message


def test_flops() -> None:
    types = [TensorType((1, 4, 6, 6), "float32"), TensorType((8, 2, 3, 3), "float32")]
    assert ops.get("Conv").flops(types, {"group": 2}) == 2 * 8 * 16 * 2 * 9
