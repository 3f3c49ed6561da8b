"""Edges between two anchors: which may be computed in one dispatch, the first in strips inside the second's blocks.

What lies between them then never leaves the caches. This says where it is possible; whether it pays is measured:
the two apart are another option of the same site (:mod:`autotune.passes.fusion.apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.graph import ops
from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import integer, ints, is_channels_last

Fits = Callable[[Graph, Node], bool]


def may_chain(graph: Graph, first: Node, second: Node) -> bool:
    """Return whether ``second``, an anchor that reads what ``first`` and operations after it make, may
    compute it itself."""
    return any(begins(graph, first) and ends(graph, second) for begins, ends in EDGES.values())


def _is_depthwise(graph: Graph, node: Node) -> bool:
    kind = ops.get(node.op).workload_kind(graph.input_types(node), node.attrs)
    return kind == "depthwise" and _is_image(graph, node)


def _is_pointwise(graph: Graph, node: Node) -> bool:
    """Return whether a node is a 1x1 convolution of every pixel."""
    if node.op != "Conv" or not _is_image(graph, node) or integer(node, "group") != 1:
        return False
    steps, padding = ints(node, "strides"), ints(node, "pads")
    return ints(node, "kernel_shape") == (1, 1) and set(steps) == {1} and not any(padding)


def _is_convolution(graph: Graph, node: Node) -> bool:
    return node.op == "Conv" and _is_image(graph, node) and integer(node, "group") == 1


def _is_pool(graph: Graph, node: Node) -> bool:
    """Return whether a node is a pool by windows that do not cover the image."""
    return node.op in ("MaxPool", "AveragePool") and _is_image(graph, node)


def _is_maximum_along(axis: int) -> Fits:
    """Return whether a node is a pool that takes maxima along one axis of an image."""

    def fits(graph: Graph, node: Node) -> bool:
        return node.op == "MaxPool" and _is_image(graph, node) and ints(node, "kernel_shape")[1 - axis] == 1

    return fits


def _has_operator(*names: str) -> Fits:
    return lambda _, node: node.op in names


def _is_image(graph: Graph, node: Node) -> bool:
    return graph.type_of(node.inputs[0]).rank == 4 and is_channels_last(node)


EDGES: Mapping[str, tuple[Fits, Fits]] = {
    "1x1 convolution, then depthwise": (_is_pointwise, _is_depthwise),
    "depthwise, then 1x1 convolution": (_is_depthwise, _is_pointwise),
    "convolution, then pool": (_is_convolution, _is_pool),
    "maxima along rows, then along columns": (_is_maximum_along(1), _is_maximum_along(0)),
    "Winograd's first transform, then products": (_has_operator("WinogradInput"), _has_operator("MatMul")),
    "products, then Winograd's last transform": (_has_operator("MatMul"), _has_operator("WinogradOutput")),
}
"""The operators at both ends of an edge."""

LONGEST = 3
"""Anchors of a chain: each that is computed in strips adds rows that its neighbours compute too."""

LEAST_BYTES = 1 << 20
"""Of what lies between two anchors of a model. Less stays in a second cache by itself: 600 kB made no difference."""


__all__ = ["EDGES", "LEAST_BYTES", "LONGEST", "may_chain"]
