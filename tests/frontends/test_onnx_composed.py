"""Operators that become several nodes, against sums that cannot overflow."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.graph.verify import verify


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("axes", [None, (1,), (-1, 0)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_log_sum_exp_does_not_overflow(opset: int, axes: tuple[int, ...] | None, keepdims: int) -> None:
    given = ["x"] if axes is None or opset < 18 else ["x", "axes"]
    attrs = {"axes": axes} if axes is not None and opset < 18 else {}
    node = helper.make_node("ReduceLogSumExp", given, ["y"], keepdims=keepdims, **attrs)
    constants = (
        [helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes)] if len(given) > 1 and axes else []
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], constants)
    model = frontend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))
    verify(model)
    rows = np.array([[1e4, 1e4, 0, -1e4], [-1e4] * 4, [np.inf, 1, 2, -np.inf]], np.float32)
    for data in (rows, -rows, np.full((3, 4), -np.inf, np.float32)):
        wide = data.astype(np.longdouble)
        expected = np.log(np.exp(wide).sum(axes, keepdims=bool(keepdims))).astype(np.float32)
        found = evaluate.run(model, {"x": data})["y"]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("op", "expected"), [("ReduceMax", [True, False]), ("ReduceMin", [False, False])])
def test_extremes_of_truth_values(op: str, expected: list[bool]) -> None:
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    x = helper.make_tensor_value_info("x", TensorProto.BOOL, (2, 3))
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, None)
    graph = helper.make_graph([node], "g", [x], [y], [axes])
    model = frontend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    found = evaluate.run(model, {"x": np.array([[True, False, True], [False, False, False]])})["y"]
    assert found.tolist() == expected
