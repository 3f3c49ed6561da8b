"""Typed access to attributes of nodes."""

from __future__ import annotations

from autotune.errors import GraphError
from autotune.graph.ir import Node


def ints(node: Node, key: str) -> tuple[int, ...]:
    """A tuple attribute, empty if it is absent."""
    value = node.attrs.get(key, ())
    if not isinstance(value, tuple):
        raise GraphError(f"node {node.name!r} ({node.op}): {key} = {value!r} is not a tuple of ints")
    return value


def integer(node: Node, key: str, default: int | None = None) -> int:
    """An int attribute."""
    value = node.attrs.get(key, default)
    if not isinstance(value, int):
        raise GraphError(f"node {node.name!r} ({node.op}): {key} = {value!r} is not an int")
    return value


def number(node: Node, key: str, default: float) -> float:
    """A float attribute."""
    value = node.attrs.get(key, default)
    if not isinstance(value, (int, float)):
        raise GraphError(f"node {node.name!r} ({node.op}): {key} = {value!r} is not a number")
    return float(value)


def permutation(node: Node, rank: int) -> tuple[int, ...]:
    """The axes of a Transpose; reversed if it gives none."""
    return ints(node, "perm") or tuple(reversed(range(rank)))


def is_channels_last(node: Node) -> bool:
    """Whether the node's layout attribute says NHWC."""
    return node.attrs.get("layout", "NCHW") == "NHWC"


__all__ = ["integer", "ints", "is_channels_last", "number", "permutation"]
