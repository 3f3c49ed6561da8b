"""The NumPy run of whole graphs."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import InputError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from tests.graph.graphs import small_convnet

X = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)


def test_small_convnet() -> None:
    graph = small_convnet()
    w1, w2, w3, b3 = (graph.constants[k].astype(np.float64) for k in ("w1", "w2", "w3", "b3"))
    padded = np.pad(X[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    hidden = np.maximum(np.einsum("chwij,ocij->ohw", windows, w1), 0)
    hidden = hidden + np.einsum("chw,oc->ohw", hidden, w2[:, :, 0, 0])
    logits = hidden.mean((1, 2)) @ w3 + b3
    expected = np.exp(logits) / np.exp(logits).sum()
    result = evaluate.run(graph, {"x/0:0": X})
    assert list(result) == ["y"]
    np.testing.assert_allclose(result["y"][0], expected, rtol=1e-4)


def test_on_value_sees_every_computed_value() -> None:
    graph = small_convnet()
    seen: dict[str, tuple[int, ...]] = {}
    evaluate.run(graph, {"x/0:0": X}, on_value=lambda name, a: seen.update({name: a.shape}))
    assert seen == {v: graph.type_of(v).shape for v in graph.producers()}


def test_outputs_may_be_inputs_constants_or_read_again() -> None:
    b = GraphBuilder()
    x, c = b.input("x", (2,)), b.constant("c", np.ones(2, np.float32))
    y = b.node("Add", x, c)
    z = b.node("Neg", y)
    result = evaluate.run(b.graph(y, z, x, c), {"x": np.float32([1, 2])})
    assert {k: v.tolist() for k, v in result.items()} == {
        "add": [2, 3],
        "neg": [-2, -3],
        "x": [1, 2],
        "c": [1, 1],
    }


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x/0:0' of graph 'small convnet' is missing"),
        ({"x": X}, "graph 'small convnet' has no input 'x'; it has: x/0:0"),
        (
            {"x/0:0": X[0]},
            "input 'x/0:0' is float32[3, 8, 8], expected float32[1, 3, 8, 8]",
        ),
    ],
)
def test_wrong_inputs(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate.run(small_convnet(), inputs)
    assert str(caught.value) == message
