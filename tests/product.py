"""The smallest models that jobs tune and place: a product of matrices, and two convolutions."""

from __future__ import annotations

from pathlib import Path

from autotune.frontends.model_builder import ModelBuilder


def write_product(path: Path, rows: int = 8) -> str:
    """Write the model of a product of so many rows to a file; return its name, as commands take it."""
    b = ModelBuilder("product")
    b.node("MatMul", [b.input("x", (rows, 16)), b.normal("w", (16, 8), 1.0)], "y")
    path.write_bytes(b.finish(["y"]).SerializeToString())
    return str(path)


def write_convolutions(path: Path) -> str:
    """Write a model of two convolutions, one behind the other; return its name."""
    b = ModelBuilder("two")
    first = b.node("Conv", [b.input("x", (1, 3, 16, 16)), b.normal("v", (8, 3, 3, 3), 0.2)], "first")
    b.node("Conv", [b.node("Relu", [first], "middle"), b.normal("w", (8, 8, 3, 3), 0.2)], "y")
    path.write_bytes(b.finish(["y"]).SerializeToString())
    return str(path)


__all__ = ["write_convolutions", "write_product"]
