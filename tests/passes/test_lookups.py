"""Lookups in the dispatch that reads what they find: which are, and that indices are checked as before."""

import numpy as np
import pytest

from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import AutotuneError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.passes.options import options_of
from autotune.passes.partition import partition
from autotune.runtime.module import Module
from tests.passes.test_partition import all_ops, normal

EXPERTS = (6, 10, 8)


class Lookups(GraphBuilder):
    """Tables and the indices ``i``, which are an input."""

    def __init__(self) -> None:
        super().__init__("lookups")
        self.indices = self.input("i", (3,), "int64")
        self.pairs = self.input("p", (4, 2), "int64")

    def found(self, *shape, op="Gather", axis=0):
        table = self.constant(f"table{len(self.known)}", normal(*shape))
        if op == "GatherND":
            return self.node(op, table, self.pairs)
        return self.node(op, table, self.indices, axis=axis)


def product(b, n=5):
    return b.node("MatMul", b.found(*EXPERTS), b.input("x", (3, 8, n)))


def column(b):
    return product(b, 1)


def rows(b):
    return b.node("Relu", b.node("Add", b.found(6, 20), b.input("x", (3, 20))))


def two_tables(b):
    return b.node("Add", b.found(6, 20), b.found(9, 20))


def sums(b):
    terms = b.node("Mul", b.found(6, 7, 20, op="GatherND"), b.input("x", (4, 20)))
    return b.node("ReduceSum", terms, axes=(1,))


def as_right_operand(b):
    return b.node("MatMul", b.input("x", (3, 5, 10)), b.found(*EXPERTS))


def on_both_sides(b):
    return b.node("MatMul", b.found(6, 5, 10), b.found(*EXPERTS))


def rows_of_a_product(b):
    return b.node("MatMul", b.found(6, 10), b.input("x", (10, 8)))


def columns(b):
    return b.node("Relu", b.found(4, 6, axis=1))


def before_a_softmax(b):
    return b.node("Softmax", b.found(6, 20))


def read_twice(b):
    y = b.found(6, 20)
    return b.node("Add", b.node("Softmax", y), y)


def returned(b):
    return b.found(6, 20)


CASES = {
    product: [["Gather", "MatMul"]],
    column: [["Gather", "MatMul"]],
    rows: [["Gather", "Add", "Relu"]],
    two_tables: [["Gather", "Gather", "Add"]],
    sums: [["GatherND", "Mul", "ReduceSum"]],
    as_right_operand: [["Gather", "MatMul"]],
    on_both_sides: [["Gather", "Gather", "MatMul"]],
    rows_of_a_product: [["Gather"], ["MatMul"]],
    columns: [["Gather"], ["Relu"]],
    before_a_softmax: [["Gather"], ["Softmax"]],
    read_twice: [["Gather"], ["Softmax", "Add"]],
    returned: [["Gather"]],
}


def given(graph, wrong=False):
    found = {v: normal(*t.shape) for v, t in graph.types.items() if v in graph.inputs and v not in "ip"}
    indices = {"i": np.array([4, -1, 6 if wrong else 0]), "p": np.array([[0, 1], [5, -7], [2, 6], [2, 6]])}
    return found | {v: indices[v] for v in graph.inputs if v in indices}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_is_one_dispatch(case):
    b = Lookups()
    graph = b.graph(case(b))
    graph = graph.replace(inputs=tuple(v for v in graph.inputs if graph.consumers()[v]))
    assert all_ops(partition(graph)) == CASES[case]
    inputs = given(graph)
    with Module(compile_in_detail(CompileRequest(graph, threads=1)).image) as module:
        (got,) = module.run(inputs).values()
    np.testing.assert_allclose(got, *evaluate.run(graph, inputs).values(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", [product, column, as_right_operand, rows])
def test_indices_are_checked_as_they_are_alone(case):
    b = Lookups()
    graph = b.graph(case(b))
    graph = graph.replace(inputs=tuple(v for v in graph.inputs if graph.consumers()[v]))
    with (
        Module(compile_in_detail(CompileRequest(graph, threads=1)).image) as module,
        pytest.raises(AutotuneError, match=r"index 6 .*out of range"),
    ):
        module.run(given(graph, wrong=True))


def test_whether_a_product_looks_up_itself_is_an_option():
    b = Lookups()
    (dispatch,) = partition(b.graph(product(b))).dispatches
    found = {option.name: option for option in options_of(dispatch.workload)}
    assert len(found["producers apart"].regions) == 2
    assert len(found["direct"].regions) == 1
