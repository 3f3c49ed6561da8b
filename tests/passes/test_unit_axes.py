"""Reshapes that only put in and take out axes of one element: what goes, and what stays."""

import pytest

from autotune.graph.build import GraphBuilder
from autotune.passes.canonical.simplify import Simplify
from autotune.passes.pipeline import run_passes, standard_passes
from tests.passes.test_graph_passes import apply, normal, ops_of
from tests.passes.test_partition import all_ops, check


def windows(mask, inner=(1, 6, 2, 5, 5), op="Add", swapped=False, last=(6, 2, 5, 5)):
    """Scores of windows, split from the batch for a mask and joined again."""
    b = GraphBuilder()
    scores = b.node("MatMul", b.input("q", (6, 2, 5, 4)), b.input("k", (6, 2, 4, 5)))
    biased = b.node("Add", scores, b.constant("bias", normal(1, 2, 5, 5)))
    apart = b.node("Reshape", biased, shape=inner)
    operands = (apart, b.constant("mask", normal(*mask)))
    masked = b.node(op, *(reversed(operands) if swapped else operands))
    return b, b.node("Reshape", masked, shape=last)


@pytest.mark.parametrize("mask", [(1, 6, 1, 5, 5), (6, 1, 5, 5), (5,), (), (6, 2, 1, 1), (1, 1, 2, 5, 5)])
@pytest.mark.parametrize(("op", "swapped"), [("Add", False), ("Sub", True)])
def test_the_reshapes_go(mask, op, swapped):
    b, y = windows(mask, op=op, swapped=swapped)
    result = apply(b.graph(y), Simplify())
    assert [name for name in ops_of(result) if name != "Reshape"] == ["MatMul", "Add", op]
    assert all(node.inputs[0] in result.constants for node in result.nodes if node.op == "Reshape")


def test_what_was_between_ends_the_product_before_it():
    b, y = windows((1, 6, 1, 5, 5))
    found = all_ops(check(run_passes(b.graph(b.node("Softmax", y)), standard_passes())))
    assert found == [["MatMul", "Add", "Add"], ["Softmax"]]


def several_batches():
    b, y = windows((1, 3, 1, 5, 5), inner=(2, 3, 2, 5, 5))
    return b.graph(y)


def another_shape():
    b, y = windows((1, 6, 1, 5, 5), last=(12, 5, 5))
    return b.graph(y)


def read_twice():
    b, y = windows((1, 6, 1, 5, 5))
    return b.graph(b.node("Add", y, b.node("Reshape", b.node("Relu", "add_1"), shape=(6, 2, 5, 5))))


@pytest.mark.parametrize("case", [several_batches, another_shape, read_twice])
def test_what_stays(case):
    graph = case()
    result = apply(graph, Simplify())
    assert ops_of(result).count("Reshape") >= 2
