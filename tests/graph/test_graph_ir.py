"""Types, nodes and graphs."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import GraphError
from autotune.graph import Graph, Node, TensorType
from autotune.graph.build import GraphBuilder, complete_node
from autotune.graph.ir import fresh_name, topological
from tests.graph.graphs import small_convnet

F = TensorType((2, 3), "float32")


def test_tensor_type() -> None:
    t = TensorType([np.int64(2), 3], "float32", [4, 1])  # type: ignore[arg-type]
    assert t == TensorType((2, 3), "float32", (4, 1))
    assert (t.rank, t.size, t.nbytes) == (2, 6, 24)
    assert t.dense == F
    assert str(t) == "float32[2, 3] strides=(4, 1)"
    assert TensorType.of(np.zeros((), np.int64)) == TensorType((), "int64")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (((2, -1), "float32"), "negative dimension in shape (2, -1)"),
        (((2,), "float31"), "unknown dtype 'float31'; known: bool, uint8"),
        (((2,), "float32", (1, 1)), "strides (1, 1) do not fit shape (2,): one stride a dimension"),
    ],
)
def test_wrong_types(args: tuple[object, ...], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        TensorType(*args)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_nodes_are_values() -> None:
    a = Node("Conv", ["x", "w"], ["y"], {"pads": [1, np.int64(2)], "group": 1})  # type: ignore[arg-type]
    b = Node("Conv", ("x", "w"), ("y",), {"group": 1, "pads": (1, 2)})
    assert a == b
    assert hash(a) == hash(b)
    assert a.name == "y"
    assert list(a.attrs) == ["group", "pads"]
    with pytest.raises(TypeError):
        a.attrs["group"] = 2  # type: ignore[index]
    assert a.replace(attrs={**a.attrs, "group": 2}).attrs["group"] == 2
    assert a.attrs["group"] == 1


def test_node_renaming() -> None:
    node = Node("Clip", ("x", "", "hi"), ("y", ""))
    assert node.present_inputs == ("x", "hi")
    assert node.present_outputs == ("y",)
    assert node.renamed({"x": "a", "y": "b"}).inputs == ("a", "", "hi")
    assert node.renamed({"x": "a", "y": "b"}).outputs == ("b", "")


@pytest.mark.parametrize("value", [None, [1.5], {"a": 1}, ["x"], [True]])
def test_wrong_attributes(value: object) -> None:
    with pytest.raises(GraphError, match=r"node 'y': attribute 'k' = .* is not a bool, int, float"):
        Node("Relu", ("x",), ("y",), {"k": value})  # type: ignore[dict-item]


def test_producers_and_consumers() -> None:
    graph = small_convnet()
    assert graph.producers()["relu"].op == "Relu"
    assert [n.op for n in graph.consumers()["relu"]] == ["Conv", "Add"]
    assert graph.consumers()["y"] == ()
    assert "x/0:0" not in graph.producers()
    twice = GraphBuilder()
    x = twice.input("x", (2,))
    graph = twice.graph(twice.node("Add", x, x))
    assert len(graph.consumers()["x"]) == 1


def test_sorting_is_stable_and_finds_cycles() -> None:
    a, b, c = (Node("Relu", (x,), (y,)) for x, y in (("x", "a"), ("a", "b"), ("x", "c")))
    assert topological([c, b, a], ["x"]) == (c, a, b)
    assert topological([a, b, c], ["x"]) == (a, b, c)
    loop = [Node("Add", ("x", "q"), ("p",)), Node("Relu", ("p",), ("q",))]
    with pytest.raises(GraphError, match=r"graph 'g' has a cycle through node 'p' \(Add\)"):
        topological(loop, ["x"], "g")
    with pytest.raises(GraphError) as caught:
        topological([b], ["x"], "g")
    assert str(caught.value) == (
        "graph 'g', node 'b' (Relu): input 'a' is not a graph input, a constant or an output of a node"
    )


def test_with_nodes_sorts_and_prunes() -> None:
    graph = small_convnet()
    changed = graph.with_nodes(
        [Node("Mul", ("relu", "half"), ("y",)), *reversed(graph.nodes[:2])],
        types={"y": graph.type_of("relu")},
        constants={"half": np.float32(0.5)},
    )
    assert [n.op for n in changed.nodes] == ["Conv", "Relu", "Mul"]
    assert sorted(changed.constants) == ["half", "w1"]
    assert changed.type_of("half") == TensorType((), "float32")
    assert set(changed.types) == {"x/0:0", "w1", "half", "conv", "relu", "y"}
    assert len(graph.nodes) == 8


def test_inputs_stay_when_nothing_reads_them() -> None:
    graph = Graph("g", ("x", "y"), ("a",), (Node("Relu", ("x",), ("a",)),), dict.fromkeys("xya", F))
    assert graph.pruned().inputs == ("x", "y")


def test_renamed() -> None:
    graph = small_convnet().renamed({"x/0:0": "image", "w1": "first", "y": "scores"})
    assert graph.inputs == ("image",)
    assert graph.outputs == ("scores",)
    assert graph.nodes[0].inputs == ("image", "first")
    assert "first" in graph.constants
    assert "scores" in graph.types


def test_type_of_unknown_value() -> None:
    with pytest.raises(GraphError, match="graph 'small convnet' has no value 'nothing'"):
        small_convnet().type_of("nothing")


def test_values_lists_everything_once() -> None:
    graph = small_convnet()
    assert sorted(graph.values()) == sorted(graph.types)


def test_fresh_name() -> None:
    assert fresh_name("a", []) == "a"
    assert fresh_name("a", ["a", "a_1"]) == "a_2"


def test_builder_refuses() -> None:
    b = GraphBuilder("g")
    x = b.input("x", (2, 3))
    with pytest.raises(GraphError, match="graph 'g': value 'x' is defined twice"):
        b.constant("x", np.zeros(2))
    with pytest.raises(GraphError) as caught:
        b.node("MatMul", x, x, name="m")
    assert str(caught.value) == ("node 'm' (MatMul): MatMul of (2, 3) and (2, 3): inner dimensions differ")
    with pytest.raises(GraphError, match="graph 'g': output 'z' is not defined"):
        b.graph("z")


def test_inference_of_nodes() -> None:
    split = Node("Split", ("x",), ("a", ""), {"axis": 1, "split": (1, 2)})
    assert complete_node(split, {"x": F})[1] == {"a": TensorType((2, 1), "float32")}
    with pytest.raises(GraphError, match=r"node 'a' \(Split\): has 1 outputs, the operator gives 2"):
        complete_node(split.replace(outputs=("a",)), {"x": F})
    with pytest.raises(GraphError, match=r"node 'b' \(Relu\): input 'a' is not defined"):
        complete_node(Node("Relu", ("a",), ("b",)), {"x": F})
