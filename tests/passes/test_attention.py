"""Attention: which chains become one operator, and that they compute the same numbers."""

import numpy as np
import pytest

from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Region, Workload
from autotune.graph.verify import verify
from autotune.passes.alternatives import alternatives_of
from autotune.passes.attention import Attention
from autotune.passes.attention_blocks import AttentionBlocks
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.passes.separate_attention import SeparateAttention

ALWAYS = Attention()
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def chain(between=lambda b, scores: scores, *, lead=(2, 3), m=5, n=7, d=4, e=6, perm=None, axis=-1):
    """A graph of an attention with ``between`` applied to the scores."""
    b = GraphBuilder()
    rank = len(lead) + 2
    q, v = b.input("q", (*lead, m, d)), b.input("v", (*lead, n, e))
    if perm is None:
        perm = (*range(rank - 2), rank - 1, rank - 2)
        keys = b.node("Transpose", b.input("k", (*lead, n, d)), perm=perm)
    else:
        shape = [0] * rank
        for axis_of_result, source in enumerate(perm):
            shape[source] = (*lead, d, n)[axis_of_result]
        keys = b.node("Transpose", b.input("k", tuple(shape)), perm=perm)
    weights = b.node("Softmax", between(b, b.node("MatMul", q, keys)), axis=axis)
    return b.graph(b.node("MatMul", weights, v, name="y"))


def scaled(b, scores):
    return b.node("Mul", scores, b.constant("scale", np.float32(0.5)))


def divided(b, scores):
    return b.node("Div", scaled(b, scores), b.constant("divisor", np.full((1, 1, 1, 1), 4, np.float32)))


def added(b, scores):
    return b.node("Add", b.constant("mask", normal(5, 7)), scaled(b, scores))


def kept(b, scores):
    flags = b.constant("flags", np.tri(5, 7, dtype=bool))
    return b.node("Where", flags, scores, b.constant("fill", np.float32(-10000)))


def dropped(b, scores):
    flags = b.input("flags", (2, 1, 1, 7), "bool")
    return b.node("Where", flags, b.constant("fill", np.float32(-np.inf)), scores)


def squared(b, scores):
    return b.node("Mul", scores, scores)


def scaled_by_rows(b, scores):
    return b.node("Mul", scores, b.constant("rows", normal(5, 1)))


def tanh(b, scores):
    return b.node("Tanh", scores)


def run(graph):
    rng = np.random.default_rng(1)
    inputs = {
        v: (rng.standard_normal(graph.types[v].shape) > 0.5).astype(graph.types[v].dtype)
        if graph.types[v].dtype == "bool"
        else rng.standard_normal(graph.types[v].shape).astype(np.float32)
        for v in graph.inputs
    }
    return evaluate.run(graph, inputs)


def converted(graph, passes=(ALWAYS,)):
    result = graph
    for one in passes:
        result = one.apply(result)
    verify(result)
    for name, want in run(graph).items():
        np.testing.assert_allclose(run(result)[name], want, rtol=1e-4, atol=1e-5)
    return result


@pytest.mark.parametrize("between", [lambda b, s: s, scaled, divided, added, kept, dropped])
def test_one_operator(between):
    graph = converted(chain(between))
    ops = [node.op for node in graph.nodes]
    assert ops.count("Attention") == 1
    assert not {"MatMul", "Softmax", "Mul", "Div", "Add", "Where"} & set(ops)
    assert [n for n in run_passes(graph, standard_passes()).nodes if n.op == "Transpose"] == []


def test_the_scale_and_the_mask():
    (node,) = [n for n in converted(chain(divided)).nodes if n.op == "Attention"]
    assert node.attrs["scale"] == 0.125
    (node,) = [n for n in converted(chain(added)).nodes if n.op == "Attention"]
    assert node.inputs[3] == "mask"
    (node,) = [n for n in converted(chain(kept)).nodes if n.op == "Attention"]
    assert (node.inputs[3], node.attrs["fill"]) == ("flags", -10000)


def test_keys_split_into_heads_are_read_where_they_lie():
    graph = converted(chain(perm=(0, 2, 3, 1), lead=(1, 3)))
    assert [n.attrs["perm"] for n in graph.nodes if n.op == "Transpose" and n.outputs != ("transpose",)] == [
        (0, 2, 1, 3)
    ]


def test_scaled_operands():
    b = GraphBuilder()
    q, k, v = b.input("q", (5, 4)), b.input("k", (7, 4)), b.input("v", (7, 6))
    c = b.constant("c", np.full(1, 0.5, np.float32))
    keys = b.node("Div", b.node("Transpose", k, perm=(1, 0)), c)
    weights = b.node("Softmax", b.node("MatMul", b.node("Mul", c, q), keys), axis=-1)
    graph = converted(b.graph(b.node("MatMul", weights, v)))
    (node,) = [n for n in graph.nodes if n.op == "Attention"]
    assert node.inputs == ("q", "k", "v")
    assert node.attrs["scale"] == 1.0


@pytest.mark.parametrize("between", [squared, scaled_by_rows, tanh])
def test_other_operators_between_stay(between):
    graph = chain(between)
    assert ALWAYS.apply(graph) is graph


def test_values_with_another_reader_stay():
    b = GraphBuilder()
    q, k, v = b.input("q", (5, 4)), b.input("k", (4, 7)), b.input("v", (7, 6))
    weights = b.node("Softmax", b.node("MatMul", q, k), axis=-1)
    y = b.node("MatMul", weights, v)
    for outputs in ((y, weights), (y, b.node("Relu", weights))):
        graph = b.graph(*outputs)
        assert ALWAYS.apply(graph) is graph


def test_shared_heads_and_other_axes_stay():
    b = GraphBuilder()
    q, k, v = b.input("q", (3, 5, 4)), b.input("k", (4, 7)), b.input("v", (7, 6))
    y = b.node("MatMul", b.node("Softmax", b.node("MatMul", q, k), axis=-1), v)
    graph = b.graph(y)
    assert ALWAYS.apply(graph) is graph
    graph = chain(axis=-2)
    assert ALWAYS.apply(graph) is graph


@pytest.mark.parametrize("between", [lambda b, s: s, divided, added, kept])
def test_separate_operators_and_blocks_compute_the_same(between):
    graph = converted(chain(between), (ALWAYS, SeparateAttention()))
    assert "Attention" not in [node.op for node in graph.nodes]
    graph = converted(chain(between), (ALWAYS, AttentionBlocks(3)))
    (node,) = [n for n in graph.nodes if n.op == "Attention"]
    assert node.attrs["block"] == 3
    assert AttentionBlocks(3).apply(graph) is graph
    few = ALWAYS.apply(chain(between))
    assert AttentionBlocks(7).apply(few) is few


def test_causal_attention_by_separate_operators():
    b = GraphBuilder()
    shape = (2, 6, 4)
    y = b.node("Attention", b.input("q", shape), b.input("k", shape), b.input("v", shape), causal=1)
    graph = converted(b.graph(y), (SeparateAttention(),))
    assert "Where" in [node.op for node in graph.nodes]


def test_the_alternatives_of_an_attention():
    def names(keys):
        b = GraphBuilder()
        shape = (2, keys, 4)
        graph = b.graph(b.node("Attention", b.input("q", shape), b.input("k", shape), b.input("v", shape)))
        return [a.name for a in alternatives_of(Workload.from_region(Region(graph)))]

    assert names(16) == ["direct", "separate attention"]
    assert names(1024) == ["direct", "attention in blocks of 512", "separate attention"]
