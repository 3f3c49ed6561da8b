"""Outputs that are as long as the data say: what a model gives, and what may read them inside of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.hardware import usable_cores

RNG = np.random.default_rng(3)


def model(nodes: list[Any], shape: tuple[int, ...], outputs: list[str], **constants: Any) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    stored = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def sparse(*shape: int) -> Any:
    return np.where(RNG.random(shape) < 0.4, RNG.standard_normal(shape), 0).astype(np.float32)


def test_the_elements_that_are_not_zero_whichever_they_are() -> None:
    nodes = [
        node("NonZero", "x", "places"),
        node("Transpose", "places", "rows", perm=[1, 0]),
        node("GatherND", "x rows", "values"),
        node("Cast", "values", "doubles", to=TensorProto.DOUBLE),
        node("Gather", "places first", "lines", axis=0),
    ]
    module = autotune.compile(
        model(nodes, (4, 6), ["rows", "doubles", "lines"], first=np.array(0)), threads=1
    )
    assert [spec.shape for spec in module.outputs] == [(24, 2), (24,), (24,), (1,)]
    for x in (sparse(4, 6), np.zeros((4, 6), np.float32), np.ones((4, 6), np.float32), sparse(4, 6)):
        rows, doubles, lines, count = module(x)
        np.testing.assert_array_equal(rows, np.argwhere(x))
        np.testing.assert_array_equal(doubles, x[x != 0].astype(np.float64))
        np.testing.assert_array_equal(lines, np.nonzero(x)[0])
        assert count.tolist() == [np.count_nonzero(x)]


def test_saved_and_in_the_background(tmp_path: Any) -> None:
    module = autotune.compile(model([node("NonZero", "x", "places")], (9,), ["places"]), threads=1)
    module.save(tmp_path / "m.atm")
    loaded, x = autotune.load(tmp_path / "m.atm"), sparse(9)
    for found in (loaded.run({"x": x})["places"], loaded.submit(x).result()[0]):
        np.testing.assert_array_equal(found, np.argwhere(x).T)


def test_on_an_opencl_device() -> None:
    pytest.importorskip("pyopencl")
    with autotune.compile(
        model([node("NonZero", "x", "places")], (5, 7), ["places"]), target="opencl"
    ) as module:
        for x in (sparse(5, 7), sparse(5, 7)):
            np.testing.assert_array_equal(module(x)[0], np.argwhere(x).T)
            np.testing.assert_array_equal(module.submit(x).result()[0], np.argwhere(x).T)


@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_on_several_devices(tmp_path: Any) -> None:
    """The elements are found on one device, and computed with on the other."""
    made = model(
        [node("Abs", "x", "a"), node("NonZero", "a", "where"), node("Neg", "x", "y")], (3, 5), ["where", "y"]
    )
    placement = {"Abs": "cpu:1", "*": "cpu:0"}
    with autotune.compile(made, placement=placement) as module:
        assert {*module.devices} == {"cpu:0", "cpu:1"}
        module.save(tmp_path / "m.atm")
        for _ in range(3):
            x = sparse(3, 5)
            where, y = module(x)[0], module.submit(x).result()[1]
            np.testing.assert_array_equal(where, np.array(np.nonzero(x)))
            np.testing.assert_array_equal(y, -x)
    with autotune.load(tmp_path / "m.atm") as module:
        np.testing.assert_array_equal(module(x)[0], np.array(np.nonzero(x)))


def test_unique_and_compress() -> None:
    nodes = [
        node("Unique", "x", "values first number often", sorted=0),
        node("Reshape", "x all", "flat"),
        node("Greater", "flat zero", "positive"),
        node("Compress", "x positive", "kept"),
    ]
    outputs = ["values", "first", "number", "often", "kept"]
    module = autotune.compile(model(nodes, (3, 5), outputs, zero=np.float32(0), all=[-1]), threads=1)
    x = RNG.integers(-2, 3, (3, 5)).astype(np.float32)
    values, first, number, often, kept, *_ = module(x)
    _, places, counts = np.unique(x, return_index=True, return_counts=True)
    order = np.argsort(places)
    np.testing.assert_array_equal(first, places[order])
    np.testing.assert_array_equal(values, x.reshape(-1)[first])
    np.testing.assert_array_equal(often, counts[order])
    np.testing.assert_array_equal(values[number], x.reshape(-1))
    np.testing.assert_array_equal(kept, x[x > 0])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unique_slices(axis: int) -> None:
    x = RNG.integers(0, 2, (6, 2, 5)).astype(np.float32)
    graph = frontend.load(
        model([node("Unique", "x", "values first number often", axis=axis)], x.shape, ["values"])
    )
    ((output, along, length),) = graph.counted
    found = evaluate.run(graph, {"x": x})
    count = found[graph.outputs[length]][0]
    values = np.take(found[graph.outputs[output]], range(count), axis=along)
    np.testing.assert_array_equal(values, np.unique(x, axis=axis))


@pytest.mark.parametrize(
    ("reader", "constants"),
    [
        (node("ReduceSum", "places", "y", keepdims=0), {}),
        (node("MatMul", "square places", "y"), {"square": np.zeros((2, 2), np.int64)}),
        (node("Shape", "places", "y"), {}),
        (node("Concat", "places places", "y", axis=0), {}),
        (node("Reshape", "places all", "y"), {"all": np.array([-1])}),
        (node("Slice", "places zero one last", "y"), {"zero": [0], "one": [1], "last": [1]}),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)
def test_what_would_take_the_rest_for_elements_is_refused(reader: Any, constants: dict[str, Any]) -> None:
    nodes = [node("NonZero", "x", "places"), reader]
    with pytest.raises(ModelImportError, match=r"'places'.* along axis 1 is known only when it is computed"):
        frontend.load(model(nodes, (3, 4), ["y"], **constants))
