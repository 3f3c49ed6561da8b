"""One option of a graph of one dispatch."""

from __future__ import annotations

from autotune.compiler import divide
from autotune.graph.ir import Graph
from autotune.passes.options import Option, options_of


def named_option(graph: Graph, name: str) -> Option:
    (dispatch,) = divide(graph).dispatches
    (found,) = (option for option in options_of(dispatch.workload) if option.name == name)
    return found
