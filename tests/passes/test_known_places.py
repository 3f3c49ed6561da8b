"""Gather of constant indices: which become Slices, before and after, and that they compute the same."""

import numpy as np
import pytest

from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.passes.canonical.known_places import lattice
from autotune.passes.canonical.simplify import Simplify
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.runtime.module import Module
from tests.passes.test_partition import all_ops, check, normal

SHAPE = (4, 12, 6)
WINDOWS = np.arange(12).reshape(2, 3, 2).transpose(2, 0, 1)
CASES = {
    "one": (np.array(3), 1, ["Slice", "Reshape"]),
    "the last": (np.array(-1), 1, ["Slice", "Reshape"]),
    "one that stays": (np.array([2]), 0, ["Slice"]),
    "a half": (np.arange(6, 12), 1, ["Slice"]),
    "all": (np.arange(12), 1, []),
    "every third": (np.arange(1, 12, 3), 1, ["Slice"]),
    "backwards": (np.arange(11, -1, -1), 1, ["Slice"]),
    "backwards in twos": (np.arange(5, -1, -2), 2, ["Slice"]),
    "rows of a window": (np.arange(12).reshape(3, 4), 1, ["Reshape"]),
    "even and odd": (np.arange(12).reshape(6, 2).T, 1, ["Reshape", "Transpose"]),
    "three axes": (WINDOWS, 1, ["Reshape", "Transpose"]),
    "two axes in a part": (3 + 2 * np.arange(4).reshape(2, 2).T, 1, ["Slice", "Reshape", "Transpose"]),
    "with an axis of one": (np.arange(4).reshape(4, 1), 0, ["Reshape"]),
}
"""Indices, the axis, and what is left of it."""


def gathered(indices, axis):
    b = GraphBuilder()
    x = b.input("x", SHAPE)
    return b.graph(
        b.node("Relu", b.node("Gather", x, b.constant("i", np.asarray(indices, np.int64)), axis=axis))
    )


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_it(name):
    indices, axis, left = CASES[name]
    graph = gathered(indices, axis)
    result = Simplify().apply(graph)
    assert [node.op for node in result.nodes] == [*left, "Relu"]
    x = normal(*SHAPE)
    want = np.maximum(np.take(x, indices, axis), 0)
    np.testing.assert_array_equal(next(iter(evaluate.run(result, {"x": x}).values())), want)
    with Module(compile_in_detail(CompileRequest(graph, threads=1)).image) as module:
        np.testing.assert_array_equal(module(x)[0], want)


@pytest.mark.parametrize("indices", [[0, 1, 3], [0, 0], [[0, 1], [1, 2]], [[0, 1], [4, 5]], [2, 1, 3]])
def test_other_places_stay(indices):
    graph = gathered(indices, 1)
    assert lattice(np.array(indices)) is None
    assert Simplify().apply(graph) is graph


def test_what_is_out_of_range_stays_for_the_run_to_refuse():
    graph = gathered([11, 12], 1)
    assert Simplify().apply(graph) is graph


def test_a_scan_that_takes_one_step_at_a_time_copies_none():
    b = GraphBuilder()
    x, state = b.input("x", (8, 5, 16)), b.constant("zero", np.zeros((8, 16), np.float32))
    for step in range(5):
        now = b.node("Gather", x, b.constant(f"i{step}", np.array(step)), axis=1)
        state = b.node("Tanh", b.node("Add", state, now))
    found = all_ops(check(run_passes(b.graph(state), standard_passes())))
    assert "Gather" not in {op for group in found for op in group}
    assert len(found) == 1
