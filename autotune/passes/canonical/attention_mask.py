"""Masks of attention scores: keys that are kept by their place, and parts that are only known at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.passes.attributes import integer, ints


@dataclass(frozen=True)
class AttentionMask:
    """``value`` is added to the scores, or a bool that keeps them and puts ``fill`` elsewhere (``inverted``: one of
    what goes); None where there is none. With ``first``, key j is kept for query i only where j <= i + first.
    """

    value: str | None
    inverted: bool = False
    fill: float = float("-inf")
    first: int | None = None


def mask_of(
    graph: Graph,
    producers: Mapping[str, Node],
    value: str | None,
    shape: Sequence[int],
    inverted: bool,
    fill: float,
) -> AttentionMask:
    """Return the mask ``value`` of scores [..., m, n].

    A constant that is causal becomes a rule, also as a term of a sum; a choice between 0 and minus infinity its
    condition.
    """
    if value is None:
        return AttentionMask(None)
    if _is_flag(graph, value):
        flags = graph.constants.get(value)
        known = flags is not None and fill <= _lowest(np.dtype(np.float32))
        kept = (~flags if inverted else flags) if known and flags is not None else None
        return _by_place(AttentionMask(value, inverted, fill), kept, shape)
    found = _by_place(AttentionMask(value), _kept(graph, value), shape)
    producer = producers.get(value)
    if found.value is not None and producer is not None and producer.op == "Add":
        found = _without_rule(graph, producer, found, shape)
        producer = None if found.value is None else producers.get(found.value)
    if producer is not None and producer.op == "Where" and _is_choice(graph, producer):
        return replace(found, value=producer.inputs[0])
    return found


def _without_rule(graph: Graph, add: Node, mask: AttentionMask, shape: Sequence[int]) -> AttentionMask:
    """Return the other term of a sum with a constant that follows a rule; exactly minus infinity drops
    whatever is added."""
    for term, other in zip(add.inputs, reversed(add.inputs), strict=True):
        ruled = _by_place(AttentionMask(term), _kept(graph, term, exact=True), shape)
        if ruled.value is None:
            return replace(ruled, value=other)
    return mask


def is_row_guard(graph: Graph, producers: Mapping[str, Node], guard: Node, mask: str | None) -> bool:
    """Return whether a Where puts 0 exactly into the rows of which an added mask keeps nothing: its maximum is -inf."""
    condition, zero, _ = guard.inputs
    equal = producers.get(condition)
    if (
        mask is None
        or _is_flag(graph, mask)
        or _number(graph, zero) != 0
        or equal is None
        or equal.op != "Equal"
    ):
        return False
    tops = [producers.get(v) for v in equal.inputs if _number(graph, v) != -np.inf]
    top = tops[0] if len(tops) == 1 else None
    if top is None or top.op != "ReduceMax":
        return False
    rank = graph.type_of(mask).rank
    along = ints(top, "axes") == (rank - 1,)
    return along and top.inputs[0] == mask and integer(top, "keepdims") == 1


def nan_guarded(
    graph: Graph, producers: Mapping[str, Node], consumers: Mapping[str, Sequence[Node]], guard: Node
) -> Node | None:
    """Return the softmax s of Where(IsNaN(s), 0, s) if nothing else reads it; None if the Where is something else.

    That is how PyTorch's exporter puts 0 into rows of which nothing is kept. Rows with a NaN of the model's input are 0
    in it too, where PyTorch itself and what is made of it here have NaN.
    """
    condition, zero, value = guard.inputs
    check, softmax = producers.get(condition), producers.get(value)
    if check is None or check.op != "IsNaN" or check.inputs != (value,) or softmax is None:
        return None
    readers = {reader.outputs[0] for reader in consumers[value]}
    apart = {value, condition}.isdisjoint(graph.outputs) and len(consumers[condition]) == 1
    alone = apart and readers == {check.outputs[0], guard.outputs[0]}
    return softmax if alone and _number(graph, zero) == 0 else None


def _is_flag(graph: Graph, value: str) -> bool:
    return graph.type_of(value).dtype == "bool"


def _number(graph: Graph, value: str) -> float | None:
    array = graph.constants.get(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _is_choice(graph: Graph, where: Node) -> bool:
    """Return whether a Where says 0 or minus infinity, as an added form of its condition."""
    _, kept, dropped = where.inputs
    same = graph.type_of(where.inputs[0]).shape == graph.type_of(where.outputs[0]).shape
    return same and _number(graph, kept) == 0 and _number(graph, dropped) == -np.inf


def _kept(graph: Graph, value: str, exact: bool = False) -> Array | None:
    """Return the scores that an added constant keeps; None if it is unknown or does anything but keep and drop."""
    mask = graph.constants.get(value)
    if mask is None:
        return None
    kept = np.asarray(mask == 0)
    dropped = mask <= (-np.inf if exact else _lowest(mask.dtype))
    return kept if np.all(kept | dropped) else None


def _lowest(dtype: np.dtype[Any]) -> float:
    """Return the largest value that stands for minus infinity: models also write the lowest number, or half of it."""
    return float(np.finfo(dtype).min) / 2


def _by_place(mask: AttentionMask, kept: Array | None, shape: Sequence[int]) -> AttentionMask:
    """Return the mask as a rule where what it keeps follows one: every key, or those up to the query's place."""
    if kept is None or kept.ndim < 1:
        return mask
    if kept.all():
        return AttentionMask(None)
    first = int(kept.reshape(-1, kept.shape[-1])[0].sum()) - 1
    if kept.ndim < 2 or kept.shape[-2:] != tuple(shape[-2:]) or first < 0:
        return mask
    follows = np.all(kept == np.tri(shape[-2], shape[-1], k=first, dtype=np.bool_))
    return AttentionMask(None, first=first) if follows else mask


__all__ = ["AttentionMask", "is_row_guard", "mask_of", "nan_guarded"]
