"""Models that are legal and unusual: outputs that nothing computes, tensors without elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import BuildError, ModelImportError
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.runtime.cpu import device
from autotune.runtime.module import Module

Shape = tuple[int, ...]


def model_of(
    nodes: Sequence[Any], inputs: dict[str, Shape], outputs: Sequence[str], constants: dict[str, Any]
) -> Any:
    graph = helper.make_graph(
        nodes,
        "legal",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def check(model: Any, expected: Sequence[Any] | None = None) -> None:
    """Compiled and reference give what ONNX's reference evaluator gives, or what is expected."""
    graph = load(model)
    rng = np.random.default_rng(0)
    feed = {v: rng.standard_normal(graph.type_of(v).shape).astype(np.float32) for v in graph.inputs}
    if expected is None:
        expected = ReferenceEvaluator(model).run(None, feed)
    reference = evaluate.run(graph, feed)
    with Module(compile_in_detail(CompileRequest(graph, target="host", threads=2)).image) as module:
        assert [spec.name for spec in module.outputs] == [value.name for value in model.graph.output]
        found = module(*feed.values())
        by_name = module.run(feed)
    for spec, got, want in zip(module.outputs, found, expected, strict=True):
        for array in (got, reference[spec.name], by_name[spec.name]):
            assert (array.dtype, array.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(array, want, 1e-5, 1e-5)


RELU = helper.make_node("Relu", ["x"], ["y"])
COPY = helper.make_node("Identity", ["y"], ["z"])


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([RELU], ("y", "x")),
        ([], ("x",)),
        ([RELU], ("y", "c")),
        ([helper.make_node("Neg", ["c"], ["z"])], ("z",)),
        ([RELU, helper.make_node("Neg", ["c"], ["z"])], ("z", "y")),
        ([helper.make_node("Shape", ["x"], ["z"])], ("z",)),
        ([RELU, COPY], ("y", "z")),
        ([RELU, helper.make_node("Relu", ["x"], ["z"])], ("z", "y")),
        ([RELU, helper.make_node("Flatten", ["y"], ["z"])], ("z", "y", "x")),
        ([helper.make_node("ReduceSum", ["c"], ["z"], keepdims=0)], ("z",)),
    ],
)
def test_outputs_may_be_inputs_constants_and_copies(nodes: Sequence[Any], outputs: tuple[str, ...]) -> None:
    check(model_of(nodes, {"x": (2, 3)}, outputs, {"c": np.arange(6, dtype=np.float32).reshape(2, 3)}))


def test_an_output_may_be_declared_twice() -> None:
    model = model_of([RELU], {"x": (2, 3)}, ["y", "y"], {})
    with Module(compile_in_detail(CompileRequest(model, target="host", threads=1)).image) as module:
        found = module(np.ones((2, 3), np.float32))
    assert [a.tolist() for a in found] == [np.ones((2, 3)).tolist()] * 2


def one(op: str, *shapes: Shape, outputs: int = 1, constants: Sequence[Any] = (), **attributes: Any) -> Any:
    inputs = {f"i{k}": shape for k, shape in enumerate(shapes)}
    known = {f"c{k}": np.asarray(array) for k, array in enumerate(constants)}
    names = [f"y{k}" for k in range(outputs)]
    return model_of([helper.make_node(op, [*inputs, *known], names, **attributes)], inputs, names, known)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (one("Relu", (0, 3)), [zeros(0, 3)]),
        (model_of([RELU], {"x": (0, 3)}, ("y", "x"), {}), [zeros(0, 3)] * 2),
        (one("Add", (0, 3), (1, 3)), [zeros(0, 3)]),
        (one("ReduceSum", (2, 0), constants=[[1]]), [zeros(2, 1)]),
        (one("ReduceSum", (2, 0)), [zeros(1, 1)]),
        (one("ReduceProd", (2, 0), constants=[[1]]), [zeros(2, 1) + 1]),
        (one("ReduceMax", (2, 0), constants=[[1]]), [zeros(2, 1) - np.inf]),
        (one("ReduceMax", (0, 3), constants=[[1]]), [zeros(0, 1)]),
        (one("Conv", (0, 3, 8, 8), (4, 3, 3, 3), (4,)), [zeros(0, 4, 6, 6)]),
        (one("Conv", (1, 0, 8, 8), (4, 0, 3, 3)), [zeros(1, 4, 6, 6)]),
        (one("ConvTranspose", (0, 3, 8, 8), (3, 4, 3, 3)), [zeros(0, 4, 10, 10)]),
        (one("MatMul", (2, 0), (0, 3)), [zeros(2, 3)]),
        (one("Gemm", (2, 0), (0, 3), (3,)), None),
        (one("Concat", (2, 0), (2, 3), axis=1), None),
        (one("Concat", (2, 0), (2, 0), axis=1), [zeros(2, 0)]),
        (one("Split", (4, 2), constants=[[0, 4]], outputs=2), None),
        (one("MaxPool", (0, 3, 8, 8), kernel_shape=[2, 2]), [zeros(0, 3, 7, 7)]),
        (one("GlobalAveragePool", (0, 3, 4, 8)), [zeros(0, 3, 1, 1)]),
        (one("Softmax", (2, 0)), [zeros(2, 0)]),
        (one("LayerNormalization", (0, 3), (3,)), [zeros(0, 3)]),
        (one("Slice", (4, 3), constants=[[2], [2]]), [zeros(0, 3)]),
        (one("Pad", (0, 3), constants=[[1, 1, 1, 1]]), [zeros(2, 5)]),
        (one("Gather", (2, 3), constants=[np.zeros(0, np.int64)]), [zeros(0, 3)]),
    ],
)
def test_tensors_without_elements(model: Any, expected: Sequence[Any] | None) -> None:
    check(model, expected)


def test_what_has_no_value_over_no_elements_is_refused() -> None:
    for model in (one("ReduceMean", (2, 0), constants=[[1]]), one("GlobalAveragePool", (1, 3, 0, 8))):
        with pytest.raises(ModelImportError, match=r"elements: x has shape"):
            load(model)


def test_a_model_that_needs_more_memory_than_there_is_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(device.np, "empty", none_left)
    with pytest.raises(BuildError, match=r"there is no memory for 42949673\d\d bytes \(4.0 GiB\)"):
        device.allocate(1 << 32)


def test_values_beyond_any_memory_are_refused() -> None:
    with pytest.raises(
        ModelImportError, match=r"input 'i0' is float32\[1099511627776\], 4398046511104 bytes"
    ):
        load(one("Relu", (1 << 40,)))
    grown = one("Expand", (1,), constants=[[1 << 40]])
    with pytest.raises(ModelImportError, match=r"the most that a value may have"):
        load(grown)


def test_the_largest_of_integers_is_found() -> None:
    """A reduction of two values, index and element, in vectors of partial results."""
    b = GraphBuilder("largest")
    graph = b.graph(b.node("ArgMax", b.input("x", (3, 8), "int64"), axis=-1, name="y"))
    x = np.random.default_rng(0).integers(0, 9, (3, 8))
    with Module(compile_in_detail(CompileRequest(graph, target="host", threads=1)).image) as module:
        np.testing.assert_array_equal(module(x)[0], x.argmax(axis=1, keepdims=True))
