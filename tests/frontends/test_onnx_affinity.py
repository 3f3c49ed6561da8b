"""Devices that ONNX models name in their metadata."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.parser
import pytest
from onnx import GraphProto, ModelProto, NodeProto

from autotune.errors import ModelImportError, PlacementError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.affinity import KEY
from autotune.frontends.onnx.importer import load
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


def branches(condition: str) -> ModelProto:
    """A choice between two graphs; the second has a node beside the one whose result it gives."""
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
    chooses (float[4] x, bool c) => (float[4] y) {{
        yes = Constant<value = bool {{1}}>()
        y = If ({condition}) <
            then_branch = then_graph () => (float[4] a) {{ a = Relu(x) }},
            else_branch = else_graph () => (float[4] b) {{ t = Tanh(x)  b = Exp(t) }}
        >
    }}"""
    return onnx.parser.parse_model(text)


def choice(model: ModelProto) -> NodeProto:
    return next(node for node in model.graph.node if node.op_type == "If")


def bodies(model: ModelProto) -> dict[str, GraphProto]:
    return {attribute.name: attribute.g for attribute in choice(model).attribute}


def by_op(model: ModelProto) -> dict[str, str]:
    return {node.op: node.device for node in load(model).nodes}


def test_inside_of_branches():
    model = branches("c")
    put(choice(model), "cpu:0")
    put(bodies(model)["then_branch"].node[0], "cpu:1")
    put(bodies(model)["else_branch"].value_info.add(name="t"), "cpu:1")
    assert by_op(model) == {"Relu": "cpu:1", "Tanh": "cpu:1", "Exp": "cpu:0", "Where": "cpu:0"}


def test_inside_of_the_branch_that_is_known():
    model = branches("yes")
    put(bodies(model)["then_branch"], "cpu:1")
    assert "cpu:1" in {node.device for node in load(model).nodes if node.op == "Relu"}


def looped(trips: int, ops: Sequence[str] = ("Tanh", "Sin")) -> ModelProto:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
    loops (float[4] x) => (float[4] y) {{
        n = Constant<value = int64 {{{trips}}}>()
        yes = Constant<value = bool {{1}}>()
        y = Loop (n, yes, x) <body = step (int64 i, bool go, float[4] s) => (bool on, float[4] r) {{
            on = Identity(go)  t = {ops[0]}(s)  r = {ops[1]}(t)
        }}>
    }}"""
    return onnx.parser.parse_model(text)


def body_of(model: ModelProto) -> GraphProto:
    body: GraphProto = model.graph.node[-1].attribute[0].g
    return body


@pytest.mark.parametrize("trips", [3, 100, 1000])
def test_inside_of_a_loop_all_on_one_device(trips: int) -> None:
    model = looped(trips)
    put(body_of(model), "cpu:1")
    nodes = [node for node in load(model).nodes if node.op != "Identity"]
    assert len(nodes) == (1 if trips > 64 else 2 * trips)
    assert {node.device for node in nodes} == {"cpu:1"}


def test_several_devices_inside_of_a_loop_are_honoured_in_each_step() -> None:
    model = looped(100)
    put(body_of(model).node[1], "cpu:1")
    put(body_of(model).output[1], "cpu:0")
    devices = [(node.op, node.device) for node in load(model).nodes if node.op in ("Tanh", "Sin")]
    assert devices == [("Tanh", "cpu:1"), ("Sin", "cpu:0")] * 100


def test_several_devices_inside_of_one_loop_are_refused() -> None:
    model = looped(1000)
    put(body_of(model).node[1], "cpu:1")
    with pytest.raises(ModelImportError) as caught:
        load(model)
    assert str(caught.value) == (
        "node 'y' (Loop): the nodes of its body name several devices (no device, cpu:1), and a loop runs on one of "
        "them\n  name one for all of the body, or let the steps be at most 256"
    )


def test_two_devices_for_a_node_inside() -> None:
    model = branches("c")
    put(bodies(model)["else_branch"].node[0], "cpu:0")
    put(bodies(model)["else_branch"].value_info.add(name="t"), "cpu:1")
    with pytest.raises(PlacementError, match=r"graph 'else_graph': node 't' \(Tanh\) is put on two devices"):
        load(model)


def test_a_device_of_what_a_body_is_given() -> None:
    model = looped(3)
    put(body_of(model).input[2], "cpu:1")
    with pytest.raises(
        ModelImportError, match=r"autotune\.affinity is given for 's', which no node of this graph"
    ):
        load(model)


@pytest.mark.parametrize(
    "key", ["autotune.afinity", "autotun.affinity", "Autotune_Affinity", "autotune.device"]
)
@pytest.mark.parametrize("where", ["model", "value", "node", "branch", "node inside"])
def test_a_misspelt_key_is_named(key: str, where: str) -> None:
    model = branches("yes")
    other = bodies(model)["else_branch"]  # which is not even used
    places = {"model": model, "value": model.graph.input[0], "node": choice(model), "branch": other}
    place = places.get(where, other.node[0])
    place.metadata_props.add(key=key, value="cpu:1")
    with pytest.raises(ModelImportError) as caught:
        load(model)
    assert str(caught.value).startswith("model 'chooses': ")
    assert str(caught.value).endswith(
        f"has the key {key!r}, which is not known; did you mean 'autotune.affinity'?"
    )


@pytest.mark.parametrize("key", ["affinity", "device", "tune", "pkg.torch.onnx.affinity"])
def test_the_keys_of_others_are_theirs(key: str) -> None:
    model = branches("c")
    choice(model).metadata_props.add(key=key, value="cpu:1")
    assert set(by_op(model).values()) == {""}


def test_inside_of_functions() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
    calls (float[4] x) => (float[4] y) { y = own.both(x) }
    <domain: "own", opset_import: ["" : 18]> both (a) => (b) { t = Tanh(a)  b = Exp(t) }"""
    model = onnx.parser.parse_model(text)
    put(model.functions[0].node[0], "cpu:1")
    assert by_op(model) == {"Tanh": "cpu:1", "Exp": ""}
    put(model.functions[0], "cpu:0")
    with pytest.raises(ModelImportError, match=r"function 'both' has autotune\.affinity"):
        load(model)
