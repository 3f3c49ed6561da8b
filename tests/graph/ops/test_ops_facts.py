"""What definitions say about operators, held against their NumPy references."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from autotune.graph import ops
from autotune.graph.ir import TensorType
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
