"""Reshapes, movement, indexing and shape operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import GraphError
from autotune.graph import ops
from autotune.graph.ir import TensorType
from tests.graph.ops.op_checks import check, normal, refusal


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("source", "shape", "result"),
    [
        ((2, 3, 4), (6, -1), (6, 4)),
        ((2, 3, 4), (0, 2, 6), (2, 2, 6)),
        ((4, 6, 5), (3, 8, 5), (3, 8, 5)),
        ((1,), (), ()),
        ((), (1, 1), (1, 1)),
        ((0, 3), (3, 0), (3, 0)),
        ((2, 0), (0, 7), (0, 7)),
    ],
)
def test_reshape(source: Any, shape: Any, result: Any) -> None:
    x = normal(*source).reshape(source)
    same(check("Reshape", x, shape=shape), x.reshape(result))


def test_reshape_leaves_unchanged_dimensions_alone() -> None:
    x = te.placeholder((8, 6, 4), name="x")
    (y,) = ops.get("Reshape").compute([x], {"shape": (8, 2, 3, 4)}, "y")
    assert str(y.op.body[0]) == "x[i0, i1 * 3 + i2, i3]"
    (y,) = ops.get("Reshape").compute([x], {"shape": (8, 24)}, "y")
    assert str(y.op.body[0]) == "x[i0, i1 // 4, i1 % 4]"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, -1), "Reshape of (2, 3) to (5, -1): sizes do not divide"),
        ((-1, -1), "Reshape to (-1, -1): one -1 is allowed, nothing below it"),
        ((-2, 3), "Reshape to (-2, 3): one -1 is allowed, nothing below it"),
        ((1, 1, 0), "Reshape of (2, 3) to (1, 1, 0): no dimension 2"),
        ((7,), "Reshape: (2, 3) has 6 elements, (7,) does not"),
    ],
)
def test_reshape_refusals(shape: Any, message: str) -> None:
    assert refusal("Reshape", normal(2, 3), shape=shape) == message


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of equal size: the same factors cut in two ways, with ones put in."""
    factors = draw(st.lists(st.integers(1, 4), max_size=5))

    def cut() -> tuple[int, ...]:
        shape: list[int] = []
        for factor in factors:
            if shape and draw(st.booleans()):
                shape[-1] *= factor
            else:
                shape.append(factor)
        return tuple(shape)

    return cut(), cut()


@settings(max_examples=80, deadline=None)
@given(reshapes())
def test_any_reshape_keeps_the_order(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, result = shapes
    x = np.arange(math.prod(source), dtype=np.int64).reshape(source)
    same(check("Reshape", x, shape=result), x.reshape(result))


@pytest.mark.parametrize("axis", range(-3, 4))
def test_flatten(axis: int) -> None:
    x = normal(2, 3, 4)
    rows = math.prod(x.shape[:axis]) if axis else 1
    same(check("Flatten", x, axis=axis), x.reshape(rows, -1))


def test_squeeze_unsqueeze_expand() -> None:
    x = normal(1, 3, 1)
    same(check("Squeeze", x), x[0, :, 0])
    same(check("Squeeze", x, axes=(-1,)), x[:, :, 0])
    assert refusal("Squeeze", x, axes=(1,)) == "Squeeze: dimension 1 of (1, 3, 1) is not 1"
    y = normal(3, 2)
    same(check("Unsqueeze", y, axes=(0, -1)), y[None, :, :, None])
    same(check("Unsqueeze", y, axes=(3, 1)), y[:, None, :, None])
    same(check("Expand", y, shape=(4, 1, 1)), np.broadcast_to(y, (4, 3, 2)))
    assert refusal("Expand", y, shape=(5,)) == "shapes (3, 2) and (5,) do not broadcast"


def test_transpose() -> None:
    x = normal(2, 3, 4)
    same(check("Transpose", x, perm=(1, 2, 0)), np.transpose(x, (1, 2, 0)))
    same(check("Transpose", x), x.T)
    message = refusal("Transpose", x, perm=(0, 0, 1))
    assert message == "Transpose: perm = (0, 0, 1) is not a permutation of 3 dimensions"


def test_concat_and_split() -> None:
    parts = [normal(2, 3), normal(2, 0), normal(2, 1), normal(2, 2)]
    same(check("Concat", *parts, axis=-1), np.concatenate(parts, axis=1))
    same(check("Concat", normal(1), normal(2), axis=0).shape, (3,))
    x = normal(6, 2)
    for found, wanted in zip(check("Split", x, split=(1, 2, 3)), np.split(x, [1, 3]), strict=True):
        same(found, wanted)
    message = refusal("Concat", normal(2, 3), normal(3, 3), axis=1)
    assert message == "Concat on axis 1: shapes (2, 3) and (3, 3) do not fit"
    message = refusal("Split", x, split=(1, 2))
    assert message == "Split: sizes (1, 2) do not add up to dimension 0 of (6, 2)"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_channel_shuffle(layout: str) -> None:
    x = np.arange(6.0).reshape(1, 6, 1, 1)
    expected = np.array([0.0, 2, 4, 1, 3, 5])
    if layout == "NHWC":
        x = x.reshape(1, 1, 1, 6)
    same(check("ChannelShuffle", x, groups=3, layout=layout).ravel(), expected)
    message = refusal("ChannelShuffle", x, groups=4, layout=layout)
    assert message == "ChannelShuffle: groups = 4 does not divide 6 channels"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(layout: str, mode: str) -> None:
    x, b = normal(2, 8, 3, 2), 2
    if mode == "DCR":
        expected = x.reshape(2, b, b, 2, 3, 2).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 6, 4)
    else:
        expected = x.reshape(2, 2, b, b, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 4)
    if layout == "NHWC":
        x, expected = np.moveaxis(x, 1, -1).copy(), np.moveaxis(expected, 1, -1)
    same(check("DepthToSpace", x, blocksize=2, mode=mode, layout=layout), expected)
    if mode == "DCR":
        same(check("SpaceToDepth", expected.copy(), blocksize=2, layout=layout), x)
    message = refusal("DepthToSpace", x, blocksize=0, layout=layout)
    assert message == f"DepthToSpace: blocksize = 0 does not divide shape {x.shape}"


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_slice_is_pythons(data: st.DataObject) -> None:
    bound = st.integers(-8, 8) | st.sampled_from([2**62, -(2**62)])
    step = st.integers(-3, 3).filter(bool)
    axes = data.draw(st.lists(st.integers(0, 2), unique=True, max_size=3))
    parts = [data.draw(st.tuples(bound, bound, step)) for _ in axes]
    x = np.arange(4 * 5 * 3).reshape(4, 5, 3)
    key: list[slice] = [slice(None)] * 3
    for axis, part in zip(axes, parts, strict=True):
        key[axis] = slice(*part)
    starts, ends, steps = zip(*parts, strict=True) if parts else ((), (), ())
    negative = tuple(a - 3 for a in axes)
    found = check("Slice", x, starts=starts, ends=ends, steps=steps, axes=negative)
    same(found, x[tuple(key)])


def test_slice_defaults_and_refusals() -> None:
    x = normal(4, 5)
    same(check("Slice", x, starts=(1,), ends=(3,)), x[1:3])
    message = refusal("Slice", x, starts=(1,), ends=(3,), steps=(0,))
    assert message == "Slice: a step is 0"
    message = refusal("Slice", x, starts=(1, 2), ends=(3,))
    assert message == "Slice: starts (1, 2), ends (3,), axes (0, 1), steps (1, 1) do not match"


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gather(axis: int, dtype: str) -> None:
    x, indices = normal(3, 4, 3), np.array([[0, -1], [2, -3]], dtype)
    same(check("Gather", x, indices, axis=axis), np.take(x, indices, axis=axis))
    same(check("Gather", x, np.array(1, dtype), axis=axis), np.take(x, 1, axis=axis))


def test_gather_out_of_range() -> None:
    x, wrong = normal(3, 2), np.array([1, 3])
    with pytest.raises(GraphError, match="Gather: index 3 is out of range for 3 elements"):
        ops.get("Gather").reference([x, wrong], {})
    a, b = te.placeholder((3, 2), name="a"), te.placeholder((2,), "int64", name="b")
    (y,) = ops.get("Gather").compute([a, b], {}, "y")
    same(te.evaluate([y], {a: x, b: wrong})[0], x[[1, 2]])  # clamped, never outside
    message = refusal("Gather", x, np.ones(2, np.float32))
    assert message == "Gather: indices are float32, not int32 or int64"


@pytest.mark.parametrize(
    ("mode", "pads"),
    [
        ("constant", (1, 0, 2, 3)),
        ("constant", (-1, 2, 0, -2)),
        ("constant", (0, 0, 0, 0)),
        ("reflect", (2, 1, 1, 3)),
        ("edge", (2, 5, 0, 3)),
    ],
)
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    x = normal(3, 4)
    core = x[max(0, -pads[0]) : 3 - max(0, -pads[2]), max(0, -pads[1]) : 4 - max(0, -pads[3])]
    widths = [(max(0, pads[0]), max(0, pads[2])), (max(0, pads[1]), max(0, pads[3]))]
    how: dict[str, Any] = {"constant_values": 1.5} if mode == "constant" else {}
    value = {"value": 1.5} if mode == "constant" else {}
    same(check("Pad", x, pads=pads, mode=mode, **value), np.pad(core, widths, mode=mode, **how))


def test_pad_refusals() -> None:
    x = normal(3, 4)
    message = refusal("Pad", x, pads=(3, 0, 0, 0), mode="reflect")
    assert message == "Pad: pads (3, 0, 0, 0) do not fit shape (3, 4), mode reflect"
    message = refusal("Pad", x, pads=(-2, 0, -2, 0))
    assert message == "Pad: pads (-2, 0, -2, 0) do not fit shape (3, 4), mode constant"
    assert refusal("Pad", x, pads=(1, 1)) == "Pad: pads = (1, 1); it takes 4 ints for 2 dimensions"


def test_shape_operators() -> None:
    same(check("Shape", normal(2, 3, 4)), [2, 3, 4])
    same(check("Shape", normal(2, 3, 4), start=-2), [3, 4])
    same(check("Shape", normal(2, 3, 4), start=1, end=2), [3])
    same(check("ConstantOfShape", shape=(2, 1), value=7.0, dtype="int64"), [[7], [7]])
    same(check("Range", start=1.0, limit=8.0, delta=3.0), [1, 4, 7])
    same(check("Range", start=3.0, limit=0.0, delta=-1.5, dtype="float32"), [3, 1.5])
    assert refusal("Range", start=0.0, limit=1.0, delta=0.0) == (
        "Range: start, limit and delta must be finite and delta not 0, got 0.0, 1.0, 0.0"
    )


def test_movement_counts_no_arithmetic() -> None:
    for op, attrs in (("Transpose", {}), ("Reshape", {"shape": (6,)})):
        assert ops.get(op).flops([TensorType((2, 3), "float32")], attrs) == 0


def test_tile() -> None:
    x = normal(2, 3)
    same(check("Tile", x, repeats=(2, 1)), np.tile(x, (2, 1)))
    same(check("Tile", x, repeats=(1, 0)), np.tile(x, (1, 0)))
    assert refusal("Tile", x, repeats=(2,)) == "Tile: repeats = (2,) do not fit shape (2, 3)"


def test_gather_elements() -> None:
    x, indices = normal(3, 4), np.array([[0, -1, 2], [1, 1, -3]])
    same(check("GatherElements", x, indices), x[indices, [[0, 1, 2]]])
    same(check("GatherElements", x, indices, axis=-1), x[[[0], [1]], indices])
    message = refusal("GatherElements", x, np.zeros((4, 5), int), axis=0)
    assert message == "GatherElements on axis 0: (4, 5) does not fit (3, 4)"


@pytest.mark.parametrize("k", [-(1 << 63), -3, -2, 0, 1, 4, 9, (1 << 63) - 1])
def test_trilu(k: int) -> None:
    x = normal(2, 3, 4)
    near = max(-9, min(k, 9))  # NumPy takes no huge ones
    same(check("Trilu", x, k=k), np.triu(x, near))
    same(check("Trilu", x, k=k, upper=0), np.tril(x, near))
    assert refusal("Trilu", normal(3)) == "Trilu takes matrices, got shape (3,)"
