"""The worker threads of a model: all cores, half of them, or one.

Small models are faster on fewer workers, which meet after every dispatch; and two workers on the hardware threads of
one core share its vector units.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.compiler.request import CompileRequest
from autotune.compiler.sites.kind import SiteKind
from autotune.graph.ir import Graph
from autotune.target import Target


def _options(request: CompileRequest, graph: Graph) -> tuple[str, ...]:
    target = request.one_target()
    if target.group_items:
        return ()  # a device uses all of its compute units
    return tuple(dict.fromkeys(str(max(1, number)) for number in (target.threads, target.threads // 2, 1)))


KIND = SiteKind(
    "threads",
    _options,
    lambda request, option: replace(request, threads=int(option)),
    lambda request: request.threads is not None or isinstance(request.target, Target),
    turn=1,
)

__all__ = ["KIND"]
