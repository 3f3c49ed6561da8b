"""Causal attention by blocks of query rows, each of which reads only the keys that one of its rows keeps.

With p blocks (p + 1) / 2p of the scores are computed instead of all of them. Queries and keys are sliced and
the results joined in place, so that a block is a dispatch and nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from autotune.graph.ir import ABSENT, Attr, Graph, Node
from autotune.passes.attributes import integer
from autotune.passes.base import REORDERED_ATTENTION, Algorithm
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class CausalRows(Algorithm):
    """Split every causal Attention by its rows into ``parts``, of at least ``rows`` rows each."""

    name: ClassVar[str] = "causal_rows"
    parts: int = 8
    rows: int = 32
    error = REORDERED_ATTENTION

    @property
    def label(self) -> str:
        """``causal attention in 8 parts`` and so on."""
        return f"causal attention in {self.parts} parts"

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if node.op != "Attention" or not integer(node, "causal") or integer(node, "block"):
            return False
        queries, keys = (rewriter.graph.type_of(value).shape[-2] for value in node.inputs[:2])
        parts = min(self.parts, queries // self.rows)
        bounds = [queries * part // parts for part in range(parts + 1)] if parts else []
        rows = [_QueryRows.of(a, b, keys, integer(node, "first")) for a, b in pairwise(bounds)]
        if len(rows) < 2 or any(part.keys <= 0 for part in rows) or rows[0].keys == keys:
            return False
        results = [_part(rewriter, node, part) for part in rows]
        rank = rewriter.graph.type_of(node.outputs[0]).rank
        rewriter.become(node.outputs[0], "Concat", results, {"axis": rank - 2})
        return True


@dataclass(frozen=True)
class _QueryRows:
    """Rows ``begin`` to ``end``, which read ``keys`` keys; the first of them stands at position ``first``."""

    begin: int
    end: int
    keys: int
    first: int

    @classmethod
    def of(cls, begin: int, end: int, keys: int, first: int) -> _QueryRows:
        return cls(begin, end, min(keys, end + first), begin + first)


def _part(rewriter: Rewriter, node: Node, rows: _QueryRows) -> str:
    """Return the attention of a block of rows."""
    q, k, v, *masks = (value if value == ABSENT else rewriter.current(value) for value in node.inputs)
    (output,) = node.outputs
    inputs = [
        _slice(rewriter, q, -2, rows.begin, rows.end),
        _slice(rewriter, k, -2, 0, rows.keys),
        _slice(rewriter, v, -2, 0, rows.keys),
    ]
    for mask in masks:
        part = _slice(rewriter, mask, -2, rows.begin, rows.end)
        inputs.append(_slice(rewriter, part, -1, 0, rows.keys))
    attrs: dict[str, Attr] = {**node.attrs, "first": rows.first}
    return rewriter.emit("Attention", inputs, attrs, name=f"{output}.rows")


def _slice(rewriter: Rewriter, value: str, axis: int, start: int, end: int) -> str:
    """Return a part of a value along an axis; all of it where the axis is broadcast or the part is everything."""
    shape = rewriter.type_of(value).shape
    if len(shape) < -axis or shape[axis] == 1 or (start == 0 and end == shape[axis]):
        return value
    attrs: dict[str, Attr] = {"starts": (start,), "ends": (end,), "axes": (len(shape) + axis,)}
    return rewriter.emit("Slice", [value], attrs, name=f"{value}.part")


__all__ = ["CausalRows"]
