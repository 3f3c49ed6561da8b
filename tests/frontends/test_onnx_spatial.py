"""Operators on images that become several nodes, against ONNX's reference."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate

RNG = np.random.default_rng(5)


def model_of(op: str, arrays: list[Any], constants: dict[int, Any], outputs: int = 1, **attrs: Any) -> Any:
    """One node; ``constants`` are inputs by their places, which are not among ``arrays``."""
    names = [f"x{i}" for i in range(len(arrays) + len(constants))]
    open_ = [name for i, name in enumerate(names) if i not in constants]
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(open_, arrays, strict=True)
    ]
    found = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, found, **attrs)],
        "g",
        given,
        [helper.make_empty_tensor_value_info(name) for name in found],
        [numpy_helper.from_array(array, f"x{i}") for i, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def agree(
    op: str, *arrays: Any, constants: dict[int, Any] | None = None, outputs: int = 1, **attrs: Any
) -> None:
    model = model_of(op, list(arrays), constants or {}, outputs, **attrs)
    names = [value.name for value in model.graph.input]
    given = dict(zip(names, arrays, strict=True))
    wanted = ReferenceEvaluator(model).run(None, given)
    found = evaluate.run(frontend.load(model), given)
    for i, array in enumerate(wanted):
        assert found[f"y{i}"].dtype == array.dtype
        np.testing.assert_allclose(found[f"y{i}"], array, rtol=2e-5, atol=2e-5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("corners", [0, 1])
def test_affine_grids(corners: int) -> None:
    agree("AffineGrid", normal(2, 2, 3), constants={1: np.array([2, 3, 4, 5])}, align_corners=corners)
    agree("AffineGrid", normal(1, 3, 4), constants={1: np.array([1, 3, 2, 3, 4])}, align_corners=corners)


def test_deformable_convolutions_in_groups() -> None:
    x, w, offsets = normal(1, 4, 5, 6), normal(6, 2, 3, 2), normal(1, 24, 3, 5)
    agree("DeformConv", x, w, offsets, normal(6), np.abs(normal(1, 12, 3, 5)), group=2, offset_group=2)
    agree("DeformConv", normal(1, 3, 4, 4), normal(2, 3, 2, 2), normal(1, 8, 2, 2), strides=[2, 2])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows(p: int) -> None:
    x = normal(1, 2, 7, 6)
    agree("LpPool", x, p=p, kernel_shape=[3, 2], strides=[2, 1])
    found = evaluate.run(frontend.load(model_of("GlobalLpPool", [x], {}, p=p)), {"x0": x})["y0"]
    wanted = (np.abs(x.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("pads", [0, 1])
def test_where_the_largest_elements_are(order: int, pads: int) -> None:
    """Not by ONNX's reference, which counts padding."""
    x = normal(2, 3, 6, 8)
    shape = {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [pads] * 4}
    found = evaluate.run(
        frontend.load(model_of("MaxPool", [x], {}, 2, storage_order=order, **shape)), {"x0": x}
    )
    flat = (x.swapaxes(2, 3) if order else x).reshape(-1)
    np.testing.assert_array_equal(flat[found["y1"]], found["y0"])
    assert found["y1"].dtype == np.int64


def test_refusals() -> None:
    for op, arrays, message in (
        ("AffineGrid", [normal(2, 2, 3), np.array([2, 3, 4, 5])], "input 'size' ('x1') is not a constant"),
        ("DeformConv", [normal(1, 3, 4), normal(2, 3, 2), normal(1, 2, 3)], "images of 4 dimensions"),
    ):
        with pytest.raises(ModelImportError, match=re.escape(message)):
            frontend.load(model_of(op, arrays, {}))
