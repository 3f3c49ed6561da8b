"""Import of ONNX ConvTranspose: auto_pad, output_shape, and attributes that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from autotune.errors import ModelImportError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate


def model(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Any:
    b = ModelBuilder("up", seed=3)
    b.nodes("ConvTranspose", [b.input("x", x), b.normal("w", w, 0.5)], ["y"], **attributes)
    return b.finish(["y"], 17)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "auto_pad": "VALID"},
        {"strides": [2, 2], "dilations": [2, 1]},
    ],
    ids=str,
)
def test_attributes_mean_what_onnx_says(attributes: dict[str, Any]) -> None:
    made = model((1, 2, 4, 5), (2, 3, 3, 3), **attributes)
    graph = load(made)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5), dtype=np.float32)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    (found,) = evaluate.run(graph, {"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "pads", "extra"),
    [
        ({"output_shape": [9, 10]}, (2, 1, 1, 0), (0, 0)),
        ({"output_shape": [9, 10], "auto_pad": "SAME_UPPER"}, (1, 0, 2, 1), (0, 0)),
        ({"output_shape": [13, 12], "output_padding": [1, 1]}, (0, 0, 0, 0), (1, 1)),
        ({"output_shape": [13, 11]}, (0, 0, 0, 0), (1, 0)),
    ],
    ids=str,
)
def test_output_shape_decides_about_padding(
    attributes: dict[str, Any], pads: tuple[int, ...], extra: tuple[int, ...]
) -> None:
    graph = load(model((1, 2, 4, 5), (2, 3, 3, 3), strides=[3, 2], **attributes))
    (node,) = graph.nodes
    assert (node.attrs["pads"], node.attrs["output_padding"]) == (pads, extra)
    assert list(graph.type_of("y").shape[2:]) == attributes["output_shape"]


def refused(**attributes: Any) -> str:
    with pytest.raises(ModelImportError) as caught:
        load(model((1, 2, 4, 5), (2, 3, 3, 3), **attributes))
    return str(caught.value)


def test_impossible_attributes_are_one_clear_error() -> None:
    assert refused(strides=[2, 2], output_padding=[2, 0]).endswith(
        "output_padding = (2, 0) must be smaller than strides (2, 2) or dilations (1, 1)"
    )
    assert (
        "Attribute output_shape has incorrect size\n"
        "  given: (x: float32[1, 2, 4, 5], w: float32[2, 3, 3, 3]) output_shape = [4]\n"
        "  ConvTranspose-11 takes (X: T, W: T, B?: T)"
    ) in refused(output_shape=[4])
    assert refused(auto_pad="SAME").endswith("unknown auto_pad 'SAME'")
    assert "pads (9, 0, 0, 0) leave nothing of the output" in refused(pads=[9, 0, 0, 0])
