"""ONNX import: what it makes of operators and opsets, against onnx's own reference evaluator."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.errors import ModelImportError, UnknownParameterError, UnsupportedOpError, UsageError
from autotune.frontends import zoo, zoo_built
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.verify import verify


def random_inputs(graph, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(graph.types[name].shape).astype(graph.types[name].dtype)
        for name in graph.inputs
    }


def check_against_onnx(model, tolerance=1e-4):
    graph = load(model)
    verify(graph)
    inputs = random_inputs(graph)
    results = evaluate.run(graph, inputs)
    expected = ReferenceEvaluator(model).run(None, inputs)
    assert len(expected) == len(graph.outputs)
    for name, want in zip(graph.outputs, expected, strict=True):
        assert results[name].dtype == want.dtype
        np.testing.assert_allclose(results[name], want, rtol=tolerance, atol=tolerance)
    return graph


def one_node(op, shape, opset=17, constants=(), outputs=1, **attributes):
    """A model of one node that reads x and then constants."""
    b = ModelBuilder("one", seed=1)
    inputs = [b.input("x", shape)]
    inputs += ["" if array is None else b.constant(f"c{i}", array) for i, array in enumerate(constants)]
    names = [f"y{i}" for i in range(outputs)]
    b.nodes(op, inputs, names, **attributes)
    return b.finish(names, opset)


F32, I64 = np.float32, np.int64


SMALL_MODELS = {
    "tiny_cnn": zoo_built.tiny_cnn,
    "mlp": lambda: zoo_built.mlp(batch=2, sizes=(8, 16, 4)),
    "encoder": lambda: zoo_built.encoder(layers=1, width=16, heads=2, sequence=6, hidden=32),
    "mobilenetv2": lambda: zoo_built.mobilenetv2(size=32),
}


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_zoo_models_agree_with_onnx(name):
    check_against_onnx(SMALL_MODELS[name](), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [e for e in zoo.names() if e != "tiny_cnn"])
def test_every_zoo_model_imports(name):
    graph = load(f"zoo:{name}")
    verify(graph)
    assert graph.name == name
    assert graph.types[graph.inputs[0]].shape == zoo.info(name).input_shape


@pytest.mark.parametrize("opset", range(7, 24))
def test_every_opset(opset):
    b = ModelBuilder("net", seed=2)
    x = b.input("x", (1, 2, 6, 6))
    x = b.node("Conv", [x, b.normal("w", (4, 2, 3, 3), 0.3)], "conv", auto_pad="SAME_UPPER")
    x = b.node("Relu", [b.node("MaxPool", [x], "pool", kernel_shape=[2, 2])], "relu")
    x = b.node("Flatten", [x], "flat", axis=1)
    x = b.node("Gemm", [x, b.normal("g", (3, 100), 0.1)], "dense", transB=1) if opset >= 11 else x
    check_against_onnx(b.finish([b.node("Softmax", [x], "y", axis=1)], opset))


PARAMETERS_AS_INPUTS = {
    "reshape": one_node("Reshape", (2, 3, 4), constants=[np.array([0, -1], I64)]),
    "clip": one_node("Clip", (3, 4), constants=[F32(-0.5), F32(0.5)]),
    "clip_above": one_node("Clip", (3, 4), constants=[None, F32(0.5)]),
    "slice": one_node(
        "Slice", (5, 6), constants=[np.array([1, -2], I64), np.array([2**62, -5], I64),
                                    np.array([0, 1], I64), np.array([2, -1], I64)]
    ),
    "pad": one_node("Pad", (2, 3), constants=[np.array([0, 1, 2, 0], I64), F32(7)]),
    "pad_axes": one_node(
        "Pad", (2, 3), opset=18, constants=[np.array([1, 2], I64), F32(7), np.array([-1], I64)]
    ),
    "unsqueeze": one_node("Unsqueeze", (2, 3), constants=[np.array([0, -1], I64)]),
    "squeeze_all": one_node("Squeeze", (1, 3, 1)),
    "expand": one_node("Expand", (3, 1), constants=[np.array([2, 1, 4], I64)]),
    "reduce_axes": one_node("ReduceMean", (2, 3, 4), opset=18, constants=[np.array([1], I64)]),
    "reduce_all": one_node("ReduceSum", (2, 3), keepdims=0),
    "reduce_nothing": one_node("ReduceSum", (2, 3), noop_with_empty_axes=1),
    "split_sizes": one_node("Split", (7, 2), constants=[np.array([3, 4], I64)], outputs=2),
    "split_uneven": one_node("Split", (7, 2), opset=18, outputs=3, num_outputs=3),
}  # fmt: skip


@pytest.mark.parametrize("case", PARAMETERS_AS_INPUTS)
def test_parameters_given_as_inputs(case):
    graph = check_against_onnx(PARAMETERS_AS_INPUTS[case])
    assert not graph.constants  # all of them are attributes now


ATTRIBUTES_OF_OLD_OPSETS = {
    "clip": one_node("Clip", (3, 4), opset=6 + 1, min=-0.5, max=0.5),
    "slice": one_node("Slice", (5, 6), opset=9, starts=[1, 0], ends=[9, 4]),
    "unsqueeze": one_node("Unsqueeze", (2, 3), opset=11, axes=[0, 3]),
    "split": one_node("Split", (7, 2), opset=11, outputs=2, split=[3, 4]),
    "reduce": one_node("ReduceMean", (2, 3, 4), opset=11, axes=[-1], keepdims=0),
    "softmax_default_axis": one_node("Softmax", (2, 3), opset=11),
    "dropout": one_node("Dropout", (2, 3), opset=10, ratio=0.5),
}


@pytest.mark.parametrize("case", ATTRIBUTES_OF_OLD_OPSETS)
def test_attributes_of_old_opsets(case):
    check_against_onnx(ATTRIBUTES_OF_OLD_OPSETS[case])


def test_softmax_before_opset_13_takes_the_last_axes_as_one():
    graph = load(one_node("Softmax", (2, 3, 4), opset=11, axis=1))
    inputs = random_inputs(graph)
    e = np.exp(inputs["x"])  # onnx's reference evaluator only knows the newer meaning
    want = e / e.sum(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(evaluate.run(graph, inputs)["y0"], want, rtol=1e-5)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_automatic_padding_is_worked_out(mode, stride):
    b = ModelBuilder("one", seed=1)
    x = b.input("x", (1, 2, 7, 8))
    weight = b.normal("w", (3, 2, 4, 3), 0.3)
    b.node("Conv", [x, weight], "y", auto_pad=mode, strides=[stride, stride])
    graph = check_against_onnx(b.finish(["y"]))
    assert "auto_pad" not in graph.nodes[0].attrs


def test_shape_arithmetic_is_folded():
    b = ModelBuilder("shapes", seed=1)
    x = b.input("x", (2, 3, 4))
    size = b.node("Gather", [b.node("Shape", [x], "shape"), b.constant("i", I64(0))], "size")
    rows = b.node("Unsqueeze", [size, b.constant("a", np.array([0], I64))], "rows")
    target = b.node("Concat", [rows, b.constant("rest", np.array([-1], I64))], "target", axis=0)
    b.node("Reshape", [x, target], "y")
    graph = check_against_onnx(b.finish(["y"]))
    assert [node.op for node in graph.nodes] == ["Reshape"]
    assert graph.nodes[0].attrs["shape"] == (2, 12)


def test_model_functions_are_expanded():
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    node = helper.make_node("Twice", ["x"], ["y"], domain="local")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    model = helper.make_model(
        helper.make_graph([node], "g", info[:1], info[1:]), functions=[function],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )  # fmt: skip
    graph = load(model)
    assert [node.op for node in graph.nodes] == ["Add"]


@pytest.mark.parametrize("op", ["Mish", "Celu", "Softsign", "ThresholdedRelu", "Selu"])
def test_operators_that_onnx_defines_by_others_are_expanded(op):
    check_against_onnx(one_node(op, (3, 4), opset=18))


@pytest.mark.parametrize("op", ["SwiGLU", "SoftmaxCrossEntropyLoss"])
def test_definitions_in_definitions_are_expanded(op):
    """SwiGLU by Swish, which is defined itself; the loss by another."""
    if op == "SwiGLU":
        check_against_onnx(one_node(op, (2, 6), opset=28, constants=[np.ones((2, 6), np.float32)]))
    else:
        check_against_onnx(one_node(op, (4, 5), opset=13, constants=[np.array([0, 4, 2, 1])]))


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"])
@pytest.mark.parametrize(
    ("opset", "attrs"), [(11, {"axes": [-1]}), (17, {"axes": [0, 2], "keepdims": 0}), (17, {})]
)
def test_axes_of_reductions_that_were_attributes_are_inputs_of_the_definition(op, opset, attrs):
    check_against_onnx(one_node(op, (2, 3, 4), opset, **attrs))


def test_defaults_of_the_opset_go_into_a_later_definition():
    graph = load(one_node("Selu", (3, 4), 1, consumed_inputs=[0]))
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    alpha, gamma = 1.6732, 1.0507
    expected = gamma * np.where(x > 0, x, alpha * np.exp(x) - alpha)
    np.testing.assert_allclose(evaluate.run(graph, {"x": x})["y0"], expected, rtol=1e-6)


OLD_CASES = {  # operator, further constants, attributes, what it comes to
    "Add at axis 1": (
        "Add",
        [np.arange(3, dtype=F32)],
        {"broadcast": 1, "axis": 1},
        lambda x, c: x + c[:, None],
    ),
    "Mul at the end": ("Mul", [np.arange(4, dtype=F32)], {"broadcast": 1}, lambda x, c: x * c),
    "Pow by a scalar": ("Pow", [np.array(2, F32)], {"broadcast": 1}, lambda x, c: x**c),
    "PRelu": ("PRelu", [np.arange(3, dtype=F32)], {}, lambda x, c: np.where(x < 0, x * c[:, None], x)),
    "Dropout": ("Dropout", [], {"is_test": 1}, lambda x: x),
    "Pad": ("Pad", [], {"pads": [0, 0, 1, 0, 0, 0]}, lambda x: np.pad(x, [(0, 0), (0, 0), (1, 0)])),
}


@pytest.mark.parametrize("name", OLD_CASES)
def test_opset_6(name):
    op, constants, attributes, expected = OLD_CASES[name]
    graph = load(one_node(op, (2, 3, 4), 6, constants, **attributes))
    verify(graph)
    x = random_inputs(graph)["x"]
    np.testing.assert_allclose(evaluate.run(graph, {"x": x})["y0"], expected(x, *constants), rtol=1e-6)


def test_opset_6_gemm_and_batch_normalization():
    b, c, ones = np.ones((4, 5), F32), np.arange(5, dtype=F32), np.ones(3, F32)
    x = np.ones((2, 4), F32)
    graph = load(one_node("Gemm", (2, 4), 6, [b, c], broadcast=1))
    np.testing.assert_allclose(evaluate.run(graph, {"x": x})["y0"], x @ b + c)
    assert "c of shape (5,) needs broadcast=1 (opset 6)" in message(one_node("Gemm", (2, 4), 6, [b, c]))
    load(one_node("BatchNormalization", (2, 3, 4), 6, [ones] * 4, is_test=1))
    assert "is_test=0 is for training" in message(one_node("BatchNormalization", (2, 3, 4), 6, [ones] * 4))
    assert "is_test=0 is for training" in message(one_node("Dropout", (2, 3, 4), 6))


def test_opset_6_operands_that_do_not_fit():
    row = np.ones(4, F32)
    assert "operands of shapes (2, 3, 4) and (4,) need broadcast=1" in message(
        one_node("Add", (2, 3, 4), 6, [row])
    )
    wrong = message(one_node("Add", (2, 3, 4), 6, [row], broadcast=1, axis=1))
    assert "(2, 3, 4)" in wrong


def test_opset_1_cast_and_pad():
    assert load(one_node("Cast", (2, 3), 1, to="FLOAT16")).types["y0"].dtype == "float16"
    assert load(one_node("Pad", (2, 3), 1, paddings=[0, 1, 0, 1])).types["y0"].shape == (2, 5)


def test_results_beside_the_first():
    scale = np.linspace(0.5, 1.5, 4, dtype=np.float32)
    check_against_onnx(one_node("LayerNormalization", (2, 3, 4), 17, [scale], outputs=3))
    check_against_onnx(one_node("Dropout", (2, 3), 13, outputs=2))


@pytest.mark.parametrize("order", [1, 2])
def test_lp_normalization(order):
    graph = load(one_node("LpNormalization", (2, 3, 4), 17, axis=1, p=order))
    x = random_inputs(graph)["x"]
    x[0, :, 0] = 0  # where the norm is zero, so is the result
    norm = np.linalg.norm(x, order, axis=1, keepdims=True)
    found = evaluate.run(graph, {"x": x})["y0"]
    np.testing.assert_allclose(found, x / np.where(norm == 0, 1, norm), rtol=1e-6)


def test_rms_norm():
    scale = np.linspace(0.5, 1.5, 4, dtype=np.float32)
    graph = check_against_onnx(one_node("RMSNormalization", (2, 3, 4), opset=23, constants=[scale]))
    assert [node.op for node in graph.nodes] == ["RMSNormalization"]


def test_ranges_are_folded():
    b = ModelBuilder("range", seed=1)
    bounds = [b.constant(name, I64(v)) for name, v in (("a", 1), ("b", 8), ("c", 3))]
    b.node("Gather", [b.input("x", (9,)), b.node("Range", bounds, "i")], "y")
    graph = check_against_onnx(b.finish(["y"]))
    assert [node.op for node in graph.nodes] == ["Gather"]


def test_symbolic_sizes_can_be_given():
    b = ModelBuilder("open", seed=1)
    b.node("Relu", [b.input("x", ("N", 3))], "y")
    graph = load(b.finish(["y"]), shapes={"x": (4, 3)})
    assert graph.types["y"].shape == (4, 3)


def test_external_data(tmp_path):
    model = zoo.load("mlp")
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    external, internal = load(path), load(zoo.load("mlp"))
    for name, array in internal.constants.items():
        np.testing.assert_array_equal(external.constants[name], array)
    assert external.name == "model"


# --- errors ---------------------------------------------------------------------------------------


def message(source, kind=ModelImportError, **options):
    with pytest.raises(kind) as error:
        load(source, **options)
    return str(error.value)


def test_missing_file(tmp_path):
    assert message(str(tmp_path / "no.onnx"), UsageError) == f"no such file: {tmp_path}/no.onnx"
    assert message("squeezenet", UsageError) == "no such file: squeezenet; did you mean 'zoo:squeezenet'?"


def test_folder(tmp_path):
    assert message(tmp_path, UsageError).startswith(f"not a file: {tmp_path}")


def test_text_file(tmp_path):
    path = tmp_path / "text.onnx"
    path.write_text("hello, this is not a model\nat all")
    assert message(path) == (
        f"{path} is a text file, not an ONNX model (it starts with 'hello, this is not a model')"
    )


def test_lfs_pointer(tmp_path):
    path = tmp_path / "pointer.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    assert "git lfs pull" in message(path)


def test_empty_file(tmp_path):
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    assert message(path) == f"{path} is empty: no ONNX model in it"


@pytest.mark.parametrize("keep", [10, 1000, 5000])
def test_truncated_file(keep):
    data = zoo.load("tiny_cnn").SerializeToString()[:keep]
    assert message(data).startswith("model in bytes ")


@pytest.mark.parametrize("name", [b"probabilities", b"Softmax", b"axis"])
def test_name_that_is_not_text(name):
    data = zoo.load("tiny_cnn").SerializeToString()
    assert data.count(name), name
    damaged = data.replace(name, b"\xff" + name[1:])
    assert message(damaged) == (
        "model in bytes is damaged: a name in it is not text\n  copy or export the file again"
    )


@pytest.mark.parametrize("seed", range(20))
def test_garbage_never_raises_anything_else(seed):
    rng = np.random.default_rng(seed)
    data = bytearray(zoo.load("mlp").SerializeToString()[:4000])
    for at in rng.integers(0, 400, 5):
        data[at] = rng.integers(0, 256)
    with pytest.raises((ModelImportError, UsageError)):
        load(bytes(data))


def test_no_graph():
    data = onnx.ModelProto(ir_version=8, producer_name="test").SerializeToString()
    assert message(data) == ("model in bytes has no graph: it is not an ONNX model, or it is damaged")


def test_opset_out_of_range():
    text = message(one_node("Relu", (2,), opset=29))
    assert "has opset 29; supported are 1 to 28" in text


def test_unsupported_operators_are_all_listed():
    nodes = [
        helper.make_node("PackedAttention", ["x"], ["a"], domain="com.microsoft", name="att"),
        *[helper.make_node("StringNormalizer", ["x"], [f"d{i}"], name=f"string{i}") for i in range(4)],
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", 1, [2, 2])], [info("a", 1, [2, 2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    text = message(model, UnsupportedOpError)
    assert text.startswith(
        "model 'g' uses 2 operators without a definition here, in 5 of 5 nodes:\n"
        "  StringNormalizer: 4 nodes ('string0', 'string1', 'string2', and 1 more); known: ai.onnx.ml::Normalizer\n"
        "  com.microsoft::PackedAttention: 1 node ('att'); known: com.microsoft::Attention, "
        "com.microsoft::QAttention, com.microsoft::MultiHeadAttention\n"
        "  docs/operators.md lists those that are known\n"
        "  those of other domains: "
    )
    assert "  Interleave: 1 node" in message(one_node("Interleave", (6,)), UnsupportedOpError)


def test_dynamic_shapes():
    b = ModelBuilder("open")
    b.node("Add", [b.input("x", ("batch", 3)), b.input("z", (1, 3))], "y")
    assert message(b.finish(["y"])) == (
        "model 'open' has dynamic shapes; compiling needs fixed sizes:\n"
        "  input 'x': [batch, 3]\n"
        "  only the batch size is open: 1 gives the lowest latency\n"
        "  give the sizes, e.g. --shape batch=1 (in Python: shapes={'batch': 1}),\n"
        "  or compile it for many shapes: --shape batch=1..64 (compile, run, tune)"
    )


def test_given_shape_must_fit():
    b = ModelBuilder("open")
    b.node("Relu", [b.input("x", ("n", 3))], "y")
    model = b.finish(["y"])
    assert message(model, UsageError, shapes={"x": (2, 4)}) == (
        "shape (2, 4) does not fit input 'x' of model 'open', which is [n, 3]"
    )
    assert "has no input 'q'" in message(model, UsageError, shapes={"q": (2, 4)})


def test_unsupported_dtype():
    tensor = helper.make_tensor("w", TensorProto.COMPLEX64, [2], [1.0, 2.0])
    info = helper.make_tensor_value_info
    node = helper.make_node("Cast", ["w"], ["y"], to=1)
    graph = helper.make_graph([node], "g", [], [info("y", 1, [2])], [tensor])
    text = message(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert text.startswith(
        "model 'g': initialiser 'w' has unsupported element type COMPLEX64\n  supported: bool, uint8"
    )


def test_parameter_that_is_not_constant():
    b = ModelBuilder("open")
    b.node("Reshape", [b.input("x", (2, 3)), b.input("s", (1,), "int64")], "y")
    model = b.finish([b.node("Relu", ["y"], "z")])
    assert message(model) == (
        "node 'y' (Reshape): input 'shape' ('s') is not a constant\n"
        "  it must be known when the model is compiled: give values={'s': ...} (--value s=...), what it depends on"
    )


def test_values_of_inputs_that_are_parameters():
    b = ModelBuilder("open")
    twice = b.node("Add", [b.input("s", (1,), "int64"), b.input("t", (1,), "int64")], "twice")
    b.node("Reshape", [b.input("x", (2, 3)), twice], "y")
    model = b.finish([b.node("Relu", ["y"], "z")])
    with pytest.raises(UnknownParameterError) as error:
        load(model)
    assert error.value.inputs == ("s", "t")
    graph = load(model, values={"s": np.array([4]), "t": np.array([2])})
    assert graph.inputs == ("x",)
    assert graph.types["z"].shape == (6,)


def test_value_that_does_not_fit():
    model = one_node("Relu", (2,))
    with pytest.raises(UsageError, match=r"value int64\[3\] does not fit input 'x' of .*, which is float32"):
        load(model, values={"x": np.array([1, 2, 3])})


def test_old_attributes_are_not_passed_over():
    text = message(one_node("Relu", (2, 3), 6, broadcast=1))
    assert "broadcast" in text


def test_training_mode():
    ones = np.ones(3, np.float32)
    model = one_node("BatchNormalization", (2, 3, 2, 2), 15, [ones, ones, ones, 2 * ones], 3, training_mode=1)
    check_against_onnx(model)
    text = message(one_node("Dropout", (2, 3), 13, [np.float32(0.5), np.bool_(True)]))
    assert "training_mode is for training" in text


def test_statistics_may_have_another_dtype():
    ones, wide = np.ones(3, np.float32), np.full(3, 2.0)
    check_against_onnx(one_node("BatchNormalization", (2, 3, 2), 15, [ones, ones, wide, wide]))


def test_a_compiled_model_does_not_depend_on_the_file_of_its_weights(tmp_path):
    model, path = zoo.load("mlp"), tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    compiled = autotune.compile(str(path), threads=1)
    x = [np.ones(spec.shape, spec.dtype) for spec in compiled.inputs]
    before = compiled(*x)[0].copy()
    data = tmp_path / "weights.bin"
    with data.open("r+b") as file:
        file.write(bytes(data.stat().st_size))
    np.testing.assert_array_equal(compiled(*x)[0], before)


def external_model(tmp_path, location, **extra):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **extra}.items():
        tensor.external_data.add(key=key, value=str(value))
    info = helper.make_tensor_value_info("y", 1, [4])
    graph = helper.make_graph([helper.make_node("Relu", ["w"], ["y"])], "g", [], [info], [tensor])
    path = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_missing(tmp_path):
    text = message(external_model(tmp_path, "gone.bin"))
    assert "has its data in 'gone.bin', which is not there" in text


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", "link"])
def test_external_data_outside_the_folder(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "secret.bin")
    assert "outside the model's folder" in message(external_model(folder, location))


@pytest.mark.parametrize("extra", [{}, {"offset": 8}, {"length": 8}, {"offset": "x"}])
def test_external_data_too_short(tmp_path, extra):
    (tmp_path / "short.bin").write_bytes(bytes(12))
    text = message(external_model(tmp_path, "short.bin", **extra))
    assert "external data" in text


def test_external_data_without_a_folder(tmp_path):
    data = external_model(tmp_path, "w.bin").read_bytes()
    assert "pass the path of the model instead" in message(data)


def test_wrong_kind_of_source():
    assert "not int" in message(3, UsageError)


def test_initialisers_are_constants():
    graph = load("zoo:mlp")
    weight = numpy_helper.to_array(zoo.load("mlp").graph.initializer[0])
    np.testing.assert_array_equal(graph.constants["weight0"], weight)
    assert graph.inputs == ("x",)


def test_value_that_is_defined_twice():
    model = zoo.load("tiny_cnn")
    model.graph.node.append(model.graph.node[0])
    assert "is defined twice" in message(model.SerializeToString())
