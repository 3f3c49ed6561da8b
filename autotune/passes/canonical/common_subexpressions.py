"""Compute equal things once: nodes of equal operator, attributes and inputs; equal constants."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import ABSENT, Array, Graph, Node
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter


@dataclass(frozen=True)
class CommonSubexpressions(GraphPass):
    """Merge nodes that compute the same values.

    Constants of equal bytes are merged up to ``max_constant_bytes``; hashing larger ones costs more
    than a second copy does.
    """

    name: ClassVar[str] = "common_subexpressions"
    max_constant_bytes: int = 1 << 16

    def apply(self, graph: Graph) -> Graph:
        rewriter = Rewriter(graph)
        self._merge_constants(rewriter)
        seen: dict[object, Node] = {}
        for node in rewriter.walk():
            current = node.replace(
                inputs=tuple(v if v == ABSENT else rewriter.current(v) for v in node.inputs)
            )
            present = tuple(output != ABSENT for output in node.outputs)
            key = (node.op, current.inputs, tuple(node.attrs.items()), present)
            equal = seen.setdefault(key, node)
            if equal is node or set(node.outputs) & set(graph.outputs):
                rewriter.keep(node)
                continue
            for old, new in zip(node.outputs, equal.outputs, strict=True):
                if old != ABSENT:
                    rewriter.replace(old, new)
        return rewriter.finish()

    def _merge_constants(self, rewriter: Rewriter) -> None:
        first: dict[object, str] = {}
        for name, array in rewriter.graph.constants.items():
            if array.nbytes <= self.max_constant_bytes and name not in rewriter.graph.outputs:
                equal = first.setdefault(_content(array), name)
                if equal != name:
                    rewriter.replace(name, equal)


def _content(array: Array) -> object:
    return str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).digest()


__all__ = ["CommonSubexpressions"]
