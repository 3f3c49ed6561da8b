"""Small graphs that several tests use, and a strategy for random ones."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from autotune.graph import Graph
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Region


def small_convnet() -> Graph:
    """Two convolutions, a residual, a pool and a classifier."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("small convnet")

    def weights(name: str, *shape: int) -> str:
        return b.constant(name, rng.standard_normal(shape).astype(np.float32) * 0.3)

    x = b.input("x/0:0", (1, 3, 8, 8))
    c1 = b.node("Conv", x, weights("w1", 4, 3, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    r1 = b.node("Relu", c1)
    c2 = b.node("Conv", r1, weights("w2", 4, 4, 1, 1))
    s = b.node("Add", r1, c2)
    g = b.node("GlobalAveragePool", s)
    f = b.node("Flatten", g)
    y = b.node("Gemm", f, weights("w3", 4, 5), weights("b3", 5))
    return b.graph(b.node("Softmax", y, name="y"))


def conv_region(prefix: str = "", swapped: bool = False, declared_last: bool = False) -> Region:
    """conv + bias + residual + relu, NHWC; the parameters change names and orders only."""
    b = GraphBuilder(f"{prefix}region")
    skip = "" if declared_last else b.input(f"{prefix}skip", (1, 4, 4, 8))
    x, w = b.input(f"{prefix}x", (1, 8, 8, 3)), b.input(f"{prefix}w", (3, 3, 3, 8))
    bias = b.input(f"{prefix}bias", (8,))
    skip = skip or b.input(f"{prefix}skip", (1, 4, 4, 8))
    conv = b.node("Conv", x, w, name=f"{prefix}c", layout="NHWC", strides=(2, 2), pads=(1, 1, 1, 1))
    biased = b.node("Add", *((bias, conv) if swapped else (conv, bias)), name=f"{prefix}b")
    total = b.node("Add", *((skip, biased) if swapped else (biased, skip)), name=f"{prefix}t")
    out = b.node("Relu", total, name=f"{prefix}y")
    return Region(b.graph(out), frozenset({w, bias}))


NAMES = st.text(max_size=8).filter(bool)
UNARY = ("Relu", "Tanh", "Abs", "Sigmoid", "LeakyRelu", "Softmax", "Identity")


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Elementwise operators, movement and a constant, under arbitrary names."""
    names = draw(st.lists(NAMES, min_size=12, max_size=12, unique=True))
    b = GraphBuilder(draw(NAMES))
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    values = [b.input(names.pop(), shape)]
    values.append(b.constant(names.pop(), np.ones(shape, np.float32)))
    for _ in range(draw(st.integers(1, 8))):
        chosen = draw(st.sampled_from([*UNARY, "Add", "Mul", "Reshape", "Where", "LRN"]))
        x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        name = names.pop()
        if chosen in ("Add", "Mul"):
            same = b.type_of(x).shape == b.type_of(y).shape
            values.append(b.node(chosen, x, y if same else x, name=name))
        elif chosen == "Reshape":
            values.append(b.node(chosen, x, name=name, shape=(-1,)))
        elif chosen in UNARY:
            attrs = {"alpha": draw(st.floats(allow_nan=False))} if chosen == "LeakyRelu" else {}
            values.append(b.node(chosen, x, name=name, **attrs))
    return b.graph(*dict.fromkeys(values[-2:]))
