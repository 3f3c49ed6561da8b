"""The smallest model that jobs tune: a product of matrices."""

from __future__ import annotations

from pathlib import Path

from autotune.frontends.model_builder import ModelBuilder


def write_product(path: Path, rows: int = 8) -> str:
    """Write the model of a product of so many rows to a file; return its name, as commands take it."""
    b = ModelBuilder("product")
    b.node("MatMul", [b.input("x", (rows, 16)), b.normal("w", (16, 8), 1.0)], "y")
    path.write_bytes(b.finish(["y"]).SerializeToString())
    return str(path)


__all__ = ["write_product"]
