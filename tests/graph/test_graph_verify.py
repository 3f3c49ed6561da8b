"""The verifier refuses each way to break a graph, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from autotune.errors import GraphError
from autotune.graph import Graph, Node, TensorType
from autotune.graph.verify import verify
from tests.graph.graphs import random_graphs, small_convnet


@settings(max_examples=30, deadline=None)
@given(random_graphs())
def test_built_graphs_are_right(graph: Graph) -> None:
    verify(graph)


def broken(**changes: Any) -> Graph:
    return small_convnet().replace(**changes)


def retyped(value: str, shape: tuple[int, ...]) -> Graph:
    graph = small_convnet()
    return graph.replace(types={**graph.types, value: TensorType(shape, "float32")})


def without_type(value: str) -> Graph:
    graph = small_convnet()
    return graph.replace(types={k: t for k, t in graph.types.items() if k != value})


def swapped() -> Graph:
    first, second, *rest = small_convnet().nodes
    return broken(nodes=(second, first, *rest))


def with_node(node: Node) -> Graph:
    return broken(nodes=(*small_convnet().nodes, node))


def with_attrs(value: str, **attrs: int) -> Graph:
    nodes = small_convnet().nodes
    return broken(nodes=[n.replace(attrs={**n.attrs, **attrs}) if value in n.outputs else n for n in nodes])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (broken(outputs=("nothing",)), "output 'nothing' is not defined"),
        (broken(inputs=("x/0:0", "x/0:0")), "value 'x/0:0' is defined twice"),
        (
            swapped(),
            "node 'relu' (Relu): input 'conv' is read before node 'conv' defines it",
        ),
        (
            with_node(Node("Relu", ("gone",), ("z",))),
            "node 'z' (Relu): input 'gone' is not defined",
        ),
        (
            with_node(Node("Relu", ("y",), ("relu",))),
            "node 'relu' (Relu): output 'relu' is defined twice",
        ),
        (
            with_node(Node("Rlu", ("y",), ("z",))),
            "node 'z' (Rlu): unknown operator 'Rlu'; did you mean 'Relu'?",
        ),
        (
            retyped("relu", (1, 2)),
            "node 'relu' (Relu): output 'relu' is declared float32[1, 2], inferred float32[1, 4, 4, 4]",
        ),
        (
            retyped("w2", (1, 2)),
            "constant 'w2' is float32[4, 4, 1, 1], its type says float32[1, 2]",
        ),
        (
            with_attrs("y", axis=-1),
            "node 'y' (Softmax): attribute axis = -1 must be completed to 1",
        ),
        (
            with_node(Node("Softmax", ("gemm",), ("z",))),
            "node 'z' (Softmax): attribute axis = None must be completed to 1",
        ),
        (without_type("relu"), "node 'relu' (Relu): output 'relu' has no type"),
        (without_type("w1"), "value 'w1' has no type"),
        (retyped("stray", (1,)), "type given for unknown value 'stray'"),
    ],
)
def test_broken_graphs(graph: Graph, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        verify(graph)
    text = str(caught.value)
    assert text.startswith("graph 'small convnet'")
    assert text.removeprefix("graph 'small convnet'").lstrip(",: ") == message


def test_strides_are_not_part_of_what_is_inferred() -> None:
    graph = small_convnet()
    placed = TensorType((1, 4, 4, 4), "float32", (128, 16, 4, 1))
    verify(graph.replace(types={**graph.types, "relu": placed}))


def test_constants_of_another_dtype() -> None:
    graph = small_convnet()
    with pytest.raises(GraphError, match=r"constant 'b3' is float64\[5\], its type says float32"):
        verify(graph.replace(constants={**graph.constants, "b3": np.zeros(5)}))
