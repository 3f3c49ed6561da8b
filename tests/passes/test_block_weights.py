"""Weights with a scale for each block: which products keep their few bits, and what they compute."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.canonical.common_subexpressions import CommonSubexpressions
from autotune.passes.quantized.block_weights import BlockWeights
from autotune.passes.quantized.byte_rows import ByteRows
from autotune.runtime.module import Module

TYPES = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4, "int8": np.int8, "uint8": np.uint8}
RANGES = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}


def weights(b: GraphBuilder, shape: tuple[int, int], axis: int, block: int, dtype: str, **kinds: Any) -> str:
    """A dequantised matrix with blocks along an axis; ``zero``: none, one for all or one for each block."""
    rng = np.random.default_rng([*shape, axis, block])
    steps = tuple(-(-d // block) if a == axis else d for a, d in enumerate(shape))
    q = rng.integers(*RANGES[dtype], shape).astype(TYPES[dtype])
    operands = [
        b.constant(f"q{shape}", q),
        b.constant(f"s{shape}", rng.uniform(0.01, 0.1, steps).astype(np.float32)),
    ]
    zero = kinds.get("zero", "none")
    if zero != "none":
        middle = rng.integers(*RANGES[dtype], steps if zero == "each" else ())
        operands.append(b.constant(f"z{shape}", np.broadcast_to(middle, steps).astype(TYPES[dtype])))
    return b.node("DequantizeLinear", *operands, axis=axis, block_size=block)


def operators(graph: Graph) -> list[str]:
    return [node.op for node in BlockWeights().apply(graph).nodes]


def agrees(graph: Graph, x: Any) -> Graph:
    """Return the graph after the pass, which computes the same."""
    changed = BlockWeights().apply(graph)
    expected, found = (evaluate.run(g, {"x": x}) for g in (graph, changed))
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=2e-5)
    return changed


@pytest.mark.parametrize("seed", range(12))
def test_random_products_stay_the_same(seed: int) -> None:
    rng = random.Random(seed)
    dtype, zero = rng.choice(list(TYPES)), rng.choice(("none", "all", "each"))
    block = rng.choice((8, 16, 32, 64))
    k, n, turned = rng.randint(1, 3 * block), rng.randint(1, 40), rng.random() < 0.5
    b = GraphBuilder("product")
    lead = rng.choice(((3,), (1,), (2, 3), (2, 1, 3)))
    x = b.input("x", (*lead, k))
    axis = 1 if turned else 0
    w = weights(b, (n, k) if turned else (k, n), axis, block, dtype, zero=zero)
    if len(lead) == 1 and rng.random() < 0.5:
        bias = [b.constant("bias", np.arange(n, dtype=np.float32))] if rng.random() < 0.5 else []
        y = b.node("Gemm", x, w, *bias, transB=int(turned))
    else:
        y = b.node("MatMul", x, b.node("Transpose", w, perm=(1, 0)) if turned else w)
    graph = b.graph(y)
    changed = agrees(graph, np.random.default_rng(seed).standard_normal((*lead, k)).astype(np.float32))
    (product,) = [node for node in changed.nodes if node.op == "BlockMatMul"]
    assert len(product.inputs) == (4 if zero == "each" and n * -(-k // block) > 1 else 3)
    assert "DequantizeLinear" not in [node.op for node in changed.nodes]


def test_other_uses_are_constants_of_real_numbers() -> None:
    b = GraphBuilder("others")
    x = b.input("x", (4, 32))
    w = weights(b, (32, 32), 1, 16, "int4")
    y = b.node("MatMul", x, w)  # blocks along the columns, which are not summed over
    graph = b.graph(b.node("Add", y, b.node("ReduceSum", w, axes=(0,), keepdims=1)))
    changed = agrees(graph, np.ones((4, 32), np.float32))
    assert [node.op for node in changed.nodes] == ["MatMul", "ReduceSum", "Add"]


def test_blocks_of_less_than_a_word_and_scaled_products_are_not_packed() -> None:
    b = GraphBuilder("small")
    x = b.input("x", (4, 32))
    assert "BlockMatMul" not in operators(b.graph(b.node("MatMul", x, weights(b, (32, 8), 0, 4, "int4"))))
    b = GraphBuilder("scaled")
    y = b.node("Gemm", b.input("x", (4, 32)), weights(b, (32, 8), 0, 8, "int4"), alpha=0.5)
    assert "BlockMatMul" not in operators(b.graph(y))


def test_the_compiled_model_holds_four_bits_a_weight() -> None:
    b = GraphBuilder("compiled")
    y = b.node("MatMul", b.input("x", (3, 256)), weights(b, (256, 192), 0, 32, "uint4", zero="each"))
    graph = b.graph(b.node("Relu", y, name="y"))
    done = compile_in_detail(CompileRequest(graph))
    assert [each.kind for each in done.image.dispatches].count("contraction") == 1
    whole = 256 * 192 // 2 + 8 * 192 * (4 + 1)
    assert sum(array.nbytes for array in done.image.constants) < 1.1 * whole + 4096
    x = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    with Module(done.image) as module:
        (found,) = module(x)
    expected = evaluate.run(graph, {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", range(8))
def test_words_that_a_model_stores_stay_where_they_lie(seed: int) -> None:
    rng, random_numbers = random.Random(seed), np.random.default_rng(seed)
    bits, block, blocks, n = (
        rng.choice((4, 8)),
        rng.choice((8, 16, 32)),
        rng.randint(1, 4),
        rng.randint(1, 20),
    )
    steps = block * blocks
    rows = rng.randint(steps - block + 1, steps)
    words = random_numbers.integers(-(2**31), 2**31, (n, steps * bits // 32), np.int32).T
    b = GraphBuilder("product")
    operands = [b.constant("words", words)]
    operands.append(b.constant("scale", random_numbers.uniform(0.01, 0.1, (blocks, n)).astype(np.float32)))
    if rng.random() < 0.5:
        operands.append(b.constant("zero", random_numbers.integers(0, 1 << bits, (blocks, n), np.uint8)))
    weights = b.node("UnpackBlocks", *operands, bits=bits, zero_point=rng.choice((0, 8)), rows=rows)
    assert b.type_of(weights).shape == (rows, n)
    graph = b.graph(b.node("MatMul", b.input("x", (3, rows)), weights))
    changed = agrees(graph, random_numbers.standard_normal((3, rows)).astype(np.float32))
    (product,) = [node for node in changed.nodes if node.op == "BlockMatMul"]
    assert np.shares_memory(changed.constants[product.inputs[1]], graph.constants["words"])


def test_words_that_no_product_reads_are_numbers() -> None:
    b = GraphBuilder("sum")
    words, scale = (
        b.constant("words", np.full((4, 2), 0x21, np.int32)),
        b.constant("scale", np.ones((1, 2), np.float32)),
    )
    graph = b.graph(b.node("Add", b.input("x", (32, 2)), b.node("UnpackBlocks", words, scale)))
    assert [node.op for node in agrees(graph, np.zeros((32, 2), np.float32)).nodes] == ["Add"]


@pytest.mark.parametrize("zero", ["none", "each"])
def test_rows_of_bytes_compute_the_same(zero: str) -> None:
    b = GraphBuilder("bytes")
    x = b.input("x", (3, 64))
    products = [b.node("MatMul", x, weights(b, (64, n), 0, 32, "uint4", zero=zero)) for n in (24, 40)]
    graph = BlockWeights().apply(b.graph(*products))
    changed = CommonSubexpressions().apply(ByteRows(True).apply(graph))
    assert Counter(node.op for node in changed.nodes)["BlockDot"] == 2
    assert Counter(node.op for node in changed.nodes)["BlockPlanes"] == 1
    rows = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32) * np.float32(
        [[1e-30], [1], [1e30]]
    )
    expected, found = (evaluate.run(each, {"x": rows}) for each in (graph, changed))
    for before, after in zip(graph.outputs, changed.outputs, strict=True):
        np.testing.assert_allclose(
            found[after] / abs(rows).max(1)[:, None], expected[before] / abs(rows).max(1)[:, None], atol=2e-5
        )


def test_rows_that_are_not_finite_give_nan() -> None:
    b = GraphBuilder("infinite")
    graph = b.graph(b.node("MatMul", b.input("x", (2, 32)), weights(b, (32, 8), 0, 32, "uint4")))
    changed = ByteRows(True).apply(BlockWeights().apply(graph))
    rows = np.ones((2, 32), np.float32)
    rows[0, 3] = np.inf
    (found,) = evaluate.run(changed, {"x": rows}).values()
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
