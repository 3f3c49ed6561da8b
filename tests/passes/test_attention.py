"""Attention: which chains become one operator, and that they compute the same numbers."""

import numpy as np
import pytest

from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Region, Workload
from autotune.graph.verify import verify
from autotune.passes.algorithms.attention_blocks import AttentionBlocks
from autotune.passes.algorithms.causal_rows import CausalRows
from autotune.passes.algorithms.separate_attention import SeparateAttention
from autotune.passes.canonical.attention import Attention
from autotune.passes.options import options_of
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.runtime.module import Module

pytestmark = pytest.mark.registers

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


def later_keys(value, dtype=np.float32):
    return np.where(np.tri(5, 7, k=2, dtype=bool), 0, value).astype(dtype)


@pytest.mark.parametrize(
    "between",
    [
        lambda b, s: b.node("Add", s, b.constant("mask", later_keys(-np.inf))),
        lambda b, s: b.node("Add", s, b.constant("mask", later_keys(np.finfo(np.float32).min)[None])),
        lambda b, s: b.node(
            "Where", b.constant("kept", later_keys(1) == 0), s, b.constant("fill", np.float32(-np.inf))
        ),
    ],
)
def test_a_constant_mask_that_is_causal_becomes_a_rule(between):
    (node,) = [n for n in converted(chain(between)).nodes if n.op == "Attention"]
    assert (len(node.inputs), node.attrs["causal"], node.attrs["first"]) == (3, 1, 2)


def test_a_mask_that_keeps_everything_goes():
    zeros = np.zeros((5, 7), np.float32)
    graph = converted(chain(lambda b, s: b.node("Add", s, b.constant("mask", zeros))))
    (node,) = [n for n in graph.nodes if n.op == "Attention"]
    assert (len(node.inputs), node.attrs.get("causal", 0)) == (3, 0)


@pytest.mark.parametrize("fill", [-10000.0, -1.0])
def test_a_fill_that_still_counts_stays_a_mask(fill):
    graph = converted(chain(lambda b, s: b.node("Add", s, b.constant("mask", later_keys(fill)))))
    (node,) = [n for n in graph.nodes if n.op == "Attention"]
    assert (len(node.inputs), node.attrs.get("causal", 0)) == (4, 0)


def test_the_causal_term_of_a_mask_that_is_known_when_it_runs():
    def between(b, scores):
        mask = b.node("Add", b.input("mask", (5, 7)), b.constant("later", later_keys(-np.inf)))
        return b.node("Add", scores, mask)

    (node,) = [n for n in converted(chain(between)).nodes if n.op == "Attention"]
    assert (node.inputs[3], node.attrs["causal"], node.attrs["first"]) == ("mask", 1, 2)


@pytest.mark.parametrize("algorithm", [SeparateAttention(), AttentionBlocks(3)])
def test_rows_without_a_key_by_other_algorithms(algorithm):
    b = GraphBuilder()
    q, k, v = (b.input(name, (2, 6, 4)) for name in "qkv")
    kept = b.constant("kept", np.arange(36).reshape(6, 6) % 12 < 6)
    graph = b.graph(b.node("Attention", q, k, v, kept, zero_empty=1))
    result = next(iter(run(converted(graph, (algorithm,))).values()))
    assert not result[:, 1::2].any()
    assert result[:, ::2].all()


@pytest.mark.parametrize(("first", "mask"), [(0, None), (3, (1, 9)), (0, (9, 11)), (0, (11,))])
def test_causal_attention_by_rows_reads_only_the_keys_it_keeps(first, mask):
    b = GraphBuilder()
    shapes = {"q": (2, 9, 4), "k": (2, 11, 4), "v": (2, 11, 5)}
    inputs = [b.input(name, shape) for name, shape in shapes.items()]
    if mask is not None:
        inputs.append(b.input("mask", mask if mask != (1, 9) else (2, 1, 11)))
    graph = converted(b.graph(b.node("Attention", *inputs, causal=1, first=first)), (CausalRows(3, 2),))
    parts = [node for node in graph.nodes if node.op == "Attention"]
    assert [node.attrs["first"] for node in parts] == [first, first + 3, first + 6]
    assert [graph.type_of(n.inputs[1]).shape[-2] for n in parts] == [
        min(11, end + first) for end in (3, 6, 9)
    ]


@pytest.mark.parametrize(("attrs", "rows"), [({}, 2), ({"causal": 1}, 5), ({"causal": 1, "first": 8}, 2)])
def test_attention_that_is_short_or_reads_all_keys_stays_whole(attrs, rows):
    b = GraphBuilder()
    q, k, v = (b.input(name, (2, 9, 4)) for name in "qkv")
    graph = b.graph(b.node("Attention", q, k, v, **attrs))
    assert CausalRows(3, rows).apply(graph) is graph


def test_causal_rows_of_heads_that_lie_interleaved():
    heads, rows, width = 3, 64, 8
    b = GraphBuilder()

    def split(name):
        x = b.node("Relu", b.input(name, (rows, heads * width)))
        return b.node("Transpose", b.node("Reshape", x, shape=(rows, heads, width)), perm=(1, 0, 2))

    y = b.node("Transpose", b.node("Attention", *map(split, "qkv"), causal=1), perm=(1, 0, 2))
    graph = b.graph(b.node("Reshape", y, shape=(rows, heads * width)))
    inputs = {v: normal(rows, heads * width) for v in graph.inputs}
    image = compile_in_detail(CompileRequest(graph, threads=1, algorithm=CausalRows().label)).image
    assert [d.kind for d in image.dispatches].count("attention") == 2
    with Module(image) as module:
        (result,) = module(*inputs.values())
    (want,) = evaluate.run(graph, inputs).values()
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_the_options_of_an_attention():
    def names(keys):
        b = GraphBuilder()
        shape = (2, keys, 4)
        graph = b.graph(b.node("Attention", b.input("q", shape), b.input("k", shape), b.input("v", shape)))
        return [a.name for a in options_of(Workload.from_region(Region(graph)))]

    assert names(16) == ["direct", "separate attention"]
    assert names(1024) == ["direct", "attention in blocks of 512", "separate attention"]


def guarded(graph_of_mask, shape=(1, 1, 5, 7)):
    """An attention as PyTorch writes it: the root of the scale on both sides, Where(IsNaN(s), 0, s)."""
    b = GraphBuilder()
    root, zero = b.constant("root", np.float32(0.5)), b.constant("zero", np.float32(0))
    q = b.node("Mul", b.input("q", (2, 3, 5, 4)), root)
    merged = b.node("Reshape", b.input("k", (2, 3, 7, 4)), shape=(6, 7, 4))
    turned = b.node("Transpose", merged, perm=(0, 2, 1))
    keys = b.node("Mul", b.node("Reshape", turned, shape=(2, 3, 4, 7)), root)
    scores = b.node("Add", b.node("MatMul", q, keys), graph_of_mask(b))
    weights = b.node("Softmax", scores, axis=-1, name="weights")
    kept = b.node("Where", b.node("IsNaN", weights, name="empty"), zero, weights)
    return b, b.node("MatMul", kept, b.input("v", (2, 3, 7, 6)), name="y")


def expanded(b):
    flags = b.node("Expand", b.input("flags", (2, 1, 1, 7), "bool"), shape=(2, 1, 5, 7))
    return b.node("Where", flags, b.constant("kept", np.float32(0)), b.constant("never", np.float32(-np.inf)))


def test_as_pytorch_writes_it():
    b, y = guarded(expanded)
    graph = b.graph(y)
    inputs = {v: normal(*graph.types[v].shape) for v in "qkv"}
    inputs["flags"] = np.arange(14).reshape(2, 1, 1, 7) % 7 < 3
    inputs["flags"][1] = False  # rows of which nothing is kept
    result = run_passes(graph, standard_passes())
    assert [n.op for n in result.nodes] == ["Attention"]
    (node,) = result.nodes
    assert node.inputs[1:] == ("k", "v", "flags")
    assert (node.attrs["scale"], node.attrs["zero_empty"]) == (0.25, 1)
    want = evaluate.run(graph, inputs)["y"]
    assert not want[1].any()
    assert want[0].any()
    np.testing.assert_allclose(evaluate.run(result, inputs)["y"], want, rtol=1e-4, atol=1e-5)


def test_without_a_row_that_may_be_empty_nothing_is_guarded():
    b, y = guarded(lambda b: b.constant("mask", np.where(np.tri(5, 7, 2), 0, -np.inf).astype(np.float32)))
    (node,) = run_passes(b.graph(y), standard_passes()).nodes
    assert (node.attrs["causal"], node.attrs["first"], node.attrs["zero_empty"]) == (1, 2, 0)


@pytest.mark.parametrize("case", ["returned", "flags returned", "not zero"])
def test_what_is_no_guard_stays(case):
    b, y = guarded(expanded)
    outputs = {"returned": ["weights"], "flags returned": ["empty"]}.get(case, [])
    graph = b.graph(y, *outputs)
    if case == "not zero":
        constants = {**graph.constants, "zero": np.float32(1).reshape(())}
        graph = graph.replace(constants=constants)
    assert "Attention" not in [n.op for n in ALWAYS.apply(graph).nodes]


def grouped(mask=None, *, repeat="Expand", values=True, kv=2, heads=6, m=5, n=7):
    """Heads of queries that share keys and values: these are repeated, as models write it."""
    b = GraphBuilder()

    def shared(name, size, repeated=True):
        x = b.input(name, (2, kv, n, size) if repeated else (2, heads, n, size))
        if not repeated:
            return x
        apart, whole = b.node("Unsqueeze", x, axes=(2,)), (2, kv, heads // kv, n, size)
        if repeat == "Expand":
            x = b.node("Expand", apart, shape=whole)
        else:
            x = b.node("Tile", apart, repeats=(1, 1, heads // kv, 1, 1))
        return b.node("Reshape", x, shape=(2, heads, n, size))

    keys = b.node("Transpose", shared("k", 4), perm=(0, 1, 3, 2))
    scores = b.node("MatMul", b.input("q", (2, heads, m, 4)), keys)
    if mask is not None:
        scores = b.node("Add", scores, b.input("mask", mask))
    weights = b.node("Softmax", scores, axis=-1)
    return b.graph(b.node("MatMul", weights, shared("v", 6, values), name="y"))


@pytest.mark.parametrize("mask", [None, (5, 7), (2, 1, 5, 7), (2, 6, 1, 7), (1, 6, 5, 7)])
@pytest.mark.parametrize("repeat", ["Expand", "Tile"])
def test_heads_that_share_keys(mask, repeat):
    ops = [n.op for n in converted(grouped(mask, repeat=repeat), standard_passes()).nodes]
    assert set(ops) == {"Attention", "Reshape"}


def test_keys_of_one_head_are_read_by_all():
    graph = converted(grouped(kv=1), standard_passes())
    (node,) = [n for n in graph.nodes if n.op == "Attention"]
    assert [graph.types[v].shape for v in node.inputs] == [(2, 1, 6, 5, 4), (2, 1, 1, 7, 4), (2, 1, 1, 7, 6)]


def test_keys_alone_are_repeated():
    ops = [n.op for n in converted(grouped(values=False), standard_passes()).nodes]
    assert ops.count("Expand") == 1


@pytest.mark.parametrize("algorithm", [None, SeparateAttention(), CausalRows(2, 8), AttentionBlocks(16)])
@pytest.mark.parametrize("parallel", [1, 2])
def test_heads_that_share_keys_by_machine_code(algorithm, parallel):
    b = GraphBuilder()
    q, k, v = b.input("q", (3, 4, 18, 16)), b.input("k", (3, 1, 33, 16)), b.input("v", (3, 1, 33, 8))
    graph = b.graph(b.node("Attention", q, k, v, causal=1, first=3, name="y"))
    changed = graph if algorithm is None else algorithm.apply(graph)
    assert algorithm is None or changed is not graph
    inputs = {name: normal(*graph.types[name].shape) for name in graph.inputs}
    want = evaluate.run(graph, inputs)["y"]
    np.testing.assert_allclose(evaluate.run(changed, inputs)["y"], want, rtol=1e-4, atol=1e-5)
    with Module(compile_in_detail(CompileRequest(changed, threads=parallel)).image) as module:
        np.testing.assert_allclose(module(*inputs.values())[0], want, rtol=1e-4, atol=1e-5)
