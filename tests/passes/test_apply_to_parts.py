"""Elementwise operations after a Concat become epilogues of what computes its operands."""

import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.passes.apply_to_parts import ApplyToParts
from autotune.passes.canonical.nest_concats import NestConcats
from autotune.passes.pipeline import run_passes, standard_passes
from tests.passes.random_joins import random_joins
from tests.passes.test_partition import all_ops, check, normal


def products(b, sizes, axis=1):
    x = b.input("x", (4, 8))
    parts = [b.node("MatMul", x, b.constant(f"w{i}", normal(8, n, seed=i))) for i, n in enumerate(sizes)]
    return b.node("Concat", *parts, axis=axis, name="joined")


def applied(graph):
    """The graph after the pass, which computes the same."""
    inputs = {v: normal(*graph.types[v].shape) for v in graph.inputs}
    result = ApplyToParts().apply(graph)
    expected, got = evaluate.run(graph, inputs), evaluate.run(result, inputs)
    for name, want in expected.items():
        np.testing.assert_array_equal(got[name], want)
    return result


def test_a_chain_ends_the_dispatches_of_the_operands():
    b = GraphBuilder()
    x = b.node("Mul", products(b, (8, 16)), b.constant("scale", normal(24)))
    x = b.node("Add", b.constant("shift", normal(1, 24)), x)
    graph = b.graph(b.node("Relu", x, name="y"))
    assert all_ops(check(applied(graph))) == [["MatMul", "Mul", "Add", "Relu"]] * 2


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4, 1), (4, 24)])
def test_constants_are_cut_where_they_are_not_broadcast(shape):
    b = GraphBuilder()
    graph = b.graph(b.node("Sub", products(b, (8, 16)), b.constant("k", normal(*shape)), name="y"))
    assert applied(graph).producers()["y"].op == "Concat"


def test_along_the_first_axis():
    b = GraphBuilder()
    graph = b.graph(b.node("Mul", products(b, (8, 8), axis=0), b.constant("k", normal(8, 1)), name="y"))
    assert all_ops(check(applied(graph))) == [["MatMul", "Mul"]] * 2


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("width", [1, 3])
def test_an_axis_counted_from_the_end(axis, width):
    b = GraphBuilder()
    parts = [b.node("Exp", b.input(name, (4, width))) for name in "ab"]
    joined = b.node("Concat", *parts, axis=axis)
    graph = b.graph(b.node("Mul", joined, b.constant("k", normal(*b.type_of(joined).shape)), name="y"))
    assert applied(graph).producers()["y"].op == "Concat"


@pytest.mark.parametrize("axis", [-1, 3])
def test_a_rotary_embedding_of_a_model(axis):
    """x * cos + concat(-x[..., d/2:], x[..., :d/2]) * sin, as exporters write it."""
    tables = {name: normal(1, 1, 5, 8, seed=i) for i, name in enumerate(("cos", "sin"))}
    numbers = {name: np.array([n]) for name, n in {"zero": 0, "half": 4, "end": 2**62, "last": axis}.items()}
    nodes = [
        helper.make_node("Slice", ["x", "half", "end", "last"], ["high"]),
        helper.make_node("Slice", ["x", "zero", "half", "last"], ["low"]),
        helper.make_node("Neg", ["high"], ["turned"]),
        helper.make_node("Concat", ["turned", "low"], ["rotated"], axis=axis),
        helper.make_node("Mul", ["rotated", "sin"], ["sines"]),
        helper.make_node("Mul", ["x", "cos"], ["cosines"]),
        helper.make_node("Add", ["cosines", "sines"], ["y"]),
    ]
    ends = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, 2, 5, 8)) for n in "xy")
    constants = [numpy_helper.from_array(a, name) for name, a in (tables | numbers).items()]
    graph = helper.make_graph(nodes, "rotary", [next(ends)], [next(ends)], constants)
    imported = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    x = normal(1, 2, 5, 8)
    want = x * tables["cos"] + np.concatenate((-x[..., 4:], x[..., :4]), axis=-1) * tables["sin"]
    final = run_passes(imported, standard_passes())
    np.testing.assert_allclose(evaluate.run(final, {"x": x})["y"], want, rtol=1e-5, atol=1e-6)
    check(final)


def test_an_operation_that_depends_on_the_place_stays():
    b = GraphBuilder()
    graph = b.graph(b.node("Trilu", products(b, (8, 16)), name="y"))
    assert applied(graph) is graph


def test_one_operand_may_be_something_else():
    b = GraphBuilder()
    x = b.input("z", (4, 5))
    joined = b.node("Concat", x, products(b, (8,)), axis=1)
    graph = b.graph(b.node("Relu", joined, name="y"))
    assert applied(graph) is graph  # the inner Concat is a join, the input is no dispatch
    b = GraphBuilder()
    x, w = b.input("x", (4, 8)), b.constant("w", normal(8, 8))
    graph = b.graph(b.node("Relu", b.node("Concat", x, b.node("MatMul", x, w), axis=1), name="y"))
    assert sorted(all_ops(check(applied(graph)))) == [["MatMul", "Relu"], ["Relu"]]


@pytest.mark.parametrize("case", ["read twice", "output", "two variables", "twice in the join", "part read"])
def test_what_is_read_elsewhere_stays(case):
    b = GraphBuilder()
    joined = products(b, (8, 8))
    first, second = b.graph(joined).producers()["joined"].inputs
    outputs = []
    if case == "read twice":
        outputs.append(b.node("Softmax", joined, axis=1))
    if case == "output":
        outputs.append(joined)
    if case == "twice in the join":
        joined = b.node("Concat", first, first, second, axis=1)
    if case == "part read":
        outputs += [b.node("Softmax", v, axis=1) for v in (first, second)]
    other = b.type_of(joined).shape
    operands = [b.input("other", other)] if case == "two variables" else []
    y = b.node("Add" if operands else "Relu", joined, *operands, name="y")
    graph = b.graph(y, *outputs).pruned()
    assert applied(graph) is graph


@pytest.mark.parametrize("block", range(4))
def test_any_graph_of_joins(block):
    for seed in range(2000 + 25 * block, 2000 + 25 * (block + 1)):
        applied(NestConcats().apply(random_joins(random.Random(seed))))
