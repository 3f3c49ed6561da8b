"""Quantised convolutions and products along open axes: at every size the answer of exactly that size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.compiler.test_open_loops import check, model

RNG = np.random.default_rng(3)
IMAGE = {"x": [1, 3, "height", "width"]}
RANGES = {"height": "5..16:16", "width": "8..24:+4:12,24"}
REQUESTS = [{"height": h, "width": w} for h, w in ((5, 8), (7, 12), (16, 20), (16, 24), (9, 16))]


def bytes_of(*shape, kind=np.uint8):
    return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape).astype(kind)


@pytest.mark.parametrize(
    "attrs",
    [
        {"pads": [1, 1, 1, 1]},
        {"pads": [2, 0, 1, 2], "strides": [2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"group": 3, "pads": [1, 1, 1, 1]},
    ],
)
def test_convolutions_that_are_quantised_as_they_run(attrs):
    weights = bytes_of(6, 3 // attrs.get("group", 1), 3, 3, kind=np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("ConvInteger", ["q", "w", "zero"], ["sums"], **attrs),
        helper.make_node("Cast", ["sums"], ["real"], to=1),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
    ]
    check(model(nodes, IMAGE, ["y"], {"w": weights}), RANGES, REQUESTS)


def test_convolutions_of_known_scales():
    constants = {
        "w": bytes_of(4, 3, 3, 3, kind=np.int8),
        "s": np.float32(0.02),
        "ws": np.full(4, 0.01, np.float32),
        "ys": np.float32(0.05),
        "z": np.uint8(117),
        "wz": np.zeros(4, np.int8),
        "yz": np.uint8(90),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node(
            "QLinearConv",
            ["q", "s", "z", "w", "ws", "wz", "ys", "yz"],
            ["c"],
            pads=[1, 1, 1, 1],
            strides=[1, 2],
        ),
        helper.make_node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    check(model(nodes, IMAGE, ["y"], constants), RANGES, REQUESTS)


def test_products_that_are_quantised_as_they_run():
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero", "wz"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=1),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
    ]
    constants = {"w": bytes_of(8, 5), "wz": np.uint8(120)}
    proto = model(nodes, {"x": ["batch", "length", 8]}, ["y"], constants)
    requests = [{"batch": b, "length": n} for b, n in ((1, 1), (2, 3), (2, 9), (3, 10))]
    check(proto, {"batch": "1..3:3", "length": "1..10:4,10"}, requests)


def test_products_of_known_scales():
    constants = {"w": bytes_of(8, 5), "s": np.float32(0.02), "ws": np.float32(0.01), "ys": np.float32(0.05)}
    constants |= {"z": np.uint8(117), "wz": np.uint8(100), "yz": np.uint8(90)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "ys", "yz"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    proto = model(nodes, {"x": ["length", 8]}, ["y"], constants)
    check(proto, {"length": "1..10:4,10"}, [{"length": n} for n in (1, 4, 5, 10)])
