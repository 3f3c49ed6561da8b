"""Square matrix products: powers of two, and sizes that no tile divides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from autotune.bench.problem import BenchmarkCase
from autotune.bench.suites.dense import matmul

SQUARE = (256, 384, 512, 768, 1024, 1536, 2048)
ODD = (7, 13, 197, 509, 1000)


def family(size: int) -> str:
    """``square`` for what tiles divide, else ``odd``."""
    return "odd" if size in ODD or size % 64 else "square"


def cases(sizes: Sequence[int] = SQUARE + ODD) -> Iterator[BenchmarkCase]:
    """float32 products of two square matrices, both inputs of the call."""
    for size in sizes:
        yield BenchmarkCase(family(size), f"matmul {size}", partial(matmul, (size, size, size), size))


__all__ = ["ODD", "SQUARE", "cases", "family"]
