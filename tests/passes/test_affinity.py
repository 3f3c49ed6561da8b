"""Affinity: what is named, what follows, what crosses, and what is refused; whole messages."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.errors import GraphError, InternalError, PlacementError
from autotune.frontends.onnx.importer import load
from autotune.graph import Affinity, Graph, evaluate
from autotune.graph.devices import check_devices, value_devices, without_devices
from autotune.graph.text import parse_graph, print_graph
from autotune.passes.canonical.common_subexpressions import CommonSubexpressions
from autotune.passes.pipeline import placed_passes, run_passes
from autotune.passes.placement.affinity import PlaceOnDevices, affinities
from autotune.passes.placement.device_rules import DeviceRules
from autotune.passes.segments import divide_by_device
from tests.graph.graphs import small_convnet

DEVICES = ("cpu", "cpu:0", "cpu:1", "opencl:0")

STAGES = """graph stages {
  input x: float32[4, 8]
  const w1: float32[8, 8]
  const w2: float32[8, 8]
  a = MatMul(x, w1) : float32[4, 8] on cpu:0
  r = Relu(a) : float32[4, 8]
  y = MatMul(r, w2) : float32[4, 8] on cpu:1
  z = Reshape(y) {shape=[32]} : float32[32]
  output z
}"""


def placed(text: str | Graph, rules: dict[str, str] | None = None) -> Graph:
    graph = parse_graph(text) if isinstance(text, str) else text
    return PlaceOnDevices(DeviceRules(rules or {}, DEVICES)).apply(graph)


def devices(text: str | Graph, rules: dict[str, str] | None = None) -> dict[str, str]:
    return value_devices(placed(text, rules))


def refused(text: str | Graph, rules: dict[str, str] | None = None) -> str:
    with pytest.raises(PlacementError) as caught:
        placed(text, rules)
    assert caught.value.exit_code == 2
    return str(caught.value)


# --- the known failure: what the second stage makes was exported as if on device 0 -----------------


def test_the_result_of_a_second_stage_stays_on_its_device():
    graph = placed(STAGES)
    assert (
        str(graph)
        == """graph stages {
  input x: float32[4, 8] on cpu:0
  const w1: float32[8, 8]
  const w2: float32[8, 8]
  a = MatMul(x, w1) : float32[4, 8]
  r = Relu(a) : float32[4, 8]
  "r@cpu:1" = Transfer(r) {device="cpu:1"} : float32[4, 8]
  y = MatMul("r@cpu:1", w2) : float32[4, 8]
  z = Reshape(y) {shape=[32]} : float32[32]
  output z
}"""
    )
    assert value_devices(graph)["z"] == "cpu:1"
    division = divide_by_device(run_passes(graph, placed_passes(DeviceRules())))
    assert [segment.device for segment in division.segments] == ["cpu:0", "cpu:1"]
    assert [node.op for node in division.segments[0].graph.nodes] == ["MatMul", "Relu"]
    assert division.devices[division.graph.outputs[0]] == "cpu:1"


def test_an_output_that_is_wanted_elsewhere_is_transferred_and_keeps_its_place():
    text = STAGES.replace("output z", "output z on cpu:0")
    graph = placed(text)
    assert graph.outputs == ("z@cpu:0",)
    assert value_devices(graph)["z@cpu:0"] == "cpu:0"


# --- text ---------------------------------------------------------------------------------------------


def test_devices_round_trip_through_the_text():
    text = """graph g on cpu:0 {
  input x: float32[4] strides=(2) on cpu:1
  input "on": float32[4]
  y = Relu(x) : float32[4] on opencl:0
  a, b = Split(y) {axis=0, split=[2, 2]} : float32[2], float32[2] on cpu as halves
  output a on cpu:1, b, "on"
}"""
    graph = parse_graph(text)
    assert graph.affinity == Affinity("cpu:0", {"x": "cpu:1"}, {"a": "cpu:1"})
    assert [node.device for node in graph.nodes] == ["opencl:0", "cpu"]
    assert print_graph(graph) == text
    assert print_graph(without_devices(graph)).count(" on ") == 0


@pytest.mark.parametrize("text", ["graph g on {\n}", "graph g on cpu: {\n}"])
def test_a_device_without_a_name_is_an_error_of_the_text(text):
    with pytest.raises(GraphError, match=r"line 1, column \d+: expected a name, found '\{'"):
        parse_graph(text)


# --- following ----------------------------------------------------------------------------------------


def test_devices_follow_both_ways_through_views():
    text = """graph g {
  input x: float32[4, 4]
  const w: float32[4, 4]
  v = Reshape(x) {shape=[16]} : float32[16]
  u = Reshape(v) {shape=[2, 8]} : float32[2, 8]
  t = Relu(u) : float32[2, 8] on cpu:1
  s = Reshape(t) {shape=[16]} : float32[16]
  e = Exp(s) : float32[16]
  output e
}"""
    assert set(devices(text).values()) == {"cpu:1"}
    assert set(devices(text.replace(" on cpu:1", ""), {"e": "cpu:0"}).values()) == {"cpu:0"}


def test_the_most_bytes_decide_where_branches_meet():
    text = """graph g {
  input x: float32[4]
  input z: float32[1]
  a = Relu(x) : float32[4] on cpu:0
  b = Exp(z) : float32[1] on cpu:1
  c = Add(b, a) : float32[4]
  output c
}"""
    found = affinities(parse_graph(text), DeviceRules({}, DEVICES))
    assert found is not None
    home = found.homes.nodes["c"]
    assert (home.device, home.reason) == ("cpu:0", "reads a, which is there")
    assert home.possible == (("cpu:1", "reads b, which is there"),)
    assert [(c.value, c.source, c.destination, c.readers) for c in found.crossings] == [
        ("b", "cpu:1", "cpu:0", ("c",))
    ]


def test_a_value_crosses_once_a_device_and_constants_never():
    text = """graph g {
  input x: float32[4]
  const k: float32[4]
  a = Relu(x) : float32[4] on cpu:0
  b = Add(a, k) : float32[4] on cpu:1
  c = Mul(a, k) : float32[4] on cpu:1
  d = Sub(a, k) : float32[4] on opencl:0
  e = Sub(k, a) : float32[4] on cpu:0
  output b, c, d, e
}"""
    graph = placed(text)
    moved = [(n.inputs[0], n.attrs["device"]) for n in graph.nodes if n.op == "Transfer"]
    assert moved == [("a", "cpu:1"), ("a", "opencl:0")]
    parts = divide_by_device(graph).segments
    assert [(s.device, "k" in s.graph.constants) for s in parts] == [
        ("cpu:0", True),
        ("cpu:1", True),
        ("opencl:0", True),
    ]


def test_what_nothing_is_said_of_goes_to_the_default_and_says_so():
    text = """graph g {
  input x: float32[4]
  input z: float32[4]
  a = Relu(x) : float32[4] on cpu:1
  b = Relu(z) : float32[4]
  output a, b
}"""
    found = affinities(parse_graph(text), DeviceRules({}, DEVICES))
    assert found is not None
    assert found.homes.nodes["b"].device == "cpu:1"
    assert found.homes.nodes["b"].reason == "nothing says where: the first device that is named"
    named = affinities(parse_graph(text.replace("graph g", "graph g on cpu:0")), DeviceRules({}, DEVICES))
    assert named is not None
    assert (named.homes.nodes["b"].device, named.homes.nodes["b"].reason) == (
        "cpu:0",
        "default of the model",
    )


def test_a_graph_without_devices_stays_the_very_same():
    graph = small_convnet()
    assert PlaceOnDevices().apply(graph) is graph


# --- rules ----------------------------------------------------------------------------------------------


def test_names_count_before_operators_and_operators_before_patterns():
    rules = {"*": "cpu:0", "c*": "cpu", "Conv": "cpu:1", "conv_1": "opencl:0"}
    found = affinities(small_convnet(), DeviceRules(rules, DEVICES))
    assert found is not None
    homes = {key: (home.device, home.reason) for key, home in found.homes.nodes.items()}
    assert homes["conv"] == ("cpu:1", "named by placement 'Conv'")
    assert homes["conv_1"] == ("opencl:0", "named by placement 'conv_1'")
    assert homes["relu"] == ("cpu:0", "named by placement '*'")
    assert found.homes.inputs["x/0:0"].device == "cpu:1"


def test_two_devices_for_one_node():
    assert refused(STAGES, {"MatMul": "cpu:0"}) == (
        "node 'y' (MatMul) is put on two devices:\n"
        "  cpu:1 by the model\n"
        "  cpu:0 by placement 'MatMul'\n"
        "  take one of them away"
    )
    assert refused(small_convnet(), {"conv*": "cpu:0", "*_1": "cpu:1"}) == (
        "node 'conv_1' (Conv) is put on two devices:\n"
        "  cpu:0 by placement 'conv*'\n"
        "  cpu:1 by placement '*_1'\n"
        "  take one of them away"
    )


def test_a_device_that_is_not_there():
    assert refused(STAGES, {"Relu": "cuda:0"}) == (
        "there is no device 'cuda:0', which placement 'Relu' names\n  devices here: cpu, cpu:0, cpu:1, opencl:0"
    )
    assert refused(STAGES.replace("on cpu:1", "on cpu:7")).startswith(
        "there is no device 'cpu:7', which the model names\n  devices here: cpu, cpu:0, cpu:1, opencl:0"
    )


def test_a_pattern_that_fits_nothing():
    assert refused(small_convnet(), {"Cnov": "cpu:0"}) == (
        "placement 'Cnov' fits no value, node or operator of 'small convnet'; did you mean 'conv'?\n"
        "  its operators: Add, Conv, Flatten, Gemm, GlobalAveragePool, Relu, Softmax"
    )
    assert refused(small_convnet(), {"w1": "cpu:0"}) == (
        "placement 'w1' names a constant of 'small convnet'\n"
        "  constants live where they are read: name what reads it"
    )


def test_a_placed_graph_is_placed_once():
    once = placed(STAGES)
    assert placed(once) is once
    assert refused(once, {"Relu": "cpu:1"}) == (
        "graph 'stages' has transfers already, so that a placement cannot change where it runs"
    )
    with pytest.raises(
        GraphError, match="graph 'stages' has transfers between devices, and is to run on one"
    ):
        without_devices(once)


# --- consistency ------------------------------------------------------------------------------------------


def test_operands_of_several_devices_are_found():
    graph = placed(STAGES)
    add = graph.nodes[3].replace(op="Add", inputs=("r", "r@cpu:1"))
    wrong = graph.replace(nodes=(*graph.nodes[:3], add, *graph.nodes[4:]))
    with pytest.raises(GraphError) as caught:
        check_devices(wrong)
    assert str(caught.value) == (
        "graph 'stages', node 'y' (Add): reads values of several devices: 'r' on cpu:0, 'r@cpu:1' on cpu:1"
    )


def test_a_pass_that_mixes_devices_is_a_bug():
    class Mixing(CommonSubexpressions):
        name = "mixing"

        def apply(self, graph: Graph) -> Graph:
            nodes = [n.replace(inputs=("r", "w2")) if n.outputs == ("y",) else n for n in graph.nodes]
            return graph.replace(affinity=Affinity()).with_nodes(nodes)

    wrong = parse_graph(STAGES.replace("output z", "output z, a on cpu:1"))
    with pytest.raises(
        InternalError, match="pass mixing left a broken graph: graph 'stages': input 'x' is on no"
    ):
        run_passes(placed(wrong), (Mixing(),))


# --- all passes, any placement -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_any_placement_computes_the_same(seed):
    graph, rng = small_convnet(), random.Random(seed)
    named = tuple(
        node.replace(device=rng.choice(["", "cpu:0", "cpu:1", "opencl:0"])) for node in graph.nodes[:-1]
    )
    graph = graph.replace(nodes=(*named, graph.nodes[-1].replace(device="cpu:1")))
    after = run_passes(graph, placed_passes(DeviceRules({}, DEVICES)))
    check_devices(after)
    x = np.random.default_rng(seed).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (expected,) = evaluate.run(small_convnet(), {"x/0:0": x}).values()
    values, division = {"x/0:0": x}, divide_by_device(after)
    for step in division.steps:
        if hasattr(step, "graph"):
            values |= evaluate.run(step.graph, {v: values[v] for v in step.graph.inputs})
        else:
            values[step.result] = values[step.value]
    np.testing.assert_allclose(values[after.outputs[0]], expected, 1e-5, 1e-5)
    assert all(step.graph.inputs or step.graph.constants for step in division.segments)


def test_work_that_others_wait_for_comes_first():
    text = """graph g {
  input x: float32[8, 8]
  const w: float32[8, 8]
  s = Relu(x) : float32[8, 8] on cpu:0
  a = MatMul(s, w) : float32[8, 8] on cpu:0
  b = MatMul(s, w) : float32[8, 8] on cpu:1
  y = Add(a, b) : float32[8, 8] on cpu:0
  output y
}"""
    steps = divide_by_device(placed(text)).steps
    shown = [
        (s.device, [n.op for n in s.graph.nodes]) if hasattr(s, "graph") else (s.device, s.value)
        for s in steps
    ]
    assert shown == [
        ("cpu:0", ["Relu"]),
        ("cpu:1", "s"),
        ("cpu:0", ["MatMul"]),
        ("cpu:1", ["MatMul"]),
        ("cpu:0", "b"),
        ("cpu:0", ["Add"]),
    ]


def test_what_is_computed_of_constants_is_computed_where_it_is_read():
    text = """graph g {
  input x: float32[2, 1]
  const k: float32[1, 4]
  e = Expand(k) {shape=[2, 4]} : float32[2, 4]
  a = Add(x, e) : float32[2, 4] on cpu:0
  b = Mul(a, e) : float32[2, 4] on cpu:1
  output b, e
}"""
    division = divide_by_device(placed(text))
    assert [(s.device, [n.op for n in s.graph.nodes]) for s in division.segments] == [
        ("cpu:0", ["Expand", "Add", "Identity"]),
        ("cpu:1", ["Expand", "Mul"]),
    ]
    assert division.graph.outputs == ("b", "e.copy")


def test_a_zoo_model_by_operators():
    graph = run_passes(
        load("zoo:mlp"), placed_passes(DeviceRules({"Relu": "cpu:1", "Gemm": "cpu:0"}, DEVICES))
    )
    division = divide_by_device(graph)
    assert [segment.device for segment in division.segments] == ["cpu:0", "cpu:1"] * 2 + ["cpu:0"]
