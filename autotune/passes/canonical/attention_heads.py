"""Heads of queries that share keys and values: what was expanded to all of them is read before that."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.passes.rewriter import Rewriter

_Shape = tuple[int, ...]


def unexpanded(rewriter: Rewriter, value: str) -> str:
    """Return a value as it was before it was expanded, where it broadcasts by itself."""
    node = rewriter.producer(value)
    while node is not None and node.op == "Expand":
        value = node.inputs[0]
        node = rewriter.producer(value)
    return value


def with_shared_heads(
    rewriter: Rewriter, operands: Sequence[str], mask: str | None, *, causal: bool = False
) -> list[str]:
    """Return operands of an attention: queries, keys and values, and its mask if there is one.

    Keys and values that were both repeated for groups of heads are read before that. The queries, and the result, have
    an axis for the groups then, and one for the heads of each; those of a single query are its rows, unless it is
    ``causal``.
    """
    q, k, v = operands
    plain = [q, k, v, *(() if mask is None else (mask,))]
    lead, rows = rewriter.type_of(q).shape[:-2], rewriter.type_of(q).shape[-2:]
    keys, values = (_before_repeat(rewriter, operand) for operand in (k, v))
    if keys is None or values is None or keys[1] != values[1]:
        return plain
    apart = keys[1]
    if mask is not None:
        shape = rewriter.type_of(mask).shape
        own = _apart((1,) * (len(lead) - len(shape[:-2])) + shape[:-2], lead, apart)
        if own is None:
            return plain
        if len(shape) > 2:
            mask = _reshaped(rewriter, mask, (*own, *shape[-2:]))
    if (
        rows[0] == 1
        and not causal
        and all(rewriter.type_of(each).shape[-3] == 1 for each in (keys[0], values[0]))
    ):
        return _heads_as_rows(rewriter, q, keys[0], values[0], mask, apart)
    queries = _reshaped(rewriter, q, (*apart, *rows))
    return [queries, keys[0], values[0], *(() if mask is None else (mask,))]


def _heads_as_rows(
    rewriter: Rewriter, q: str, keys: str, values: str, mask: str | None, apart: _Shape
) -> list[str]:
    """Return operands in which one query of each head of a group is a row: keys are read once for all of them."""
    found = [_reshaped(rewriter, q, (*apart, rewriter.type_of(q).shape[-1]))]
    for value in (keys, values):
        *lead, _, count, size = rewriter.type_of(value).shape
        found.append(_reshaped(rewriter, value, (*lead, count, size)))
    if mask is None:
        return found
    shape = rewriter.type_of(mask).shape
    return [*found, _reshaped(rewriter, mask, (*shape[:-2], shape[-1])) if len(shape) > 2 else mask]


def _before_repeat(rewriter: Rewriter, value: str) -> tuple[str, _Shape] | None:
    """Return keys or values [..., groups, 1, n, d] that were repeated along leading axes, and these axes after it."""
    shape = rewriter.type_of(value).shape
    node = rewriter.producer(value)
    if node is not None and node.op == "Reshape":
        value = node.inputs[0]
        node = rewriter.producer(value)
    if node is None or node.op not in ("Expand", "Tile"):
        return None
    whole, source = rewriter.type_of(value).shape, node.inputs[0]
    own = rewriter.type_of(source).shape
    own = (1,) * (len(whole) - len(own)) + own
    repeated = all(a in (1, b) for a, b in zip(own[:-2], whole[:-2], strict=True))
    if not repeated or own[-2:] != whole[-2:] or whole[-2:] != shape[-2:]:
        return None
    return _reshaped(rewriter, source, own), whole[:-2]


def _apart(own: _Shape, lead: _Shape, apart: _Shape) -> _Shape | None:
    """Return the leading axes of a mask where those of the queries are cut to ``apart``; None if some
    are merged there."""
    found, rest = list[int](), list(apart)
    for extent, full in zip(own, lead, strict=True):
        taken: list[int] = []
        while rest and (math.prod(taken) < full or rest[0] == 1):
            taken.append(rest.pop(0))
        if math.prod(taken) != full:
            return None
        found += taken if extent == full else [1] * len(taken)
    return tuple(found) if not rest else None


def _reshaped(rewriter: Rewriter, value: str, shape: _Shape) -> str:
    return value if rewriter.type_of(value).shape == shape else rewriter.reshape(value, *shape)


__all__ = ["unexpanded", "with_shared_heads"]
