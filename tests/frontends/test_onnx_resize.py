"""Resize and Upsample as ONNX's reference evaluates them, and where they go in the graph."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.passes.pipeline import run_passes, standard_passes

MODES = ("nearest", "linear", "cubic")
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def resize(shape: tuple[int, ...], dtype: str = "float32", opset: int = 19, **given: Any) -> Any:
    names = ("roi", "scales", "sizes")
    arrays = {
        name: np.array(given.pop(name), np.int64 if name == "sizes" else np.float32)
        for name in names
        if name in given
    }
    inputs = ["x", *(name if name in arrays else "" for name in names)]
    node = helper.make_node("Resize", inputs, ["y"], **given)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def agree(model: Any, x: Any) -> None:
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = evaluate.run(frontend.load(model), {"x": x})["y"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_every_transformation(mode: str, coordinates: str) -> None:
    x = np.random.default_rng(1).standard_normal((1, 2, 6, 5)).astype(np.float32)
    for scales in ([1, 1, 2, 2], [1, 1, 0.5, 1.7], [1, 1, 3, 0.3]):
        agree(resize(x.shape, mode=mode, coordinate_transformation_mode=coordinates, scales=scales), x)
    agree(resize(x.shape, mode=mode, coordinate_transformation_mode=coordinates, sizes=[1, 2, 3, 13]), x)


@pytest.mark.parametrize("mode", MODES)
def test_crops_with_places_outside(mode: str) -> None:
    x = np.random.default_rng(1).standard_normal((1, 1, 6, 5)).astype(np.float32)
    for roi in ([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], [0, 0, 1, -0.5, 1, 1, 0, 0.5]):
        agree(
            resize(
                x.shape,
                mode=mode,
                coordinate_transformation_mode="tf_crop_and_resize",
                roi=roi,
                sizes=[1, 1, 7, 9],
                extrapolation_value=4.0,
            ),
            x,
        )


@pytest.mark.parametrize("mode", MODES[1:])
def test_antialiasing_and_nothing_from_outside(mode: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 7)).astype(np.float32)
    for antialias, exclude in itertools.product((0, 1), (0, 1)):
        model = resize(x.shape, mode=mode, antialias=antialias, exclude_outside=exclude, sizes=[2, 3, 4, 11])
        agree(model, x)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float64"])
def test_other_types(dtype: str) -> None:
    x = (np.random.default_rng(1).standard_normal((1, 2, 4, 5)) * 60 + 128).astype(dtype)
    agree(resize(x.shape, dtype, mode="nearest", scales=[1, 1, 2, 2]), x)
    agree(
        resize(
            x.shape, dtype, mode="linear", scales=[1, 1, 2, 4], coordinate_transformation_mode="asymmetric"
        ),
        x,
    )


def test_between_convolutions_it_is_channels_last_and_part_of_the_next_one() -> None:
    for mode, op in (("nearest", "Resize"), ("linear", "Interpolate")):
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node("Resize", ["a", "", "s"], ["b"], mode=mode),
            helper.make_node("Conv", ["b", "w"], ["y"]),
        ]
        constants = {"w": np.ones((4, 4, 3, 3), np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 9, 9))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        model = frontend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]))
        (node,) = [n for n in run_passes(model, standard_passes()).nodes if n.op == op]
        assert node.attrs["axes"] == (1, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"scales": [1, 1, 2]},
            "scales [1.0, 1.0, 2.0] and sizes [] for 4 axes",
        ),
        (
            {"sizes": [1, 2, 3, 4], "mode": "area"},
            "mode 'area' is not known\n  one of nearest, linear, cubic",
        ),
        ({"sizes": [1, 2, 3, 4], "antialias": 1}, "antialias=1 is for modes linear and cubic, not nearest"),
        (
            {"sizes": [1, 2, 3, 4], "nearest_mode": "up"},
            "nearest_mode 'up' is not known\n  one of round_prefer_floor, round_prefer_ceil, floor, ceil",
        ),
        (
            {"sizes": [1, 2, 3, 4], "coordinate_transformation_mode": "polar"},
            "coordinates 'polar' are not known\n  one of half_pixel,",
        ),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelImportError) as caught:
        frontend.load(resize((1, 2, 6, 5), **given))
    assert message in str(caught.value)
