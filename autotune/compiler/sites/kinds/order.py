"""The order of dispatches: alternating between branches, so that workers have something to do, or as in the model.

The model's own order keeps what a dispatch wrote in the caches for the next one, and takes the least memory.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import cast, get_args

from autotune.compiler.request import CompileRequest
from autotune.compiler.sites.kind import SiteKind
from autotune.graph.ir import Graph
from autotune.passes.memory.dispatch_order import Aim


def _options(request: CompileRequest, graph: Graph) -> tuple[str, ...]:
    if request.one_target().threads == 1 or _is_chain(graph):
        return ()  # one worker has nobody to run alongside, and a chain has one order
    return tuple(sorted(get_args(Aim), key=lambda aim: aim != request.preference.aim))


def _is_chain(graph: Graph) -> bool:
    """Return whether each node reads what the one before it computes."""
    return all(set(node.inputs) & set(before.outputs) for before, node in pairwise(graph.nodes))


KIND = SiteKind(
    "order",
    _options,
    lambda request, option: replace(request, order=cast("Aim", option)),
    lambda request: request.order is not None,
    turn=3,
)

__all__ = ["KIND"]
