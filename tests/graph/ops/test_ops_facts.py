"""Facts of operators' definitions, held against their NumPy references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from autotune.graph import ops
from autotune.graph.ir import Attr, TensorType
from autotune.graph.ops.facts import Domain
from autotune.strides import dense_strides
from tests.graph.ops.cases import CASES, Case


def types_of(case: Case) -> list[TensorType]:
    return [TensorType.of(a) for a in case.arrays]


@pytest.mark.parametrize("case", [c for c in CASES if ops.get(c.op).is_copy_rule], ids=str)
def test_what_is_a_copy_gives_its_operand(case: Case) -> None:
    definition = ops.get(case.op)
    (result, *_) = definition.reference(case.arrays, case.attrs)
    copied = definition.is_copy(types_of(case), definition.canonical(types_of(case), case.attrs))
    same_type = TensorType.of(result) == types_of(case)[0]
    assert copied == (same_type and np.array_equal(result, case.arrays[0]))


COPIES = [
    ("Cast", {"to": "float32"}),
    ("Concat", {"axis": 1}),
    ("Expand", {"shape": (1, 3)}),
    ("Max", {}),
    ("Pad", {"pads": (0, 0, 0, 0)}),
    ("Reshape", {"shape": (2, -1)}),
    ("Slice", {"starts": (0,), "ends": (9,)}),
    ("Squeeze", {"axes": ()}),
    ("Transpose", {"perm": (0, 1)}),
]


@pytest.mark.parametrize(("op", "attrs"), COPIES)
def test_copies(op: str, attrs: dict[str, object]) -> None:
    definition, types = ops.get(op), [TensorType((2, 3), "float32")]
    assert definition.is_copy(types, definition.canonical(types, attrs))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [c for c in CASES if ops.get(c.op).commutative], ids=str)
def test_operands_of_commutative_operators_may_be_swapped(case: Case) -> None:
    definition = ops.get(case.op)
    turned = definition.reference(case.arrays[::-1], case.attrs)
    np.testing.assert_allclose(turned[0], definition.reference(case.arrays, case.attrs)[0], 1e-6, 1e-6)


@pytest.mark.parametrize("op", [op for op in ops.names() if ops.get(op).neutral is not None])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_neutral_constants_change_nothing(op: str, dtype: str) -> None:
    definition = ops.get(op)
    x, neutral = np.array([-3, 0, 5], dtype), np.full(3, definition.neutral, dtype)
    np.testing.assert_array_equal(definition.reference([x, neutral], {})[0], x)
    if definition.commutative:
        np.testing.assert_array_equal(definition.reference([neutral, x], {})[0], x)


@pytest.mark.parametrize("case", [c for c in CASES if ops.get(c.op).view], ids=str)
def test_views_are_in_the_memory_of_the_whole(case: Case) -> None:
    definition = ops.get(case.op)
    results = definition.reference(case.arrays, case.attrs)
    wholes, parts = (results, case.arrays) if definition.view == "join" else (case.arrays, results)
    (whole,) = wholes
    if definition.view == "reshape":
        np.testing.assert_array_equal(parts[0].reshape(-1), whole.reshape(-1))
        return
    memory, attrs = whole.reshape(-1), definition.canonical(types_of(case), case.attrs)
    for index, part in enumerate(parts):
        found = definition.part(types_of(case), attrs, index)
        offset, strides = found.placed(dense_strides(whole.shape))
        steps = [stride * whole.itemsize for stride in strides]
        np.testing.assert_array_equal(as_strided(memory[offset:], part.shape, steps), part)
        if definition.view == "permutation":
            _, back = found.inverse.placed(dense_strides(part.shape))
            steps = [stride * whole.itemsize for stride in back]
            np.testing.assert_array_equal(as_strided(part.reshape(-1), whole.shape, steps), whole)


def permuted(op: str, arrays: list[Any], attrs: Mapping[str, Attr], perm: list[int]) -> list[Any]:
    """Results for operands with their axes in another order, and the named ones where they have moved."""
    definition = ops.get(op)
    named = definition.permutable or ""
    before = attrs[named] if named else ()
    moved = [perm.index(axis) for axis in (before if isinstance(before, tuple) else (before,))]
    turned = dict(attrs) | ({named: tuple(moved) if isinstance(before, tuple) else moved[0]} if named else {})
    return definition.reference([a.transpose(perm) for a in arrays], turned)


@pytest.mark.parametrize(
    "case", [c for c in CASES if ops.get(c.op).permutable or ops.get(c.op).pointwise], ids=str
)
def test_permutable_operators_are_the_same_in_any_order_of_axes(case: Case) -> None:
    definition, rank = ops.get(case.op), max(a.ndim for a in case.arrays)
    if "layout" in definition.attributes:
        return
    arrays = [a.reshape((1,) * (rank - a.ndim) + a.shape) for a in case.arrays]
    attrs = definition.canonical([TensorType.of(a) for a in arrays], case.attrs)
    if not attrs.get("keepdims", 1):
        attrs["keepdims"] = 1
    perm = list(reversed(range(rank)))
    for found, wanted in zip(
        permuted(case.op, arrays, attrs, perm), definition.reference(arrays, attrs), strict=True
    ):
        np.testing.assert_allclose(found, wanted.transpose(perm), 1e-5, 1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if ops.get(c.op).weights], ids=str)
def test_weights_have_their_channels_where_the_definition_says(case: Case) -> None:
    definition, last = ops.get(case.op), case.attrs.get("layout") == "NHWC"
    weights, rank = definition.weights, case.arrays[0].ndim
    assert weights is not None
    result = definition.reference(case.arrays, case.attrs)[0]
    channels = case.arrays[1].shape[weights.output_axis({"layout": "NHWC" if last else "NCHW"})]
    groups = 1 if weights.outputs_of_all_groups else case.attrs.get("group", 1)
    assert result.shape[-1 if last else 1] == channels * groups
    if not last:
        x, w, *rest = case.arrays
        to_last = (0, *range(2, rank), 1)
        turned = [x.transpose(to_last), w.transpose(weights.channels_last(rank)), *rest]
        found = definition.reference(turned, {**case.attrs, "layout": "NHWC"})[0]
        np.testing.assert_allclose(found, result.transpose(to_last), 1e-5, 1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if ops.get(c.op).positive_inputs], ids=str)
def test_positive_inputs_give_finite_results(case: Case) -> None:
    definition = ops.get(case.op)
    wanted = definition.positive_inputs
    arrays = [np.abs(a) + a.dtype.type(1) if i in wanted else a for i, a in enumerate(case.arrays)]
    assert np.isfinite(definition.reference(arrays, case.attrs)[0]).all()
    attrs = definition.canonical(types_of(case), case.attrs)
    assert definition.domain(types_of(case), attrs, wanted[0]) == Domain("positive")


def test_operators_say_whether_onnx_has_them() -> None:
    from onnx import defs

    names = {name for name in ops.names() if "." not in name}  # others are users', with a domain
    own = {name for name in names if not defs.has(name)}
    others = {"Attention", "GroupNormalization", "If", "Loop"}  # which ONNX defines otherwise
    assert {name for name in names if not ops.get(name).in_onnx} == own | others
