"""Quantised operators: ONNX's numbers before and after they become integer products, and as machine code."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelImportError, UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.passes.quantized.integer_products import SIGNS, IntegerProducts

pytestmark = pytest.mark.registers

QUANTISED = ("quantize", "qlinear", "integer")


def onnx_cases() -> list[Any]:
    """Return the cases of the modules that are named so: importing one works its cases out, and all take seconds."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node.__path__, f"{node.__name__}."):
            if any(word in module.name for word in QUANTISED):
                importlib.import_module(module.name)
    return [case for case in node._NodeTestCases if any(word in case.name for word in QUANTISED)]


def arrays(value: Any) -> np.ndarray:
    """Return the result of a case, which for types that NumPy lacks is ONNX's own."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return onnx_cases()


@pytest.mark.parametrize("activations", SIGNS)
def test_onnx_cases_give_their_numbers(cases: list[Any], activations: str) -> None:
    checked = 0
    for case in cases:
        for opset in case.model.opset_import:
            opset.version = min(opset.version, 23)
        try:
            graph = frontend.load(case.model)
        except ModelImportError:
            continue
        given, expected = case.data_sets[0]
        names = (declared.name for declared in case.model.graph.input)
        given, expected = ([arrays(a) for a in each] for each in (given, expected))
        feed = {n: a for n, a in zip(names, given, strict=True) if n in graph.inputs}
        for form in (graph, run_passes(graph, (IntegerProducts(activations), *standard_passes()))):
            found = evaluate.run(form, feed)
            for name, wanted in zip(graph.outputs, expected, strict=True):
                np.testing.assert_allclose(found[name], wanted, rtol=1e-5, err_msg=case.name)
        checked += 1
    assert checked >= 15


def model(node: Any, inputs: dict[str, Any], constants: dict[str, Any], result: int) -> Any:
    import onnx
    from onnx import helper, numpy_helper

    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    fixed = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    output = helper.make_tensor_value_info(node.output[0], result, None)
    graph = helper.make_graph([node], "quantised", given, [output], fixed)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    assert isinstance(made, onnx.ModelProto)
    return made


def compiled_gives_reference(proto: Any, inputs: dict[str, Any]) -> None:
    graph = frontend.load(proto)
    wanted = evaluate.run(graph, inputs)
    found = autotune.compile(proto, threads=1).run(inputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])


def random(rng: np.random.Generator, dtype: str, *shape: int) -> Any:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 64, 64), (5, 7, 9), (33, 100, 70), (17, 16, 4)], ids=lambda size: str(size)
)
@pytest.mark.parametrize(
    ("a", "b", "a_zero", "b_zero"),
    [
        ("uint8", "int8", 3, 0),
        ("int8", "int8", -3, 0),
        ("uint8", "uint8", 0, 128),
        ("int8", "uint8", 7, 3),
    ],
)
def test_compiled_matmul_integer(m: int, n: int, k: int, a: str, b: str, a_zero: int, b_zero: int) -> None:
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    inputs = {"a": random(rng, a, m, k)}
    constants = {
        "b": random(rng, b, k, n),
        "az": np.array(a_zero, a),
        "bz": np.array(b_zero, b),
    }
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["c"])
    compiled_gives_reference(model(node, inputs, constants, TensorProto.INT32), inputs)


def test_zero_points_that_are_known_only_at_run_time() -> None:
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    inputs = {
        "a": random(rng, "uint8", 9, 24),
        "b": random(rng, "uint8", 24, 40),
        "az": np.array(7, "uint8"),
        "bz": random(rng, "uint8", 40),
    }
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["c"])
    compiled_gives_reference(model(node, inputs, {}, TensorProto.INT32), inputs)


@pytest.mark.parametrize("known", [True, False])
def test_products_with_steps_for_each_row_and_column_of_every_matrix(known: bool) -> None:
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    inputs = {"a": random(rng, "uint8", 2, 9, 24), "b": random(rng, "int8", 2, 24, 40)}
    steps = {
        "as": rng.uniform(0.01, 0.02, (2, 9, 1)).astype("float32"),
        "az": random(rng, "uint8", 2, 9, 1),
        "bs": rng.uniform(0.01, 0.02, (2, 1, 40)).astype("float32"),
        "bz": random(rng, "int8", 2, 1, 40),
        "ys": rng.uniform(0.5, 1.0, (2, 9, 1)).astype("float32"),
        "yz": random(rng, "uint8", 2, 9, 1),
    }
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
    given, constants = (inputs, steps) if known else (inputs | steps, {})
    compiled_gives_reference(model(node, given, constants, TensorProto.UINT8), given)


@pytest.mark.parametrize(
    ("a", "b"), [((9, 24), (24,)), ((24,), (24, 40)), ((24,), (24,)), ((2, 9, 24), (24,))]
)
def test_products_of_vectors_with_zero_points(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    inputs = {"a": random(rng, "uint8", *a), "b": random(rng, "uint8", *b)}
    zeros = {"az": np.array(7, "uint8"), "bz": np.array(3, "uint8")}
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["c"])
    compiled_gives_reference(model(node, inputs, zeros, TensorProto.INT32), inputs)


@pytest.mark.parametrize(("group", "kernel"), [(1, 3), (2, 3), (8, 3), (1, 1)])
def test_compiled_qlinear_conv(group: int, kernel: int) -> None:
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    inputs = {"x": random(rng, "uint8", 1, 8, 9, 11)}
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(11),
        "w": random(rng, "int8", 24, 8 // group, kernel, kernel),
        "ws": rng.uniform(0.001, 0.02, 24).astype("float32"),
        "wz": np.zeros(24, "int8"),
        "ys": np.float32(0.05),
        "yz": np.uint8(100),
        "bias": rng.integers(-1000, 1000, 24).astype("int32"),
    }
    pads = [kernel // 2] * 4
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"], pads=pads, strides=[2, 1], group=group)
    compiled_gives_reference(model(node, inputs, constants, TensorProto.UINT8), inputs)


def test_images_of_few_channels_fill_a_dot_product() -> None:
    from onnx import TensorProto, helper

    from autotune.compiler import distinct_workloads, divide
    from autotune.target import Target
    from search_spaces.spaces import space_for

    rng = np.random.default_rng(0)
    inputs = {"x": random(rng, "uint8", 1, 3, 9, 11)}
    constants = {"w": random(rng, "int8", 16, 3, 3, 3), "xz": np.uint8(7)}
    node = helper.make_node("ConvInteger", ["x", "w", "xz"], ["y"], pads=[1] * 4, strides=[2, 2])
    proto = model(node, inputs, constants, TensorProto.INT32)
    compiled_gives_reference(proto, inputs)
    machine = Target.parse("x86-64-v4-vnni")
    workloads = distinct_workloads(divide(proto, target=machine))
    found = [str(space_for(w, machine).schedule(space_for(w, machine).default()).trace) for w in workloads]
    assert any("vpdpbusd" in text for text in found), found


@pytest.mark.parametrize("wide", ["float64", "int64"])
def test_sums_that_are_read_as_wider_numbers(wide: str) -> None:
    from onnx import helper

    b = ModelBuilder("wide")
    w = b.constant("w", random(b.rng, "int8", 5, 16))
    sums = b.node("MatMulInteger", [b.input("x", (12, 5), "uint8"), w], "sums")
    cast = b.node("Cast", [sums], "cast", to=helper.np_dtype_to_tensor_dtype(np.dtype(wide)))
    proto = b.finish(
        [b.node("Sub", [cast, b.constant("c", b.rng.integers(-9, 9, (12, 16)).astype(wide))], "y")]
    )
    compiled_gives_reference(proto, {"x": random(b.rng, "uint8", 12, 5)})


def test_a_dynamically_quantised_product_compiles() -> None:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    b, x = random(rng, "int8", 64, 48), rng.standard_normal((16, 64)).astype("float32")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "b", "z"], ["c"]),
        helper.make_node("Cast", ["c"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["r", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "dynamic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(b, "b")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    found = autotune.compile(proto, threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(found, x @ b.astype("float32"), atol=20)


def test_unknown_activations_are_refused() -> None:
    with pytest.raises(UsageError, match="activations are uint8 or int8, not 'int4'"):
        IntegerProducts("int4")


@pytest.mark.parametrize(("target", "dot"), [("x86-64-v4-vnni", "vpdpbusd"), ("aarch64-dotprod", "sdot")])
def test_a_model_is_brought_to_the_dot_product_of_its_target(target: str, dot: str) -> None:
    from onnx import TensorProto, helper

    from autotune.compiler import distinct_workloads, divide
    from autotune.target import Target
    from search_spaces.spaces import space_for

    rng = np.random.default_rng(0)
    inputs, constants = {"a": random(rng, "uint8", 8, 16)}, {"b": random(rng, "uint8", 16, 32)}
    node = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    proto, machine = model(node, inputs, constants, TensorProto.INT32), Target.parse(target)
    workloads = distinct_workloads(divide(proto, target=machine))
    found = [str(space_for(w, machine).schedule(space_for(w, machine).default()).trace) for w in workloads]
    assert any(dot in text for text in found), found
