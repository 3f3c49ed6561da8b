"""Devices that ONNX models name in their metadata."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from onnx import ModelProto

from autotune.errors import ModelImportError, PlacementError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx import load
from autotune.frontends.onnx_affinity import KEY
from autotune.graph import Affinity


def two_stages() -> ModelProto:
    b = ModelBuilder("two")
    x = b.input("x", (4, 8))
    a = b.node("MatMul", [x, b.normal("w1", (8, 8), 1.0)], "a")
    r = b.node("Relu", [a], "r")
    model: ModelProto = b.finish([b.node("MatMul", [r, b.normal("w2", (8, 8), 1.0)], "y")])
    return model


def put(where: object, *devices: str) -> None:
    for device in devices:
        where.metadata_props.add(key=KEY, value=device)  # type: ignore[attr-defined]


def named(model: ModelProto) -> Sequence[str]:
    return [node.device for node in load(model).nodes]


def test_of_nodes_values_and_the_graph():
    model = two_stages()
    assert not load(model).affinity
    put(model.graph.node[0], "cpu:0")
    put(model.graph.value_info.add(name="r"), "cpu:1")
    put(model.graph.input[0], "cpu:1")
    put(model.graph.output[0], "cpu:0")
    put(model.graph, "cpu")
    model.graph.node[1].metadata_props.add(key="another", value="key")
    graph = load(model.SerializeToString())
    assert [node.device for node in graph.nodes] == ["cpu:0", "cpu:1", ""]
    assert graph.affinity == Affinity("cpu", {"x": "cpu:1"}, {"y": "cpu:0"})


def test_of_the_model_where_the_graph_has_none():
    model = two_stages()
    put(model, "cpu:1")
    assert load(model).affinity == Affinity("cpu:1")


def test_of_what_became_several_nodes_or_a_constant():
    model = two_stages()
    model.graph.node[1].op_type = "HardSwish"  # a function of several operators in ONNX
    put(model.graph.node[1], "cpu:1")
    put(model.graph.value_info.add(name="w1"), "cpu:1")
    graph = load(model)
    assert {n.device for n in graph.nodes if n.origins == ("r",)} == {"cpu:1"}
    assert {n.device for n in graph.nodes if n.origins != ("r",)} == {""}


def test_two_devices_for_one_node():
    model = two_stages()
    put(model.graph.node[1], "cpu:0")
    put(model.graph.value_info.add(name="r"), "cpu:1")
    with pytest.raises(PlacementError) as caught:
        load(model)
    assert str(caught.value) == (
        "model 'two': node 'r' (Relu) is put on two devices:\n"
        "  cpu:0 by the autotune.affinity of the node\n"
        "  cpu:1 by the autotune.affinity of its result 'r'\n"
        "  take one of them away"
    )


@pytest.mark.parametrize(
    ("devices", "shown"), [(["cpu:0", "cpu:1"], "'cpu:0' and 'cpu:1'"), ([" "], "''")], ids=["two", "empty"]
)
def test_a_property_that_names_no_device(devices, shown):
    model = two_stages()
    put(model.graph.node[2], *devices)
    with pytest.raises(ModelImportError) as caught:
        load(model)
    assert str(caught.value) == (
        f"model 'two': node 'y' has autotune.affinity = {shown}\n  it is the name of one device, such as cpu:0"
    )


def test_a_value_that_is_not_there():
    model = two_stages()
    put(model.graph.value_info.add(name="gone"), "cpu:0")
    with pytest.raises(ModelImportError) as caught:
        load(model)
    assert (
        str(caught.value)
        == "model 'two': autotune.affinity is given for 'gone', which is no value of the graph"
    )
