"""The layout of convolutions and pools: channels last, or as the model has them.

With channels last a vector holds channels, whatever the size of an image; where a model has few channels and large
images, or many transposes around its convolutions, its own layout may be faster.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.compiler.request import CompileRequest
from autotune.compiler.sites.kind import SiteKind
from autotune.graph import ops
from autotune.graph.ir import Graph
from autotune.passes.attributes import is_channels_last
from autotune.passes.layout.convert_layout import LAYOUTS


def _options(request: CompileRequest, graph: Graph) -> tuple[str, ...]:
    spatial = (node for node in graph.nodes if "layout" in ops.get(node.op).attributes)
    return LAYOUTS if any(not is_channels_last(node) for node in spatial) else ()


KIND = SiteKind(
    "layout",
    _options,
    lambda request, option: replace(request, layout=option),
    lambda request: request.layout != CompileRequest.layout,
    turn=2,
)

__all__ = ["KIND"]
