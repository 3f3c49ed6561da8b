"""Matrix products, norms and softmax as problems; both forms have the same layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.bench.problem import Problem
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array


def builders(
    name: str, seed: int, **shapes: Sequence[int]
) -> tuple[GraphBuilder, ModelBuilder, dict[str, Array]]:
    """Builders of both forms with the given inputs, and random values for them."""
    rng = np.random.default_rng(seed)
    b, m = GraphBuilder(name), ModelBuilder(name)
    arrays = {}
    for value, shape in shapes.items():
        b.input(value, shape)
        m.input(value, list(shape))
        arrays[value] = rng.standard_normal(tuple(shape), dtype=np.float32)
    return b, m, arrays


def matmul(sizes: Sequence[int], seed: int, batch: Sequence[int] = ()) -> Problem:
    """[batch, n, k] @ [batch, k, m] for sizes (n, m, k); both operands are inputs, so that packing counts."""
    n, m, k = sizes
    b, peers, arrays = builders("matmul", seed, a=(*batch, n, k), b=(*batch, k, m))
    ours, theirs = b.node("MatMul", "a", "b"), peers.node("MatMul", ["a", "b"], "c")
    return Problem(b.graph(ours), arrays, peers.finish([theirs]))


def attention_scores(shape: Sequence[int], seed: int) -> Problem:
    """Two transpositions and a batched product: [batch, seq, heads, dim] twice to [batch, heads, seq, seq]."""
    b, m, arrays = builders("attention_scores", seed, q=shape, k=shape)
    perms = {"q": (0, 2, 1, 3), "k": (0, 2, 3, 1)}
    ours = b.node("MatMul", *(b.node("Transpose", v, perm=perm) for v, perm in perms.items()))
    parts = [m.node("Transpose", [v], f"{v}.heads", perm=perm) for v, perm in perms.items()]
    return Problem(b.graph(ours), arrays, m.finish([m.node("MatMul", parts, "scores")]))


def norm(shape: Sequence[int], seed: int) -> Problem:
    """The root of the sum of squares of each matrix of a batch [batch, rows, columns]."""
    b, m, arrays = builders("norm", seed, x=shape)
    squares = b.node("Mul", "x", "x")
    ours = b.node("Sqrt", b.node("ReduceSum", squares, axes=(1, 2), keepdims=0))
    theirs = m.node("ReduceL2", ["x"], "y", axes=[1, 2], keepdims=0)
    return Problem(b.graph(ours), arrays, m.finish([theirs]))


def softmax(shape: Sequence[int], seed: int) -> Problem:
    """Softmax over axis 1 of a matrix."""
    b, m, arrays = builders("softmax", seed, x=shape)
    ours, theirs = b.node("Softmax", "x", axis=1), m.node("Softmax", ["x"], "y", axis=1)
    return Problem(b.graph(ours), arrays, m.finish([theirs]))


__all__ = ["attention_scores", "builders", "matmul", "norm", "softmax"]
