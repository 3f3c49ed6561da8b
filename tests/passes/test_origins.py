"""Dispatches name the nodes of the model that they come from, through all passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, divide
from autotune.compiler.request import CompileRequest
from autotune.frontends import zoo, zoo_built
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.importer import load
from autotune.graph.build import GraphBuilder
from autotune.passes.origins import with_own_names
from autotune.passes.partition import Partition
from autotune.passes.rewriter import Rewriter

MODELS = {
    "tiny_cnn": zoo_built.tiny_cnn,
    "encoder": lambda: zoo_built.encoder(layers=2, width=16, heads=2, sequence=6, hidden=32),
    "mobilenetv2": lambda: zoo_built.mobilenetv2(size=32),
    "mlp": lambda: zoo_built.mlp(batch=2, sizes=(8, 16, 4)),
}


def check(model: Any) -> Partition:
    """Every node that was not evaluated at import is named by a dispatch, every dispatch names some."""
    imported = load(model)
    parts = divide(model)
    wanted = {origin for node in imported.nodes for origin in node.origins}
    assert {origin for dispatch in parts.dispatches for origin in dispatch.origins} == wanted
    assert all(dispatch.origins for dispatch in parts.dispatches)
    return parts


@pytest.mark.parametrize("name", MODELS)
def test_models_keep_the_names_of_their_nodes(name: str) -> None:
    model = MODELS[name]()
    check(model)
    given = {node.name for node in model.graph.node}
    assert {o for node in load(model).nodes for o in node.origins} <= given


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in zoo.names() if name not in MODELS])
def test_zoo_models_keep_the_names_of_their_nodes(name: str) -> None:
    check(zoo.load(name))


def origins(model: Any) -> list[tuple[str, ...]]:
    return [dispatch.origins for dispatch in check(model).dispatches]


def test_fused_folded_and_viewed_nodes_are_named_where_their_work_is_done() -> None:
    b = ModelBuilder("net", seed=1)
    x = b.node("Identity", [b.input("x", (1, 4, 8, 8))], "copy")
    x = b.node("Conv", [x, b.normal("w", (8, 4, 3, 3), 0.1)], "conv")
    scale = [b.constant(f"n{i}", np.ones(8, np.float32)) for i in range(4)]
    x = b.node("Relu", [b.node("BatchNormalization", [x, *scale], "norm")], "relu")
    x = b.node("Flatten", [b.node("GlobalAveragePool", [x], "mean")], "flat")
    assert origins(b.finish([x])) == [("copy", "conv", "norm", "relu"), ("mean", "flat")]


def test_equal_nodes_are_both_named() -> None:
    b = ModelBuilder("equals")
    x = b.input("x", (4, 64))
    total = b.node("Add", [b.node("Exp", [x], "one"), b.node("Exp", [x], "other")], "sum")
    ((*names,),) = origins(b.finish([total]))
    assert sorted(names) == ["one", "other", "sum"]


def test_nodes_of_an_expanded_function_are_named_after_the_node_of_the_file() -> None:
    b = ModelBuilder("expanded")
    x = b.input("x", (4, 64))
    x = b.node("Mish", [b.node("Exp", [x], "before")], "activation")
    assert {o for found in origins(b.finish([x], opset=18)) for o in found} == {"before", "activation"}


def test_unnamed_nodes_are_named_by_their_output() -> None:
    b = ModelBuilder("unnamed")
    y = b.node("Exp", [b.input("x", (4, 64))], "y")
    model = b.finish([b.node("Softmax", [y], "z")])
    model.graph.node[0].name = ""
    assert origins(model) == [("y",), ("z",)]
    model.graph.node[0].name = model.graph.node[1].name = "same"
    assert origins(model) == [("y",), ("z",)]


def test_nodes_of_graphs_are_their_own_origins() -> None:
    b = GraphBuilder("small")
    graph = b.graph(b.node("Softmax", b.input("x", (2, 8)), name="y"))
    assert [node.origins for node in with_own_names(graph).nodes] == [("y",)]
    assert [dispatch.origins for dispatch in divide(graph).dispatches] == [("y",)]


def test_a_rewriter_gives_new_nodes_the_origins_of_the_one_at_hand() -> None:
    b = GraphBuilder("small")
    x = b.input("x", (2, 8))
    graph = with_own_names(b.graph(b.node("Relu", b.node("Pad", x, name="p", pads=(0,) * 4), name="y")))
    rewriter = Rewriter(graph)
    for node in rewriter.walk():
        if node.op == "Pad":
            rewriter.replace("p", "x")
        else:
            rewriter.become("y", "Abs", [rewriter.emit("Neg", ["x"], name="n")])
    assert [node.origins for node in rewriter.finish().nodes] == [("p", "y"), ("p", "y")]


def test_steps_of_an_algorithm_are_named_like_their_dispatch() -> None:
    b = ModelBuilder("winograd", seed=1)
    x = b.node(
        "Conv", [b.input("x", (1, 32, 28, 28)), b.normal("w", (32, 32, 3, 3), 0.1)], "conv", pads=[1] * 4
    )
    done = compile_in_detail(
        CompileRequest(b.finish([x]), target="x86-64-v3", threads=1, algorithm="winograd F(4x4)")
    )
    assert len(done.image.dispatches) > 1
    assert all(dispatch.nodes for dispatch in done.image.dispatches)
    assert [row.nodes for row in done.coverage.dispatches] == [d.nodes for d in done.image.dispatches]
