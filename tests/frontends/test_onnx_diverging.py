"""Branches of other shapes: what reads them is in each branch, as ONNX's reference computes it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.errors import InputError, ModelImportError, UnknownParameterError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.verify import verify

CONSTANTS = "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}>"
CUT = "p = Slice(x, zero, three, one)"


def model(inputs: str, outputs: str, nodes: str) -> ModelProto:
    """A model of ONNX's text form, with an input x beside those given."""
    text = f"g ({inputs}, float[2, 6] x) => ({outputs}) {CONSTANTS} {{ {nodes} }}"
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def choice(result: str, condition: str, then: str, other: str) -> str:
    """An If whose branches give p and q."""
    first, second = (f"{name} () => (float[2, n] {v})" for name, v in (("t", "p"), ("e", "q")))
    return f"{result} = If ({condition}) <then_branch = {first} {{ {then} }}, else_branch = {second} {{ {other} }}>"


def check(proto: ModelProto) -> Graph:
    """The graph of a model, once it computes what ONNX's reference does for all conditions."""
    graph = frontend.load(proto)
    verify(graph)
    rng = np.random.default_rng(1)
    conditions = [v for v in graph.inputs if graph.types[v].dtype == "bool"]
    floats = {
        v: rng.standard_normal(graph.types[v].shape).astype("f4") for v in graph.inputs if v not in conditions
    }
    reference = ReferenceEvaluator(proto)
    with autotune.compile(graph, threads=1) as module:
        for chosen in product([False, True], repeat=len(conditions)):
            inputs = floats | {v: np.array(each) for v, each in zip(conditions, chosen, strict=True)}
            wanted = reference.run(None, inputs)
            for found in (cut_by_counts(graph, evaluate.run(graph, inputs)), module.run(inputs)):
                for name, want in zip(graph.outputs, wanted, strict=False):
                    assert found[name].shape == want.shape
                    np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=name)
    return graph


def cut_by_counts(graph: Graph, found: dict[str, Array]) -> dict[str, Array]:
    """Results as a module gives them: what is there of each."""
    for number, axis, count in graph.counted:
        name = graph.outputs[number]
        found[name] = found[name].take(np.arange(int(found[graph.outputs[count]][0])), axis)
    return found


REDUCED = f"{choice('z', 'c', CUT, 'q = Softmax(x)')} e = Exp(z) s = ReduceSum(e, one)"


def test_readers_stand_in_both_branches_until_shapes_agree() -> None:
    graph = check(
        model("bool c", "float[2, 1] y", f"{REDUCED} k = Neg(x) l = ReduceSum(k, one) y = Add(s, l)")
    )
    assert [node.op for node in graph.nodes] == ["Neg", "ReduceSum", "If", "Add"]


def test_what_has_one_shape_and_is_read_within_is_there_too() -> None:
    two = "t = ReduceSum(x, one)"
    nodes = f"""
        {choice("z", "c", CUT, "q = Softmax(x)")}
        m = ReduceMax(z, one) n = Neg(m) k = Mul(n, z) {two} s = ReduceSum(k, one) y = Add(s, t) v = Exp(n)
    """
    graph = check(model("bool c", "float[2, 1] y, float[2, 1] v", nodes))
    assert sorted(node.op for node in graph.nodes) == ["Add", "Exp", "If", "ReduceSum"]


@pytest.mark.parametrize(
    "other",
    [
        "xx = Softmax(x) " + choice("q", "d", "p = Slice(xx, zero, two, one)", "q = Neg(xx)"),
        "q = Softmax(x)",
    ],
)
def test_a_branch_may_have_branches(other: str) -> None:
    again = choice("o", "d", "p = Slice(z, zero, two, one)", "q = Concat<axis = 1>(z, x)")
    nodes = f"{choice('z', 'c', CUT, other)} {again} m = Mul(o, o) y = ReduceSum(m, one)"
    graph = check(model("bool c, bool d", "float[2, 1] y", nodes))
    assert [node.op for node in graph.nodes] == ["If"]


def test_branches_that_read_nothing_of_one_another() -> None:
    first, second = (
        choice("z", "c", CUT, "q = Softmax(x)"),
        choice("o", "d", "p = Neg(x)", "q = ReduceMax(x, one)"),
    )
    graph = check(
        model(
            "bool c, bool d",
            "float[2, 1] y",
            f"{first} {second} m = Concat<axis = 1>(z, o) y = ReduceSum(m, one)",
        )
    )
    assert [node.op for node in graph.nodes] == ["If"]


def test_a_branch_known_when_compiling_has_branches() -> None:
    inner = f"i = Neg(x) {choice('p', 'c', 'p = Slice(i, zero, three, one)', 'q = Softmax(i)')}"
    nodes = f"yes = Cast<to = 9>(one) {choice('z', 'yes', inner, 'q = Neg(x)')} y = ReduceSum(z, one)"
    check(model("bool c", "float[2, 1] y", nodes))


def test_an_output_of_two_lengths_says_its_own() -> None:
    graph = check(
        model(
            "bool c", "float[2, n] z, float[2, n] u", f"{choice('z', 'c', CUT, 'q = Softmax(x)')} u = Exp(z)"
        )
    )
    assert graph.counted == ((0, 1, 2), (1, 1, 3))
    assert graph.types["u"].shape == (2, 6)


def test_a_reader_that_does_not_fit_one_branch_refuses_it(caplog: pytest.LogCaptureFixture) -> None:
    nodes = f"{choice('z', 'c', CUT, 'q = Softmax(x)')} a = Add(z, x) y = ReduceSum(a, one)"
    proto = model("bool c", "float[2, 1] y", nodes)
    with autotune.compile(proto, threads=1) as module:
        assert "it is an error if 'c' chooses the branch 'then'" in caplog.text
        x = np.ones((2, 6), np.float32)
        want = ReferenceEvaluator(proto).run(None, {"c": np.array(False), "x": x})[0]
        np.testing.assert_allclose(module.run({"c": np.array(False), "x": x})["y"], want, rtol=1e-5)
        with pytest.raises(InputError, match="does not fit the sizes"):
            module.run({"c": np.array(True), "x": x})


def test_neither_branch_fits_its_reader() -> None:
    other = "q = Slice(x, zero, two, one)"
    with pytest.raises(ModelImportError, match="Add"):
        frontend.load(model("bool c", "float[2, 6] y", f"{choice('z', 'c', CUT, other)} y = Add(z, x)"))


@pytest.mark.parametrize("other", ["q = ReduceSum<keepdims = 0>(x, one)", "q = Transpose(x)"])
def test_outputs_that_differ_in_more_than_a_length_need_a_known_condition(other: str) -> None:
    with pytest.raises(
        UnknownParameterError, match="its condition 'c', which decides the shape of 'z', is not a constant"
    ):
        frontend.load(model("bool c", "float[2, n] z", choice("z", "c", "p = Neg(x)", other)))


@dataclass
class Drawn:
    """A random model of values of two rows, whose lengths branches decide."""

    rng: random.Random
    count: int = 0
    constants: list[Any] = field(default_factory=list)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, number: int) -> str:
        self.constants.append(numpy_helper.from_array(np.array([number], np.int64), self.name()))
        return str(self.constants[-1].name)

    def nodes(self, known: Sequence[str], most: int, depth: int) -> tuple[list[Any], list[str]]:
        """Nodes, and all values that there are behind them."""
        found, values = list[Any](), list(known)
        for _ in range(self.rng.randint(1, most)):
            made = self.rng.choice([self.unary, self.cut, self.joined, self.shifted, self.branch])
            node = made(values, depth)
            found.append(node)
            values += node.output
        return found, values

    def unary(self, values: list[str], depth: int) -> Any:
        return helper.make_node(
            self.rng.choice(["Tanh", "Neg", "Softmax"]), [self.pick(values)], [self.name()]
        )

    def cut(self, values: list[str], depth: int) -> Any:
        bounds = [self.constant(n) for n in (0, self.rng.randint(1, 7), 1)]
        return helper.make_node("Slice", [self.pick(values), *bounds], [self.name()])

    def joined(self, values: list[str], depth: int) -> Any:
        return helper.make_node("Concat", [self.pick(values), self.pick(values)], [self.name()], axis=1)

    def shifted(self, values: list[str], depth: int) -> Any:
        return helper.make_node("ReduceMax", [self.pick(values), self.constant(1)], [self.name()])

    def branch(self, values: list[str], depth: int) -> Any:
        if depth == 2:
            return self.cut(values, depth)
        graphs = [self.graph(values, depth) for _ in range(2)]
        condition = self.rng.choice("cd")
        return helper.make_node(
            "If", [condition], [self.name()], then_branch=graphs[0], else_branch=graphs[1]
        )

    def graph(self, values: list[str], depth: int) -> Any:
        nodes, _ = self.nodes(values, 3, depth + 1)
        return helper.make_graph(
            nodes, self.name(), [], [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
        )

    def pick(self, values: list[str]) -> str:
        return values[-1] if self.rng.random() < 0.5 else self.rng.choice(values)

    def model(self) -> ModelProto:
        """A model whose outputs are as long as its branches say, and a sum of one shape."""
        nodes, values = self.nodes(["x"], 6, 0)
        last = helper.make_node("ReduceMax", [values[-1], self.constant(1)], ["sum"])
        tail = helper.make_node("Add", ["sum", "x"], ["y"])
        outputs = [helper.make_empty_tensor_value_info(v) for v in (values[-1], "y")]
        inputs = [helper.make_tensor_value_info(v, TensorProto.BOOL, []) for v in "cd"]
        inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]))
        graph = helper.make_graph([*nodes, last, tail], "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def drawn(seed: int) -> Graph:
    """Check a random model."""
    return check(Drawn(random.Random(seed)).model())


@pytest.mark.parametrize("seed", range(12))
def test_random_models(seed: int) -> None:
    drawn(seed)


@pytest.mark.slow
def test_many_random_models() -> None:
    for seed in range(100, 400):
        drawn(seed)
