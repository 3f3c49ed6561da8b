"""Casts to float16 round once, from float64 too."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.graph.build import GraphBuilder
from autotune.runtime.module import Module


@pytest.mark.parametrize("count", [None, 1, 3])
def test_float64_becomes_the_nearest_float16(count: int | None) -> None:
    """All ties of float16, what lies next to them, and what is beyond its range."""
    exact = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    ties = (exact[:-1] + exact[1:]) / 2
    beyond = [65519.999999999, 65520.0, 1e300, np.inf, np.nan, 2.0**-25, 5e-324, 1e-300]
    x = np.concatenate([exact, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf), beyond])
    x = np.concatenate([x, -x])[-1000 if count is None else -count :] if count else np.concatenate([x, -x])
    b = GraphBuilder("cast")
    graph = b.graph(b.node("Cast", b.input("x", x.shape, "float64"), to="float16", name="y"))
    with Module(compile_in_detail(graph, target="x86-64-v3", threads=1).image) as module:
        (found,) = module(x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16))
