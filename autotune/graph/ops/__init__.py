"""Operators of the graph IR: one file a family, each operator in one place."""

from autotune.graph.ops.definition import Attribute, OpDef
from autotune.graph.ops.registry import FAMILIES, get, names, register, supported

__all__ = ["FAMILIES", "Attribute", "OpDef", "get", "names", "register", "supported"]
