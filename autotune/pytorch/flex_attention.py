"""FlexAttention as plain operators: scores, the caller's changes to them, a softmax and a product.

A block mask only says which blocks of scores need not be computed; which scores count says its ``mask_mod``, and that
is kept of it (Dong et al. 2024, Flex Attention).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx
from torch._higher_order_ops.flex_attention import flex_attention, math_attention

_BLOCK_MASK = 4
"""The argument of a call that is a block mask; its last element is the mask."""
_LOOPS = "torch._functorch.predispatch"


def has_flex_attention(graph: fx.Graph) -> bool:
    """Return whether a graph has a call of FlexAttention."""
    return any(node.target is flex_attention for node in graph.nodes)


def write_plainly(graph: fx.Graph) -> None:
    """Replace calls of FlexAttention, and remove what made their block masks."""
    masks = set[fx.Node]()
    for node in graph.nodes:
        if node.target is flex_attention:
            mask = node.args[_BLOCK_MASK]
            masks |= _ancestors([each for each in mask[:-1] if isinstance(each, fx.Node)])
            before, behind = node.args[:_BLOCK_MASK], node.args[_BLOCK_MASK + 1 :]
            node.args = (*before, (None,) * (len(mask) - 1) + (mask[-1],), *behind)
            node.target = plain_attention
    _remove(graph, masks)


def plain_attention(*arguments: Any) -> Any:
    """Return what FlexAttention returns, by PyTorch's own definition of it."""
    return math_attention(*arguments)


def _ancestors(of: Iterable[fx.Node]) -> set[fx.Node]:
    found, nodes = set[fx.Node](), list(of)
    while nodes:
        node = nodes.pop()
        if node not in found and node.op.startswith("call_"):
            found.add(node)
            nodes += node.all_input_nodes
    return found


def _remove(graph: fx.Graph, masks: set[fx.Node]) -> None:
    """Remove nodes that nothing reads, of those in ``masks`` and those that write to them or loop around them."""
    order: dict[Any, int] = {node: place for place, node in enumerate(graph.nodes)}
    places = [order[node] for node in masks]
    for node in reversed(list(graph.nodes)):
        inside = bool(places) and min(places) <= order[node] <= max(places) + 2
        loops = inside and getattr(node.target, "__module__", "") == _LOOPS
        writes = any(each in masks for each in node.all_input_nodes)
        if node.op.startswith("call_") and not node.users and (node in masks or loops or writes):
            masks |= _ancestors(node.all_input_nodes)
            graph.erase_node(node)


__all__ = ["has_flex_attention", "write_plainly"]
