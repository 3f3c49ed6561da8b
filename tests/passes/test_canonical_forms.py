"""Softmax and normalisations written out: what is recognised, before and after."""

import itertools

import numpy as np
import pytest

from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.passes.canonical.canonical_forms import FORMS, CanonicalForms
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.runtime.module import Module
from tests.passes.test_partition import all_ops, check, normal

SHAPE = (3, 5, 19)
FRESH = itertools.count()


def number(b, value):
    return b.constant(f"n{next(FRESH)}", np.float32(value))


def softmax(b, x, axis=-1, inverse=False, total=None):
    exps = b.node("Exp", b.node("Sub", x, b.node("ReduceMax", x, axes=(axis,))))
    sums = b.node("ReduceSum", exps, axes=(axis if total is None else total,))
    if inverse:
        return b.node("Mul", b.node("Reciprocal", sums), exps)
    return b.node("Div", exps, sums)


def over_its_sum(b, value):
    return b.node("Div", value, b.node("ReduceSum", value, axes=(2,)))


def over_root(b, value, squares, how):
    root = b.node("Sqrt", b.node("Add", number(b, 1e-3), squares))
    if how == "divided":
        return b.node("Div", value, root)
    inverse = b.node("Reciprocal", root) if how == "reciprocal" else b.node("Div", number(b, 1), root)
    return b.node("Mul", inverse, value)


def layer_norm(b, x, how="divided", axes=(2,), twice=False, power=False, dropped=False):
    def centred():
        return b.node("Sub", x, b.node("ReduceMean", x, axes=axes))

    value = centred()
    other = centred() if twice else value
    squares = b.node("Pow", other, number(b, 2)) if power else b.node("Mul", other, other)
    variance = b.node("ReduceMean", squares, axes=axes, keepdims=0 if dropped else 1)
    if dropped:
        variance = b.node("Unsqueeze", variance, axes=axes)
    return over_root(b, value, variance, how)


def rms_norm(b, x, how="reciprocal", axes=(2,)):
    return over_root(b, x, b.node("ReduceMean", b.node("Pow", x, number(b, 2)), axes=axes), how)


def scaled(b, value, *shapes):
    for op, shape in zip(("Mul", "Add"), shapes, strict=False):
        value = b.node(op, b.constant(f"k{next(FRESH)}", normal(*shape, seed=3)), value)
    return value


def affine(b, x):
    return scaled(b, layer_norm(b, x), (19,), (1, 19))


CASES = {
    "softmax": (softmax, ["Softmax"]),
    "softmax of another axis": (lambda b, x: softmax(b, x, axis=1), ["Softmax"]),
    "softmax by the inverse": (lambda b, x: softmax(b, x, inverse=True), ["Softmax"]),
    "softmax of what is moved by another value": (
        lambda b, x: softmax(b, b.node("Tanh", x), total=1),
        ["Tanh", "ReduceMax", "Sub", "Softmax"],
    ),
    "softmax without a maximum": (
        lambda b, x: over_its_sum(b, b.node("Exp", b.node("Sin", x))),
        ["Sin", "Softmax"],
    ),
    "layer norm": (layer_norm, ["LayerNormalization"]),
    "by a reciprocal": (lambda b, x: layer_norm(b, x, "reciprocal"), ["LayerNormalization"]),
    "by one over a root": (lambda b, x: layer_norm(b, x, "inverse"), ["LayerNormalization"]),
    "two axes": (lambda b, x: layer_norm(b, x, axes=(1, 2)), ["LayerNormalization"]),
    "centred twice": (lambda b, x: layer_norm(b, x, twice=True), ["LayerNormalization"]),
    "by a power": (lambda b, x: layer_norm(b, x, power=True), ["LayerNormalization"]),
    "axes put back": (lambda b, x: layer_norm(b, x, dropped=True), ["LayerNormalization"]),
    "scale and bias": (affine, ["LayerNormalization"]),
    "bias alone": (lambda b, x: b.node("Add", layer_norm(b, x), number(b, 2)), ["LayerNormalization"]),
    "rms norm": (rms_norm, ["RMSNormalization"]),
    "rms norm, divided": (lambda b, x: rms_norm(b, x, "divided"), ["RMSNormalization"]),
    "rms norm with a scale": (lambda b, x: scaled(b, rms_norm(b, x), (1, 1, 19)), ["RMSNormalization"]),
    "a scale by rows": (lambda b, x: scaled(b, rms_norm(b, x), (5, 1)), ["RMSNormalization", "Mul"]),
    "group norm": (
        lambda b, x: group_norm(b, x, 1, ((5, 1), (5, 1))),
        ["Transpose", "GroupNormalization", "Transpose"],
    ),
    "a scale of heads": (lambda b, x: scaled(b, rms_norm(b, x), (5, 19)), ["RMSNormalization", "Mul"]),
}


def built(case):
    b = GraphBuilder()
    x = b.input("x", SHAPE)
    return b.graph(case(b, x))


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_it(name):
    graph = built(CASES[name][0])
    result = run_passes(graph, standard_passes())
    x = 2 + normal(*SHAPE)
    want, got = (next(iter(evaluate.run(g, {"x": x}).values())) for g in (graph, result))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert [op for group in all_ops(check(result)) for op in group] == CASES[name][1]


def mean(b, x, how="mean"):
    if how == "mean":
        return b.node("ReduceMean", x, axes=(2,))
    total = b.node("ReduceSum", x, axes=(2,))
    return b.node("Div", total, number(b, 19)) if how == "sum" else b.node("Mul", number(b, 1 / 19), total)


def variance(b, x, middle, how):
    square = {"power": lambda d: b.node("Pow", d, number(b, 2))}.get(how, lambda d: b.node("Mul", d, d))
    if how.startswith("moments"):
        found = b.node("Sub", mean(b, square(x)), square(middle))
        return b.node("Max", found, number(b, 0)) if how == "moments, at least 0" else found
    return mean(b, square(b.node("Sub", *((middle, x) if how == "turned" else (x, middle)))))


def inverse_root(b, squares, how):
    total = b.node("Add", squares, number(b, 1e-3))
    if how == "power":
        return b.node("Pow", total, number(b, -0.5))
    root = b.node("Pow", total, number(b, 0.5)) if how == "half" else b.node("Sqrt", total)
    return b.node("Div", number(b, 1), root) if how == "one over" else b.node("Reciprocal", root)


def times(b, value, inverse, how):
    scale = b.constant(f"k{next(FRESH)}", normal(19, seed=4))
    if how == "value":
        return b.node("Mul", b.node("Mul", scale, value), inverse)
    if how == "inverse":
        return b.node("Mul", value, b.node("Mul", inverse, scale))
    return b.node("Mul", b.node("Mul", value, inverse), scale)


STATISTICS = ("mean", "sum", "share")
VARIANCES = ("plain", "power", "turned", "moments", "moments, at least 0")
ROOTS = ("root", "one over", "power", "half")
SCALES = ("value", "inverse", "result", "batch norm")


@pytest.mark.parametrize("spread", VARIANCES)
@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
def test_all_spellings_are_one_operator(kind, spread):
    for statistic, root, scale in itertools.product(STATISTICS, ROOTS, SCALES):
        if kind == "RMSNormalization" and (spread, scale) not in [("plain", s) for s in SCALES[:3]]:
            continue
        b = GraphBuilder()
        x = b.input("x", SHAPE)
        middle = mean(b, x, statistic)
        if kind == "RMSNormalization":
            inverse = inverse_root(b, mean(b, b.node("Mul", x, x), statistic), root)
            graph = b.graph(times(b, x, inverse, scale))
        elif scale == "batch norm":
            factor = b.node(
                "Mul",
                inverse_root(b, variance(b, x, middle, spread), root),
                b.constant("scale", normal(19, seed=4)),
            )
            offset = b.node("Sub", b.constant("bias", normal(19, seed=5)), b.node("Mul", middle, factor))
            graph = b.graph(b.node("Add", b.node("Mul", x, factor), offset))
        else:
            inverse = inverse_root(b, variance(b, x, middle, spread), root)
            graph = b.graph(times(b, b.node("Sub", x, middle), inverse, scale))
        result = run_passes(graph, standard_passes())
        numbers = {"x": 1 + normal(*SHAPE)}
        want, got = (next(iter(evaluate.run(g, numbers).values())) for g in (graph, result))
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        assert [node.op for node in result.nodes] == [kind], (statistic, root, scale)


def test_every_form_occurs():
    assert {op for _, ops in CASES.values() for op in ops} >= {form.op for form in FORMS}


def test_by_machine_code():
    b = GraphBuilder()
    x = b.input("x", SHAPE)
    y = b.node("Add", affine(b, softmax(b, x)), scaled(b, rms_norm(b, x), ()))
    graph = b.graph(y)
    x = 2 + normal(*SHAPE)
    with Module(compile_in_detail(CompileRequest(graph, threads=1)).image) as module:
        (got,) = module(x)
    np.testing.assert_allclose(got, evaluate.run(graph, {"x": x})[y], rtol=1e-4, atol=1e-5)


def not_last(b, x):
    return layer_norm(b, x, axes=(1,))


def read_inside(b, x):
    y = softmax(b, x)
    return b.node("Mul", y, b.node("Relu", "exp"))


def without_axes_kept(b, x):
    exps = b.node("Exp", b.node("Sub", x, b.node("ReduceMax", x, axes=(2,))))
    return b.node("Div", exps, b.node("ReduceSum", exps, axes=(0, 1, 2)))


@pytest.mark.parametrize("case", [not_last, read_inside, without_axes_kept])
def test_what_is_something_else_stays(case):
    graph = built(case)
    assert CanonicalForms().apply(graph) is graph


def test_what_is_returned_stays():
    b = GraphBuilder()
    y = softmax(b, b.input("x", SHAPE))
    graph = b.graph(y, "exp")
    assert CanonicalForms().apply(graph) is graph


def test_integers_stay():
    b = GraphBuilder()
    x = b.input("x", SHAPE, "int64")
    total = b.node("ReduceSum", x, axes=(2,))
    graph = b.graph(b.node("Div", x, total))
    assert CanonicalForms().apply(graph) is graph


def group_norm(b, x, groups, shapes=((1,), (1,)), shape=None, statistics=(1.0, 0.0)):
    n, *rest = b.type_of(x).shape
    apart = b.node("Reshape", x, shape=(n, groups, int(np.prod(rest)) // groups))
    given = [b.constant(f"k{next(FRESH)}", np.full(groups, v, np.float32)) for v in statistics]
    normed = b.node("InstanceNormalization", apart, *given, epsilon=1e-3)
    return scaled(b, b.node("Reshape", normed, shape=shape or (n, *rest)), *shapes)


IMAGE = (2, 12, 5, 7)
GROUPS = {
    "groups": lambda b, x: group_norm(b, x, 4, ((12, 1, 1), (12, 1, 1))),
    "one group": lambda b, x: group_norm(b, x, 1, ((1, 12, 1, 1), (12, 1, 1))),
    "a scale alone": lambda b, x: group_norm(b, x, 6, ((12, 1, 1),)),
    "neither": lambda b, x: group_norm(b, x, 3, ()),
    "numbers of groups": lambda b, x: group_norm(b, x, 3, ((12, 1, 1), (12, 1, 1)), statistics=(0.5, 2.0)),
    "of what was reshaped": lambda b, x: group_norm(
        b, b.node("Reshape", x, shape=(2, 3, 4, 35)), 4, ((12, 1, 1), (12, 1, 1)), (2, 12, 5, 7)
    ),
}


def between_convolutions(case):
    b = GraphBuilder()
    weights = [b.constant(f"w{i}", normal(12, 12, 1, 1, seed=i) / 4) for i in range(2)]
    y = case(b, b.node("Conv", b.input("x", IMAGE), weights[0]))
    return b.graph(b.node("Conv", b.node("Mul", y, b.node("Sigmoid", y)), weights[1]))


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_norm_is_one_dispatch_with_what_comes_after(name):
    graph = between_convolutions(GROUPS[name])
    result = run_passes(graph, standard_passes())
    x = normal(*IMAGE)
    (want,) = evaluate.run(graph, {"x": x}).values()
    (computed,) = evaluate.run(result, {"x": x}).values()
    np.testing.assert_allclose(computed, want, rtol=1e-4, atol=1e-4)
    with Module(compile_in_detail(CompileRequest(graph, threads=1)).image) as module:
        np.testing.assert_allclose(module(x)[0], want, rtol=1e-4, atol=1e-4)
    normed = ["GroupNormalization", "Sigmoid", "Mul"]
    assert all_ops(check(result)) == [["Transpose", "Conv"], normed, ["Conv"], ["Transpose"]]


def by_places(b, x):
    return group_norm(b, x, 4, ((12, 5, 1), (12, 1, 1)))


def across_batches(b, x):
    return group_norm(b, x, 4, ((24, 1, 1),), (1, 24, 5, 7))


def unequal_groups(b, x):
    return group_norm(b, x, 10, ())


@pytest.mark.parametrize("case", [by_places, across_batches, unequal_groups])
def test_what_is_no_group_norm_stays(case):
    b = GraphBuilder()
    y = case(b, b.input("x", (2, 12, 5, 7)))
    result = CanonicalForms().apply(b.graph(y))
    found = [node.op for node in result.nodes]
    assert found[-1] != "GroupNormalization"  # numbers by place are applied after what is one without them
    assert ("GroupNormalization" in found) == (case is by_places)
