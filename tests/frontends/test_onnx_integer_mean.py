"""Means of integers, as ONNX's reference computes them: sums that wrap around, divided towards zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.errors import ModelImportError
from autotune.frontends.models import load


def mean_of(dtype: str, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("ReduceMean", ["x"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "mean",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("attributes", [{"axes": [1]}, {"axes": [0, 2], "keepdims": 0}, {}])
def test_means_of_integers_are_those_of_the_reference(dtype: str, attributes: Any) -> None:
    model = mean_of(dtype, (3, 5, 4), **attributes)
    x = np.random.default_rng(1).integers(max(np.iinfo(dtype).min, -9), 9, (3, 5, 4), dtype)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = autotune.compile(model, threads=1)(x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_sums_wrap_around_before_they_are_divided_exactly(dtype: str) -> None:
    most = int(np.iinfo(dtype).max)
    x = np.array([[most, most, 5], [most, -3 if dtype[0] == "i" else 3, 0]], dtype)
    (found,) = autotune.compile(mean_of(dtype, (2, 3), axes=[1]), threads=1)(x)
    sums = np.sum(x, 1, dtype=dtype).tolist()
    assert found.reshape(-1).tolist() == [abs(total) // 3 * (-1 if total < 0 else 1) for total in sums]


def test_a_mean_of_no_integers_is_an_error() -> None:
    with pytest.raises(ModelImportError, match=r"the mean of no integers; x is int32\[2, 0\]"):
        load(mean_of("int32", (2, 0), axes=[1]))
