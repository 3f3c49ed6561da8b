"""Operators of the graph IR: one file a family, each operator in one place."""

from autotune.graph.ops.registry import (
    FAMILIES,
    OPTIONAL,
    REQUIRED,
    OpDef,
    get,
    names,
    register,
    supported,
)

__all__ = ["FAMILIES", "OPTIONAL", "REQUIRED", "OpDef", "get", "names", "register", "supported"]
