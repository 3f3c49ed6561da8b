"""Typed access to attributes of nodes, which are complete (``OpDef.canonical``) wherever a pass sees them."""

from __future__ import annotations

from autotune.errors import GraphError
from autotune.graph.ir import Node


def ints(node: Node, key: str) -> tuple[int, ...]:
    """Return a tuple attribute."""
    value = node.attrs.get(key)
    if not isinstance(value, tuple):
        raise GraphError(f"node {node.name!r} ({node.op}): {key} = {value!r} is not a tuple of ints")
    return value


def integer(node: Node, key: str) -> int:
    """Return an int attribute."""
    value = node.attrs.get(key)
    if not isinstance(value, int):
        raise GraphError(f"node {node.name!r} ({node.op}): {key} = {value!r} is not an int")
    return value


def number(node: Node, key: str) -> float:
    """Return a float attribute."""
    value = node.attrs.get(key)
    if not isinstance(value, (int, float)):
        raise GraphError(f"node {node.name!r} ({node.op}): {key} = {value!r} is not a number")
    return float(value)


def is_channels_last(node: Node) -> bool:
    """Return whether the node's layout attribute says NHWC."""
    return node.attrs.get("layout", "NCHW") == "NHWC"


__all__ = ["integer", "ints", "is_channels_last", "number"]
