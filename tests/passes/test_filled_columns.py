"""Products of bytes whose columns are no whole vectors are of more columns, and make the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array, Graph
from autotune.passes.quantized.filled_columns import FilledColumns
from tests.seeds import seeds


def product(rng: Any, rows: int, columns: int) -> tuple[GraphBuilder, str]:
    b, depth = GraphBuilder("product"), int(rng.integers(1, 40))
    x = b.input("x", (rows, depth), "uint8")
    w = b.constant("w", rng.integers(-127, 128, (depth, columns)).astype(np.int8))
    return b, b.node("IntegerMatMul", x, w)


def convolution(rng: Any, columns: int) -> tuple[GraphBuilder, str]:
    b, depth, size = GraphBuilder("convolution"), int(rng.integers(1, 9)), int(rng.choice((1, 3)))
    x = b.input("x", (2, 5, 6, depth), "uint8")
    w = b.constant("w", rng.integers(-127, 128, (size, size, depth, columns)).astype(np.int8))
    return b, b.node("IntegerConv", x, w, layout="NHWC", pads=(size // 2,) * 4)


def followed(rng: Any, b: GraphBuilder, total: str, columns: int) -> Graph:
    """The graph of a product with random elementwise operations behind it, of which some are read twice."""
    values, shape = [b.node("Cast", total, to="float32")], b.type_of(total).shape
    for step in range(int(rng.integers(0, 6))):
        value, name = values[int(rng.integers(len(values)))], f"operand{step}"
        row = rng.uniform(0.5, 2, columns).astype(np.float32)
        operands = {
            "scalar": lambda: b.constant(name, np.float32(0.25)),  # noqa: B023  # read at once
            "row": lambda: b.constant(name, row),  # noqa: B023
            "given": lambda: b.input(name, (1, columns), "float32"),  # noqa: B023
            "whole": lambda: b.input(name, shape, "float32"),  # noqa: B023
            "column": lambda: b.input(name, (*shape[:-1], 1), "float32"),  # noqa: B023
            "other": lambda: values[0],
        }
        made = operands[str(rng.choice([*operands]))]()
        values.append(b.node(str(rng.choice(["Add", "Mul", "Sub", "Div"])), value, made))
    last = b.node("Clip", b.node("Round", values[-1]), min=0.0, max=255.0)
    return b.graph(b.node("Cast", last, to="uint8"), total, values[-1])


def feed(graph: Graph, rng: Any) -> dict[str, Array]:
    kinds = {name: graph.types[name] for name in graph.inputs}
    return {
        name: (rng.integers(0, 256, k.shape) if k.dtype == "uint8" else rng.uniform(0.5, 2, k.shape)).astype(
            k.dtype
        )
        for name, k in kinds.items()
    }


def drawn(seed: int) -> tuple[Graph, dict[str, Array]]:
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 40))
    b, total = (
        convolution(rng, columns) if seed % 2 else product(rng, int(rng.choice((1, 2, 7, 33))), columns)
    )
    graph = followed(rng, b, total, columns)
    return graph, feed(graph, rng)


@pytest.mark.parametrize("seed", seeds(40, 400))
def test_the_same_numbers(seed: int) -> None:
    graph, given = drawn(seed)
    after = FilledColumns().apply(graph)
    wanted = evaluate.run(graph, given)
    found = evaluate.run(after, given)
    for name in graph.outputs:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    if seed < 6:
        for name, array in autotune.compile(graph).run(given).items():
            np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def test_columns_are_filled_and_cut_behind_what_follows() -> None:
    rng = np.random.default_rng(0)
    b, total = product(rng, 32, 10)
    real = b.node("Mul", b.node("Cast", total, to="float32"), b.constant("s", np.ones(10, np.float32)))
    after = FilledColumns().apply(b.graph(real))
    assert [(n.op, after.types[n.outputs[0]].shape[-1]) for n in after.nodes] == [
        *(("IntegerMatMul", 16), ("Cast", 16), ("Mul", 16), ("Slice", 10))
    ]


@pytest.mark.parametrize(("columns", "after"), [(24, 24), (120, 120), (136, 144), (1000, 1008)])
def test_many_columns_of_a_convolution_are_whole_tiles(columns: int, after: int) -> None:
    b, total = convolution(np.random.default_rng(0), columns)
    graph = FilledColumns().apply(b.graph(total))
    (product, *_) = graph.nodes
    assert (product.op, graph.types[product.outputs[0]].shape[-1]) == ("IntegerConv", after)


@pytest.mark.parametrize(("rows", "columns"), [(32, 16), (32, 48), (1, 10)])
def test_whole_vectors_and_single_rows_stay(rows: int, columns: int) -> None:
    b, total = product(np.random.default_rng(0), rows, columns)
    graph = b.graph(total)
    assert FilledColumns().apply(graph) is graph
