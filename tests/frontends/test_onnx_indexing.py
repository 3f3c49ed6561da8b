"""ONNX operators about places and orders: Einsum against NumPy's, orders and places against what ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.graph.ir import Graph
from autotune.graph.verify import verify

RNG = np.random.default_rng(5)
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


def imported(
    op: str, arrays: list[Any], constants: dict[int, Any] | None = None, opset: int = 18, **attrs: Any
) -> Graph:
    """A model of one node with outputs y0, y1; inputs x0, x1, ..., some of which are constants."""
    constants, count = constants or {}, 2 if op == "TopK" else 1
    names = [f"x{n}" for n in range(len(arrays))]
    node = helper.make_node(op, names, [f"y{n}" for n in range(count)], **attrs)
    inputs = [
        helper.make_tensor_value_info(name, TYPES[str(a.dtype)], a.shape)
        for n, (name, a) in enumerate(zip(names, arrays, strict=True))
        if n not in constants
    ]
    stored = [numpy_helper.from_array(arrays[n], f"x{n}") for n in constants]
    outputs = [helper.make_empty_tensor_value_info(f"y{n}") for n in range(count)]
    graph = helper.make_graph([node], "g", inputs, outputs, stored)
    found = frontend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))
    verify(found)
    return found


def ran(graph: Graph, arrays: list[Any]) -> dict[str, Any]:
    return dict(evaluate.run(graph, {name: arrays[int(name[1:])] for name in graph.inputs}))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bhqk,bhkd->bqhd", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ii->i", [(4, 4)]),
        ("aibi->ab", [(2, 3, 4, 3)]),
        ("iii", [(3, 3, 3)]),
        ("i,j->ij", [(3,), (4,)]),
        ("bi,bi->b", [(3, 4), (3, 4)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (2, 5, 4, 6)]),
        ("...i,...i", [(2, 3), (2, 3)]),
        ("ik,jk,jl->il", [(2, 3), (4, 3), (4, 5)]),
        ("a,b,c,abc->", [(2,), (3,), (4,), (2, 3, 4)]),
        ("bxc,xyc->by", [(2, 3, 4), (3, 5, 4)]),
        ("ab,cd->ad", [(2, 3), (4, 5)]),
        (" nd , nd -> dn ", [(3, 4), (1, 4)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    found = ran(imported("Einsum", arrays, equation=equation), arrays)["y0"]
    wanted = np.einsum(equation.replace(" ", ""), *arrays)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_einsum_of_integers_is_exact() -> None:
    arrays = [RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 5))]
    graph = imported("Einsum", arrays, equation="ij,jk->ki")
    np.testing.assert_array_equal(ran(graph, arrays)["y0"], np.einsum("ij,jk->ki", *arrays))


def test_products_of_attention_are_matrix_products_without_copies() -> None:
    arrays = [np.zeros((2, 3, 4, 5), np.float32), np.zeros((2, 3, 6, 5), np.float32)]
    graph = imported("Einsum", arrays, equation="bhqd,bhkd->bhqk")
    assert [node.op for node in graph.nodes] == ["Transpose", "MatMul", "Identity"]


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(3, 4)], "Number of input tensors does not match the operands in the equation"),
        ("ij->iz", [(3, 4)], "Equation output contains a label missing from the inputs"),
        ("ij,jk->ik", [(3, 4), (5, 6)], "dimension 'j' has 4 and 5 elements"),
    ],
)
def test_einsum_refusals(equation: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ModelImportError) as caught:
        imported("Einsum", [np.zeros(shape, np.float32) for shape in shapes], equation=equation)
    assert message in str(caught.value)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_puts_the_first_of_equal_elements_first(largest: int) -> None:
    x = np.array([[3, 1, 3, 2, 1, np.nan]], np.float32)
    arrays = [x, np.array([4])]
    found = ran(imported("TopK", arrays, {1: None}, largest=largest), arrays)
    assert found["y1"].tolist() == ([[5, 0, 2, 3]] if largest else [[5, 1, 4, 3]])
    assert found["y1"].dtype == np.int64


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_last_of_equal_elements(op: str, axis: int) -> None:
    x = RNG.integers(0, 3, (5, 6))
    found = ran(imported(op, [x], axis=axis, select_last_index=1, keepdims=0), [x])["y0"]
    best = np.max if op == "ArgMax" else np.min
    wanted = [np.flatnonzero(row == best(row))[-1] for row in np.moveaxis(x, axis, -1)]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("opset", "axis"), [(12, 1), (12, 2), (13, 1), (13, -1)])
def test_hardmax(opset: int, axis: int) -> None:
    x = RNG.integers(0, 3, (2, 3, 4)).astype(np.float32)
    found = ran(imported("Hardmax", [x], opset=opset, axis=axis), [x])["y0"]
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1) if opset == 12 else np.moveaxis(x, axis, -1)
    wanted = np.eye(rows.shape[-1], dtype=np.float32)[rows.argmax(-1)]
    wanted = wanted.reshape(x.shape) if opset == 12 else np.moveaxis(wanted, -1, axis)
    np.testing.assert_array_equal(found, wanted)


def test_compress_of_a_known_condition() -> None:
    arrays = [RNG.standard_normal((3, 4)).astype(np.float32), np.array([0, 1, 1])]
    x, condition = arrays
    stored = [numpy_helper.from_array(condition.astype(bool), "c")]
    node = helper.make_node("Compress", ["x", "c"], ["y"], axis=0)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "g", inputs, [output], stored)
    model = frontend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    np.testing.assert_array_equal(evaluate.run(model, {"x": x})["y"], x[1:])


def test_random_numbers_are_the_same_at_every_import_and_differ_between_nodes() -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[64], mean=3.0, scale=0.5),
        helper.make_node("RandomUniform", [], ["b"], shape=[64], low=-2.0, high=-1.0, seed=4.0),
        helper.make_node("RandomUniformLike", ["x"], ["c"], dtype=TensorProto.DOUBLE),
        helper.make_node("Multinomial", ["x"], ["d"], sample_size=50),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    outputs = [helper.make_empty_tensor_value_info(name) for name in "abcd"]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], outputs), opset_imports=[helper.make_opsetid("", 15)]
    )
    logits = np.log(np.array([[0.5, 0.5, 1e-30], [1e-30, 1e-30, 1.0]], np.float32))
    first, second = (ran_by_name(frontend.load(proto), x=logits) for _ in range(2))
    for name in "abcd":
        np.testing.assert_array_equal(first[name], second[name])
    assert abs(first["a"].mean() - 3) < 0.3
    assert ((first["b"] >= -2) & (first["b"] < -1)).all()
    assert first["c"].dtype == np.float64
    assert first["c"].shape == (2, 3)
    assert set(first["d"][0].tolist()) == {0, 1}
    assert set(first["d"][1].tolist()) == {2}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_tf_idf_counts_ngrams_with_gaps(mode: str) -> None:
    x = np.array([[1, 2, 1, 2, 3], [3, 3, 3, 3, 3]])
    graph = imported(
        "TfIdfVectorizer",
        [x],
        mode=mode,
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=1,
        ngram_counts=[0, 2],
        ngram_indexes=[2, 0, 1, 3],
        pool_int64s=[3, 2, 1, 2, 1, 1],  # 3; 2; 1 2; 1 1
        weights=[1.0, 2.0, 3.0, 4.0],
    )
    # Next to each other 1 2 comes twice; with a gap 1 1 and nothing of 1 2.
    counts = np.array([[2, 2, 1, 1], [0, 0, 5, 0]], np.float32)
    wanted = {"TF": counts, "IDF": np.minimum(counts, 1) * [1, 2, 3, 4], "TFIDF": counts * [1, 2, 3, 4]}
    np.testing.assert_array_equal(ran(graph, [x])["y0"], wanted[mode])


def ran_by_name(graph: Graph, **arrays: Any) -> dict[str, Any]:
    return {**graph.constants, **evaluate.run(graph, arrays)}
