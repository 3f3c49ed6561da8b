"""Recurrent operators against their equations in NumPy, step by step."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.graph.ir import Array
from autotune.graph.verify import verify
from autotune.runtime.module import Module

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSigmoid": lambda x: np.clip(0.3 * x + 0.5, 0, 1),
    "ScaledTanh": lambda x: 0.3 * np.tanh(1.0 * x),
    "ThresholdedRelu": lambda x: np.where(x > 0.3, x, 0),
    "Affine": lambda x: 0.3 * x,
}
"""With alpha 0.3 and the default beta."""
WITH_ALPHA = ("HardSigmoid", "ScaledTanh", "ThresholdedRelu", "Affine")
DEFAULTS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}


def random_case(rng: random.Random) -> tuple[Any, dict[str, Array], list[Array]]:
    """A model of one node, its inputs and what it should give."""
    op = rng.choice(list(GATES))
    direction = rng.choice(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (
        rng.randint(1, 5),
        rng.randint(1, 3),
        rng.randint(1, 5),
        rng.choice((1, 4, 9)),
    )
    layout = rng.randint(0, 1)
    numbers = np.random.default_rng(rng.randrange(1 << 30))

    def normal(*shape: int) -> Array:
        return numbers.standard_normal(shape).astype(np.float32)

    gates = GATES[op]
    state = (batch, count, hidden) if layout else (count, batch, hidden)
    given: dict[str, Array | None] = {
        "x": normal(*((batch, steps, size) if layout else (steps, batch, size))),
        "w": normal(count, gates * hidden, size),
        "r": normal(count, gates * hidden, hidden),
        "b": normal(count, 2 * gates * hidden) if rng.random() < 0.7 else None,
        "lengths": numbers.integers(1, steps + 1, batch).astype(np.int32) if rng.random() < 0.5 else None,
        "h": normal(*state) if rng.random() < 0.5 else None,
    }
    if op == "LSTM":
        given["c"] = normal(*state) if rng.random() < 0.5 else None
        given["p"] = normal(count, 3 * hidden) if rng.random() < 0.5 else None
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": layout}
    names = DEFAULTS[op] * count
    if rng.random() < 0.5:
        names = [rng.choice(list(ACTIVATIONS)) for _ in names]
        alphas = [0.3 for n in names if n in WITH_ALPHA]
        attrs |= {"activations": names} | ({"activation_alpha": alphas} if alphas else {})
    if rng.random() < 0.3:
        attrs["clip"] = 0.5
    if op == "GRU":
        attrs["linear_before_reset"] = rng.randint(0, 1)
    if op == "LSTM":
        attrs["input_forget"] = rng.randint(0, 1)
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, [n if a is not None else "" for n, a in given.items()], outputs, **attrs)
    fixed = ("w", "r", "b", "p") if rng.random() < 0.7 else ()
    present = {n: a for n, a in given.items() if a is not None}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in present.items()
        if n not in fixed
    ]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    stored = [numpy_helper.from_array(a, n) for n, a in present.items() if n in fixed]
    graph = helper.make_graph([node], "recurrent", inputs, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    wanted = expected(op, given, attrs, names, count)
    return model, {n: a for n, a in present.items() if n not in fixed}, wanted[: len(outputs)]


def expected(
    op: str, given: Mapping[str, Array | None], attrs: Mapping[str, Any], names: list[str], count: int
) -> list[Array]:
    """The outputs by ONNX's equations, in float64."""
    layout, hidden = attrs["layout"], attrs["hidden_size"]
    x = np.asarray(given["x"], np.float64)
    x = x.swapaxes(0, 1) if layout else x
    steps, batch, _ = x.shape
    lengths = given["lengths"] if given["lengths"] is not None else np.full(batch, steps)
    y = np.zeros((steps, count, batch, hidden))
    last = np.zeros((2, count, batch, hidden))
    for d in range(count):
        f = [ACTIVATIONS[n] for n in names[d * len(names) // count : (d + 1) * len(names) // count]]
        backwards = attrs["direction"] == "reverse" or d == 1
        for item in range(batch):
            h, c = (
                np.zeros(hidden)
                if given.get(k) is None
                else np.asarray(given[k]).swapaxes(0, layout)[d, item]
                for k in ("h", "c")
            )
            order = range(lengths[item])
            for t in reversed(order) if backwards else order:
                h, c = step(op, {k: given.get(k) for k in "wrbp"}, attrs, f, d, x[t, item], h, c)
                y[t, d, item] = h
            last[:, d, item] = h, c
    if layout:
        return [y.transpose(2, 0, 1, 3), *last.swapaxes(1, 2)]
    return [y, *last]


def step(
    op: str,
    weights: Mapping[str, Array | None],
    attrs: Mapping[str, Any],
    f: list[Callable[[Array], Array]],
    d: int,
    x: Array,
    h: Array,
    c: Array,
) -> tuple[Array, Array]:
    n = attrs["hidden_size"]
    w, r = (np.asarray(weights[k], np.float64)[d] for k in "wr")
    b = np.zeros(2 * len(w)) if weights["b"] is None else np.asarray(weights["b"], np.float64)[d]
    p = np.zeros(3 * n) if weights["p"] is None else np.asarray(weights["p"], np.float64)[d]
    wx, rh = w @ x + b[: len(w)], r @ h + b[len(w) :]
    bound = attrs.get("clip", np.inf)

    def cut(v: Array) -> Array:
        return np.clip(v, -bound, bound)

    if op == "RNN":
        return f[0](cut(wx + rh)), c
    if op == "LSTM":
        gi, go, gf, gc = np.split(wx + rh, 4)
        i = f[0](cut(gi + p[:n] * c))
        forget = 1 - i if attrs["input_forget"] else f[0](cut(gf + p[2 * n :] * c))
        c = forget * c + i * f[1](cut(gc))
        return f[0](cut(go + p[n : 2 * n] * c)) * f[2](c), c
    z, reset = (f[0](cut(v)) for v in np.split((wx + rh)[: 2 * n], 2))
    if attrs["linear_before_reset"]:
        new = wx[2 * n :] + reset * rh[2 * n :]
    else:
        new = wx[2 * n :] + r[2 * n :] @ (reset * h) + b[len(w) + 2 * n :]
    return (1 - z) * f[1](cut(new)) + z * h, c


@pytest.mark.parametrize("block", range(3))
def test_random_cells_compute_their_equations(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        model, inputs, wanted = random_case(random.Random(seed))
        graph = frontend.load(model)
        verify(graph)
        found = evaluate.run(graph, inputs)
        for name, want in zip(graph.outputs, wanted, strict=True):
            np.testing.assert_allclose(
                found[name], want, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}: {name}"
            )
        if seed % 5 == 0:
            with autotune.compile(graph, threads=1) as module:
                compiled = module.run(inputs)
            for name in graph.outputs:
                np.testing.assert_allclose(compiled[name], found[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"direction": "sideways"}, "unknown direction 'sideways'; one of forward, reverse, bidirectional"),
        ({"activations": ["Tanh"]}, "1 activations for 1 direction; 3 for each"),
        (
            {"activations": ["Sigmoid", "Tanh", "Wave"]},
            "unknown activation 'Wave'; known: affine, elu, hardsigmoid, leakyrelu, relu, scaledtanh, sigmoid, "
            "softplus, softsign, tanh, thresholdedrelu",
        ),
    ],
)
def test_what_is_refused(attrs: dict[str, Any], message: str) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="cell", hidden_size=2, **attrs)
    shapes = {"x": (3, 1, 2), "w": (1, 8, 2), "r": (1, 8, 2)}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    with pytest.raises(ModelImportError) as caught:
        frontend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]))
    assert str(caught.value).endswith(f"node 'cell' (LSTM): {message}")


def test_weights_are_packed_once_for_all_steps() -> None:
    rng = np.random.default_rng(0)
    w, r = (rng.standard_normal(s).astype(np.float32) for s in ((1, 64, 8), (1, 64, 16)))
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (20, 1, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(r, "r")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    image = compile_in_detail(CompileRequest(model, target="x86-64-v3", threads=1)).image
    products = [c for c in image.commands if "matmul" in image.dispatches[c.dispatch].name]
    assert len(products) == 1 + 4  # of the first step, of two that are repeated, and of the last
    assert [repeat.count for repeat in image.repeats] == [9]
    assert len(image.commands) - len(products) < 3 * 4  # one dispatch for each of what is carried
    stored = {b.index for c in products[1:] for b in c.bindings if b.space == "constant"}
    assert len(stored) <= 2  # the weights, and the zeros that the first step has as its state


def test_commands_do_not_grow_with_the_steps() -> None:
    rng = np.random.default_rng(0)
    w, r = (rng.standard_normal(s).astype(np.float32) / 3 for s in ((2, 16, 6), (2, 16, 4)))
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4, direction="bidirectional")
    sizes = []
    for steps in (12, 400):
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, 2, 6))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(w, "w"), numpy_helper.from_array(r, "r")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
        done = compile_in_detail(CompileRequest(model, threads=2))
        sizes.append((len(done.image.commands), len(done.image.dispatches)))
        with Module(done.image) as module:
            x = rng.standard_normal((steps, 2, 6)).astype(np.float32)
            found, ends = module(x)[0], (slice(None), slice(None, None, -1))
            for way, end in enumerate(ends):
                wanted = _plain(x[end], w[way], r[way])
                np.testing.assert_allclose(found[end, way], wanted, rtol=1e-4, atol=1e-5)
    assert sizes[0] == sizes[1]


def _plain(x: np.ndarray, w: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Return the states of an LSTM without biases, whose gates are in the order i, o, f, c."""
    h = c = np.zeros((2, 4), np.float32)
    found = []
    for each in x @ w.T:
        i, o, f, new = np.split(each + h @ r.T, 4, axis=1)
        i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(new)
        h = o * np.tanh(c)
        found.append(h)
    return np.stack(found)
