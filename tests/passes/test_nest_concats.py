"""Concatenations that take an earlier one as an operand."""

import numpy as np

from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.passes.canonical.nest_concats import NestConcats
from tests.passes.test_partition import all_ops, check, normal


def operands_of(graph, name):
    return graph.producers()[name].inputs


def features(count, axis=1):
    """Values a0, a1, ..., and their joins j2 of the first two, j3 of the first three, ..."""
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    parts = [
        b.node("MatMul", x, b.constant(f"w{i}", normal(8, 8, seed=i)), name=f"a{i}") for i in range(count)
    ]
    for k in range(2, count + 1):
        b.node("Concat", *parts[:k], axis=axis, name=f"j{k}")
    return b, [f"j{k}" for k in range(2, count + 1)]


def test_the_longest_earlier_run_becomes_an_operand():
    b, joins = features(5)
    graph = NestConcats().apply(b.graph(*joins))
    assert [operands_of(graph, j) for j in joins] == [
        ("a0", "a1"), ("j2", "a2"), ("j3", "a3"), ("j4", "a4")
    ]  # fmt: skip


def test_runs_in_the_middle_and_several_of_them():
    b, _ = features(3)
    b.node("Concat", "a2", "a0", "a1", "a0", "a1", axis=1, name="y")
    assert operands_of(NestConcats().apply(b.graph("j2", "y")), "y") == ("a2", "j2", "j2")


def test_other_axes_orders_and_whole_joins_stay():
    b, _ = features(2)
    b.node("Concat", "a0", "a1", "a0", axis=0, name="other_axis")
    b.node("Concat", "a1", "a0", axis=1, name="other_order")
    graph = b.graph("j2", "other_axis", "other_order")
    assert NestConcats().apply(graph) is graph


def test_dense_layers_share_one_memory():
    b = GraphBuilder()
    parts = [b.node("Tanh", b.input("x", (6, 16)), name="a0")]
    for i in range(1, 5):
        joined = b.node("Concat", *parts, axis=1) if i > 1 else parts[0]
        weights = b.constant(f"w{i}", normal(b.type_of(joined).shape[1], 16, seed=i))
        parts.append(b.node("MatMul", joined, weights, name=f"a{i}"))
    y = b.node("Softmax", b.node("Concat", *parts, axis=1, name="all"), axis=1, name="y")
    graph = b.graph(y)
    inputs = {"x": normal(6, 16)}
    nested = NestConcats().apply(graph)
    np.testing.assert_array_equal(evaluate.run(nested, inputs)["y"], evaluate.run(graph, inputs)["y"])
    flat, shared = check(graph), check(nested)
    assert all_ops(shared) == [["Tanh"], *[["MatMul"]] * 4, ["Softmax"]]
    assert len(flat.dispatches) == len(shared.dispatches) + 2 + 3 + 4
    assert {shared.placements[f"a{i}"].root for i in range(5)} == {"all"}
