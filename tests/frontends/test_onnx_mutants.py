"""Hostile and damaged models: each is one clear error, and asks for no memory beyond a stated limit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autotune.errors import AutotuneError, ModelImportError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.importer import load
from tests.frontends.fuzz import FINE, _missing, read_record, report, verdict_of
from tests.frontends.mutants import mutant, small_seeds

MUTANTS, COMPILED = 600, 60


@pytest.mark.parametrize("block", range(6))
def test_mutants_are_imported_or_refused(block: int) -> None:
    for seed in range(block, MUTANTS, 6):
        try:
            load(mutant(seed, small_seeds()))
        except AutotuneError:
            continue
        except Exception as error:  # noqa: BLE001  # what a user must never see
            pytest.fail(f"mutant {seed}: {type(error).__name__}: {error}")


def test_mutants_compile_and_run() -> None:
    """A few of those that ``python -m tests.frontends.fuzz`` runs by the thousand."""
    with np.errstate(all="ignore"):
        ends = [
            (seed, *verdict_of(mutant(seed, small_seeds()), seed, lambda stage: None))
            for seed in range(COMPILED)
        ]
    assert not [end for end in ends if end[1] not in FINE]
    assert len([end for end in ends if end[1] != "refused"]) > COMPILED // 8


def test_a_campaign_goes_on_where_its_record_ends(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    known = [{"seed": seed, "verdict": "refused", "detail": "ModelImportError"} for seed in range(3)]
    record.write_text("".join(json.dumps(line) + "\n" for line in known) + '{"seed": 3, "ver')
    found = read_record(record)
    assert list(found.values()) == known
    assert [*_missing(range(6), found)] == [(3, 6)]
    assert [*_missing(range(2, 5), {2: 0, 3: 0})] == [(4, 5)]
    finding = {"seed": 4, "verdict": "wrong", "detail": "1 for 2"}
    assert report({**found, 4: finding}).splitlines()[-2:] == ["findings: 1", "  mutant 4: wrong: 1 for 2"]


def refused(model: Any) -> str:
    with pytest.raises(ModelImportError) as caught:
        load(model)
    return str(caught.value)


def node_model(op: str, inputs: dict[str, Any], outputs: int = 1, opset: int = 17, **attributes: Any) -> Any:
    """One node; arrays are initialisers, shapes are inputs."""
    b = ModelBuilder("one")
    for name, given in inputs.items():
        if isinstance(given, tuple):
            b.input(name, given)
        else:
            b.constant(name, given)
    b.nodes(op, list(inputs), [f"y{i}" for i in range(outputs)], **attributes)
    graph = helper.make_graph(b._nodes, "one", b._inputs, [onnx.ValueInfoProto(name="y0")], b._initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node_model("Conv", {"x": (1, 3, 8, 8)}), "has input size 1 not in range [min=2, max=3]"),
        (node_model("Relu", {"x": (2,), "y": (2,)}), "has input size 2 not in range [min=1, max=1]"),
        (node_model("Conv", {"x": (1, 3, 8, 8), "w": (4, 3)}), "spatial dimensions in the weight tensor"),
        (
            node_model("Conv", {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3)}, strides=[0, 1]),
            "Attribute strides must only contain positive values",
        ),
        (node_model("Softmax", {"x": (2, 3)}, axis=2), "'axis' must be in [-2 , 1]"),
        (node_model("Relu", {"x": (2,)}, axis=1), "Unrecognized attribute: axis for operator Relu"),
        (node_model("Concat", {"x": (2,)}), "Required attribute 'axis' is missing"),
        (node_model("Add", {"x": (2,), "y": ints(1, 2)}), "B has inconsistent type tensor(int64)"),
        (node_model("Split", {"x": (6,)}, outputs=3, opset=18, num_outputs=2), "num_outputs is 2"),
    ],
)
def test_nodes_that_break_the_definition_of_their_operator(model: Any, reason: str) -> None:
    text = refused(model)
    assert text.startswith("node 'y0' (")
    assert reason in text


def test_a_zero_point_of_the_wrong_size_is_refused_at_its_node() -> None:
    inputs = {"a": np.ones((2, 4), np.int8), "b": np.ones((4, 3), np.int8)}
    zeros = {"az": np.zeros((), np.int8), "bz": np.zeros(2, np.int8)}
    assert refused(node_model("MatMulInteger", inputs | zeros)).endswith(
        "node 'y0' (MatMulInteger): MatMulInteger: input 3 has 2 elements, shape (2,), not 1 or 3"
    )


def test_a_refusal_says_what_was_given_and_what_the_operator_takes() -> None:
    first, *rest = refused(node_model("Flatten", {"x": (2, 3)}, axis=-7)).splitlines()
    assert first.startswith("node 'y0' (Flatten): not as ONNX defines it: Invalid value")
    assert "\n".join(rest) == (
        "  given: (x: float32[2, 3]) axis = -7\n"
        "  Flatten-13 takes (input: T); T: uint8, uint16, uint32, uint64, int8, int16, int32, int64, "
        "bfloat16, float16, float, double, string, bool, complex64, complex128\n"
        "  attributes: axis: int"
    )


def test_a_refusal_of_a_node_with_a_damaged_tensor() -> None:
    model = node_model("ConstantOfShape", {"s": ints(2)}, value=numpy_helper.from_array(np.ones(1)), other=1)
    model.graph.node[0].attribute[0].t.data_type = 99
    assert "given: (s: int64[1]) other = 1 value = ...\n" in refused(model)


def test_keepdims_means_one() -> None:
    graph = load(node_model("ReduceSum", {"x": (2, 3)}, opset=11, axes=[1], keepdims=3))
    assert graph.type_of("y0").shape == (2,)


HUGE = 1 << 40


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node_model("ConstantOfShape", {"s": ints(HUGE, HUGE)}), f"its result has {HUGE**2} elements"),
        (node_model("ConstantOfShape", {"s": ints(2, -1)}), "negative"),
        (node_model("Range", {"a": ints(0)[0], "b": ints(HUGE)[0], "c": ints(1)[0]}), f"has {HUGE} elements"),
        (node_model("Range", {"a": ints(0)[0], "b": ints(4)[0], "c": ints(0)[0]}), "delta"),
        (
            node_model("Range", {n: np.float32(v) for n, v in (("a", 0), ("b", np.inf), ("c", 1))}),
            "all are finite",
        ),
    ],
)
def test_evaluated_results_have_a_size_limit(model: Any, reason: str) -> None:
    assert reason in refused(model)


@pytest.mark.parametrize("dims", [(1 << 32, 1 << 32), (-4,), (-2, -2), (1 << 62, 4)])
def test_dimensions_of_initialisers_do_not_wrap_around(dims: tuple[int, ...]) -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "x")
    tensor.dims[:] = dims
    model = node_model("Relu", {"x": np.ones(4, np.float32)})
    model.graph.initializer[0].CopyFrom(tensor)
    assert re.search(r"initialiser 'x' (is damaged|has a negative dimension)", refused(model))


def test_names_that_are_declared_twice() -> None:
    model = node_model("Relu", {"x": (2,)})
    model.graph.input.add().CopyFrom(model.graph.input[0])
    assert refused(model).endswith("input 'x' is declared twice")
    model = node_model("Relu", {"x": np.ones(2, np.float32)})
    model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
    assert refused(model).endswith("initialiser 'x' is defined twice")


def lone(op: str, inputs: list[str], outputs: list[str], opset: int = 23, **attributes: Any) -> Any:
    """A model of one node that need not be as ONNX defines it, with x: float32[3, 2] and s: float32[2]."""
    node = helper.make_node(op, inputs, outputs, name="n", **attributes)
    given = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [3, 2]), ("s", [2]))
    ]
    graph = helper.make_graph([node], "one", given, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def sums() -> Any:
    body = helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Identity", ["c"], ["d"])
    values = {
        name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
        for name in ("a", "b", "c", "d")
    }
    return helper.make_graph(body, "body", [values["a"], values["b"]], [values["c"], values["d"]])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: lone("OptionalGetElement", [], ["y"]), "0 inputs of at least 1"),
        (lambda: lone("SequenceAt", ["x"], ["y"]), "1 inputs of at least 2"),
        (lambda: lone("ConcatFromSequence", ["x"], ["y"]), "attribute 'axis' is missing"),
        (lambda: lone("ConcatFromSequence", ["x"], ["y"], axis="0"), "attribute 'axis' is of another type"),
        (lambda: lone("Scan", ["s", "x"], ["y", "z"], body=sums()), "attribute 'num_scan_inputs' is missing"),
        (
            lambda: lone("Scan", ["s", "x"], ["y", "z"], body=sums(), num_scan_inputs=3),
            "num_scan_inputs is 3, of 2 inputs",
        ),
        (
            lambda: lone(
                "Scan", ["s", "x"], ["y", "z"], body=sums(), num_scan_inputs=1, scan_input_axes=[0, 0]
            ),
            "scan_input_axes has 2 elements, it should have 1",
        ),
        (
            lambda: lone("Scan", ["", "s", "x"], ["y", "z"], 8, body=sums(), num_scan_inputs=-1),
            "num_scan_inputs is -1, of 2 inputs",
        ),
    ],
)
def test_operators_of_graphs_and_sequences_lack_nothing(model: Any, message: str) -> None:
    assert message in refused(model())


def test_a_definition_that_onnx_does_not_give_is_refused() -> None:
    heads = (1, 2, 2, 8)
    inputs = {"q": heads, "k": heads, "v": heads}
    assert "ONNX defines no operator" in refused(
        node_model("Attention", inputs, opset=23, softmax_precision=2**31)
    )


@pytest.mark.parametrize("periodic", [-1, 2, 2**31])
def test_any_number_but_zero_makes_a_window_periodic(periodic: int) -> None:
    given = {"size": np.array(10, np.int32)}
    found, wanted = (
        load(node_model("HannWindow", given, periodic=value)).constants.values() for value in (periodic, 1)
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found


def test_only_one_keeps_a_tensor_whose_axes_are_empty() -> None:
    shapes = []
    for noop in (1, 2, 2**40):
        graph = load(node_model("ReduceSum", {"x": (2, 3)}, noop_with_empty_axes=noop, keepdims=0))
        shapes.append(graph.type_of("y0").shape)
    assert shapes == [(2, 3), (), ()]


def test_the_judge_compares_what_is_there_of_an_output() -> None:
    """The rows of a Compress are as many as its condition says; the model says two."""
    given = [
        helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, (3, 2)),
        helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, (3,)),
    ]
    made = helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, (2, 2))
    node = helper.make_node("Compress", ["input", "condition"], ["output"], axis=0)
    graph = helper.make_graph([node], "compress", given, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    for seed in range(4):
        found = verdict_of(model.SerializeToString(), seed, lambda stage: None)
        assert found[0] in FINE, found
