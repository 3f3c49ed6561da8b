"""The check of all operators' tests: an operator's rules agree with each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune import te
from autotune.graph import ops
from autotune.graph.ir import TensorType
from autotune.te.dtypes import HALVES

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(op: str, *arrays: Any, **attrs: Any) -> Any:
    """Shape rule, NumPy reference and tensor expression agree; returns the reference's output.

    Several outputs come back as a list. Completing attributes twice must change nothing.
    """
    definition = ops.get(op)
    types = [None if a is None else TensorType.of(a) for a in arrays]
    complete = definition.canonical(types, attrs)
    assert definition.canonical(types, complete) == complete
    inferred = definition.complete_and_infer(types, attrs)[1]
    assert definition.complete_and_infer(types, complete)[1] == inferred
    expected = definition.reference(arrays, attrs)
    assert [TensorType.of(a) for a in expected] == inferred
    assert definition.flops(types, attrs) >= 0
    if definition.compute_rule is not None:
        check_expression(op, arrays, attrs, expected)
    return expected[0] if len(expected) == 1 else expected


def check_expression(op: str, arrays: Any, attrs: Any, expected: list[np.ndarray]) -> None:
    tensors = [
        None if a is None else te.placeholder(a.shape, str(a.dtype), name=f"x{i}")
        for i, a in enumerate(arrays)
    ]
    names = [f"out{i}" for i in range(len(expected))]
    computed = ops.get(op).compute(tensors, attrs, names)
    assert [t.name for t in computed] == names
    given = {t: a for t, a in zip(tensors, arrays, strict=True) if t is not None}
    for found, wanted in zip(te.evaluate(computed, given), expected, strict=True):
        assert TensorType.of(found) == TensorType.of(wanted)
        tolerance = 2e-2 if str(found.dtype) in HALVES else 2e-5
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def stages(op: str, *arrays: Any, **attrs: Any) -> list[str]:
    """Names of the stages of an operator's tensor expression, producers first."""
    from autotune.te.tensor import post_order

    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(arrays)]
    outputs = ops.get(op).compute(tensors, attrs, "out")
    return [o.name for o in post_order(outputs) if isinstance(o, te.ComputeOp)]


def reduction(op: str, *arrays: Any, **attrs: Any) -> te.ComputeOp:
    """The first stage with reduce axes."""
    from autotune.te.tensor import post_order

    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(arrays)]
    outputs = ops.get(op).compute(tensors, attrs, "out")
    return next(o for o in post_order(outputs) if isinstance(o, te.ComputeOp) and o.reduce_axis)


def refusal(op: str, *arrays: Any, **attrs: Any) -> str:
    """The message with which the shape rule refuses."""
    import pytest

    from autotune.errors import GraphError

    types = [None if a is None else TensorType.of(a) for a in arrays]
    with pytest.raises(GraphError) as caught:
        ops.get(op).complete_and_infer(types, attrs)
    return str(caught.value)
