"""Attention written as separate operators becomes one.

MatMul(q, k^T), scaled by a number, masked by an Add or a Where, Softmax along the keys, MatMul with the
values; after the softmax a Where may put 0 into the rows of which the mask keeps nothing. Keys and values
that were expanded to the heads that share them are read where they lie. As one region the scores never leave
the caches near a core. Whether that, blocks of keys or rows, or the separate operators are faster is decided
for each region, as for all algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Attr, Graph, Node
from autotune.graph.ops.attention import FEW_KEYS, FEW_QUERIES
from autotune.passes.attributes import integer
from autotune.passes.base import GraphPass
from autotune.passes.canonical.attention_heads import unexpanded, with_shared_heads
from autotune.passes.canonical.attention_mask import AttentionMask, is_row_guard, mask_of, nan_guarded
from autotune.passes.canonical.rearrange import rearranged, shortened
from autotune.passes.rewriter import Rewriter, rewrite

_DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Attention(GraphPass):
    """Convert chains of MatMul, scale, mask, Softmax, MatMul whose values in between have no other reader."""

    name: ClassVar[str] = "attention"

    def apply(self, graph: Graph) -> Graph:
        consumers, producers = graph.consumers(), graph.producers()
        found: dict[str, _Chain] = {}
        for node in graph.nodes:
            chain = _chain(graph, producers, consumers, node) if node.op == "MatMul" else None
            if chain is not None:
                found[node.outputs[0]] = chain
        return rewrite(graph, lambda rewriter, node: _convert(rewriter, node, found)) if found else graph


@dataclass(frozen=True)
class _Chain:
    """Operands of an attention; ``keys`` are transposed: [..., d, n]. ``guarded``: rows without a key give 0."""

    q: str
    keys: str
    v: str
    scale: float
    mask: AttentionMask
    guarded: bool


@dataclass
class _ChainReader:
    """Reading a chain backwards from the softmax: what was found between it and the scores."""

    graph: Graph
    producers: Mapping[str, Node]
    consumers: Mapping[str, tuple[Node, ...]]
    scale: float = 1.0
    mask: str | None = None
    inverted: bool = False
    fill: float = float("-inf")

    def only(self, value: str) -> Node | None:
        """Return the node that makes a value which has one reader and is no output."""
        if value in self.graph.outputs or len(self.consumers.get(value, ())) != 1:
            return None
        return self.producers.get(value)

    def scores(self, value: str) -> Node | None:
        """Return the product of queries and keys behind a softmax's operand, None if something else is there."""
        node = self.only(value)
        if node is not None and node.op in ("Add", "Where"):
            value = self._masked(node)
            node = self.only(value) if value else None
        while node is not None and node.op in ("Mul", "Div"):
            value = self._scaled(node)
            node = self.only(value) if value else None
        return node if node is not None and node.op == "MatMul" else None

    def unscaled(self, value: str) -> str:
        """Return the operand behind products with numbers, which are noted as scale."""
        node = self.only(value)
        while node is not None and node.op in ("Mul", "Div"):
            before = self._scaled(node)
            if not before:
                break
            value, node = before, self.only(before)
        return value

    def _masked(self, node: Node) -> str:
        """Return the operand of an Add or a Where that leads to the scores, once the mask is noted; "" if none does."""
        shape = self.graph.type_of(node.outputs[0]).shape
        if node.op == "Add":
            for number, value in enumerate(node.inputs):
                if self._leads_to_scores(value) and self.graph.type_of(value).shape == shape:
                    self.mask = node.inputs[1 - number]
                    return value
            return ""
        condition, *sides = node.inputs
        for number, value in enumerate(sides):
            fill = self._number(sides[1 - number])
            if fill is not None and self._leads_to_scores(value) and self.graph.type_of(value).shape == shape:
                self.mask, self.fill, self.inverted = condition, fill, number == 1
                return value
        return ""

    def _leads_to_scores(self, value: str) -> bool:
        node = self.only(value)
        return node is not None and node.op in ("MatMul", "Mul", "Div")

    def _scaled(self, node: Node) -> str:
        """Return the operand of a Mul or Div by a number, once the scale is noted; "" if it is by something else."""
        for number, value in enumerate(node.inputs):
            factor = self._number(node.inputs[1 - number])
            if factor is None or (node.op == "Div" and (number == 1 or factor == 0)):
                continue
            if self.graph.type_of(value).shape != self.graph.type_of(node.outputs[0]).shape:
                continue
            self.scale = self.scale / factor if node.op == "Div" else self.scale * factor
            return value
        return ""

    def _number(self, value: str) -> float | None:
        array = self.graph.constants.get(value)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _chain(
    graph: Graph,
    producers: Mapping[str, Node],
    consumers: Mapping[str, tuple[Node, ...]],
    node: Node,
) -> _Chain | None:
    """Return the attention that ends in a MatMul, or None."""
    walk = _ChainReader(graph, producers, consumers)
    softmax = walk.only(node.inputs[0])
    guard = softmax if softmax is not None and softmax.op == "Where" else None
    if guard is not None:
        softmax = nan_guarded(graph, producers, consumers, guard) or walk.only(guard.inputs[2])
    if softmax is None or softmax.op != "Softmax" or node.inputs[0] == node.inputs[1]:
        return None
    rank = graph.type_of(softmax.outputs[0]).rank
    if rank < 2 or integer(softmax, "axis") != rank - 1:
        return None
    product = walk.scores(softmax.inputs[0])
    if product is None:
        return None
    q, keys = (walk.unscaled(value) for value in product.inputs)
    v = node.inputs[1]
    shapes = [graph.type_of(value).shape for value in (q, keys, v)]
    lead = graph.type_of(softmax.outputs[0]).shape[:-2]
    plain = shapes[0][:-2] == lead and all(_shares(shape, lead) for shape in (shapes[1], shapes[2]))
    if not plain or graph.type_of(q).dtype not in _DTYPES or 0 in (*shapes[0], *shapes[1], *shapes[2]):
        return None
    checked = guard is None or nan_guarded(graph, producers, consumers, guard) is softmax
    if guard is not None and not (checked or is_row_guard(graph, producers, guard, walk.mask)):
        return None
    shape = graph.type_of(softmax.outputs[0]).shape
    mask = mask_of(graph, producers, walk.mask, shape, walk.inverted, walk.fill)
    return _Chain(q, keys, v, walk.scale, mask, guard is not None and mask.value is not None)


def _shares(shape: Sequence[int], lead: Sequence[int]) -> bool:
    """Return whether keys or values of a shape are there for each of the leading dimensions, or one for several."""
    own = shape[:-2]
    return len(own) == len(lead) and all(a in (1, b) for a, b in zip(own, lead, strict=True))


def _convert(rewriter: Rewriter, node: Node, found: Mapping[str, _Chain]) -> bool:
    chain = found.get(node.outputs[0])
    if chain is None:
        return False
    q, keys, v = (rewriter.current(value) for value in (chain.q, chain.keys, chain.v))
    mask, flags = chain.mask, None
    if mask.value is not None:
        value = unexpanded(rewriter, rewriter.current(mask.value))
        flags = rewriter.emit("Not", [value], name=f"{value}.kept") if mask.inverted else value
    operands = (q, _untransposed(rewriter, keys), v)
    inputs = with_shared_heads(rewriter, operands, flags, causal=mask.first is not None)
    attrs: dict[str, Attr] = {"scale": chain.scale, "fill": mask.fill, "zero_empty": int(chain.guarded)}
    if mask.first is not None:
        attrs |= {"causal": 1, "first": mask.first}
    rows, count = (rewriter.type_of(each).shape[-2] for each in inputs[:2])
    if rows <= FEW_QUERIES and count >= 2 * FEW_KEYS and _is_passed_over(rewriter, flags, mask):
        attrs["block"] = FEW_KEYS
    shape = rewriter.graph.type_of(node.outputs[0]).shape
    if rewriter.type_of(inputs[0]).shape[:-2] == shape[:-2]:
        rewriter.become(node.outputs[0], "Attention", inputs, attrs)
        return True
    grouped = rewriter.emit("Attention", inputs, attrs, name=f"{node.outputs[0]}.groups")
    rewriter.become(node.outputs[0], "Reshape", [grouped], {"shape": shape})
    return True


def _is_passed_over(rewriter: Rewriter, flags: str | None, mask: AttentionMask) -> bool:
    """Return whether blocks of keys that a mask, known when the model runs, keeps nothing of are passed over."""
    known = flags is None or rewriter.constant_of(flags) is not None
    return not known and rewriter.type_of(str(flags)).dtype == "bool" and mask.fill == float("-inf")


def _untransposed(rewriter: Rewriter, keys: str) -> str:
    """Return keys [..., n, d] from keys [..., d, n], joined with what rearranged them before."""
    rank = rewriter.type_of(keys).rank
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    source, steps = shortened(rewriter, keys, ("Transpose", swapped))
    return rearranged(rewriter, source, steps, f"{keys}.rows")


__all__ = ["Attention"]
