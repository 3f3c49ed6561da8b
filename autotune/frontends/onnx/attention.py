"""Attention, MultiHeadAttention and GroupQueryAttention of domain com.microsoft, as products around a softmax.

Values inside are [batch, heads, places, size]. What follows is recognised as one region like any other attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.frontends.onnx.foreign import ForeignNode, Rule


@dataclass(frozen=True)
class _Scores:
    """The way from scores to weights: ``bias`` is added; ``keep`` are flags of the keys that a query reads."""

    scale: float
    softcap: float = 0.0
    bias: str = ""
    keep: str = ""


def _attend(node: ForeignNode, q: str, k: str, v: str, how: _Scores) -> None:
    """Add softmax(scale * q k^T + bias) v, its heads side by side."""
    scores = node("MatMul", q, node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = node("Mul", scores, node.number(how.scale))
    if how.softcap:
        cap = node.number(how.softcap)
        scores = node("Mul", node("Tanh", node("Div", scores, cap)), cap)
    lowest = node.number(-math.inf)
    if how.bias:  # with the flags in it, so that one mask is added
        mask = node("Where", how.keep, how.bias, lowest) if how.keep else how.bias
        scores = node("Add", scores, mask)
    elif how.keep:
        scores = node("Where", how.keep, scores, lowest)
    y = node("MatMul", node("Softmax", scores, axis=-1), v)
    node.reshape(node("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, -1, result=node.output(0))


def _scale(node: ForeignNode, size: int) -> float:
    return float(node.attrs["scale"] or 1 / math.sqrt(size))


def _heads(node: ForeignNode, value: str, heads: int) -> str:
    """Return [batch, places, hidden] apart by heads."""
    return node("Transpose", node.reshape(value, 0, 0, heads, -1), perm=[0, 2, 1, 3])


def _causal(node: ForeignNode, queries: str, keys: str, first: str, window: int = 0) -> str:
    """Return flags of the keys up to each query, of which the first stands at ``first``; the last ``window`` of them.

    ``first`` is a scalar, or [batch, 1, 1, 1].
    """
    query = node("Add", node("Unsqueeze", node.places(queries), node.constant([1])), first)
    key = node.places(keys)
    keep = node("LessOrEqual", key, query)
    if window > 0:
        keep = node("And", keep, node("Greater", key, node("Sub", query, node.constant(window))))
    return keep


def _joined(node: ForeignNode, past: int, value: str, output: int) -> str:
    """Return keys or values behind those of the past, which are an output."""
    if node.input(past):
        return node("Concat", node.input(past), value, axis=2, result=node.output(output))
    return node("Identity", value, result=node.output(output)) if node.output(output) else value


def _multi_head(node: ForeignNode) -> None:
    heads = int(node.attrs["num_heads"])
    if heads < 1:
        raise node.fail(f"num_heads is {heads}; it is 1 or more")
    node.absent(8, "the length of a past in a buffer")
    node.absent(9, "the indirection of a cache")
    q, k, v, size = _operands(node, heads)
    k, v = _joined(node, 6, k, 1), _joined(node, 7, v, 2)
    queries, keys = node.extent(q, 2), node.extent(k, 2)
    keep = _causal(node, queries, keys, node("Sub", keys, queries)) if node.attrs["unidirectional"] else ""
    terms = [each for each in (node.input(5), _padding(node, keys)) if each]
    bias = node("Add", *terms) if len(terms) == 2 else "".join(terms)
    _attend(node, q, k, v, _Scores(_scale(node, size), 0.0, bias, keep))


def _operands(node: ForeignNode, heads: int) -> tuple[str, str, str, int]:
    """Return queries, keys and values by heads, and the size of a head of queries."""
    shape = node.type(0).shape
    if len(shape) == 5:
        q, k, v = _unpacked(node, 0, heads, 3)
        return q, k, v, shape[4]
    fits = len(shape) == 3 and shape[2] % heads == 0
    node.check(fits, 0, f"[batch, places, hidden] with {heads} heads in hidden")
    if not node.input(1):
        raise node.fail("input 1, the keys, is missing")
    size, rank = shape[2] // heads, node.type(1).rank
    if rank == 5:
        k, v = _unpacked(node, 1, heads, 2)
        return _heads(node, node.input(0), heads), k, v, size
    if not node.input(2) or node.type(2).rank != rank:
        raise node.fail("input 2, the values, is missing or has not the axes of the keys")
    for index in (1, 2):
        other = node.type(index).shape
        by_heads = rank == 4 and other[1] == heads
        node.check(by_heads or (rank == 3 and other[2] % heads == 0), index, f"of {heads} heads")
    if rank == 4:
        node.absent(3, "a bias beside keys by heads")
        return _heads(node, node.input(0), heads), node.input(1), node.input(2), size
    q, k, v = (_heads(node, each, heads) for each in _biased(node))
    return q, k, v, size


def _unpacked(node: ForeignNode, index: int, heads: int, parts: int) -> list[str]:
    """Return the parts of [batch, places, heads, part, size], by heads."""
    node.check(
        node.type(index).shape[2:4] == (heads, parts), index, f"[batch, places, {heads}, {parts}, size]"
    )
    for other in range(index + 1, 4):
        node.absent(other, "beside packed operands")
    apart = node.several("Split", (node.input(index),), [""] * parts, axis=3, num_outputs=parts)
    flat = [node("Squeeze", each, node.constant([3])) for each in apart]
    return [node("Transpose", each, perm=[0, 2, 1, 3]) for each in flat]


def _biased(node: ForeignNode) -> list[str]:
    """Return queries, keys and values of three axes with their parts of the bias."""
    values = [node.input(index) for index in range(3)]
    if not node.input(3):
        return values
    widths = [node.type(index).shape[2] for index in range(3)]
    node.check(node.type(3).shape == (sum(widths),), 3, f"[{sum(widths)}]")
    biases = node.several("Split", (node.input(3), node.constant(widths)), [""] * 3, axis=0)
    return [node("Add", *each) for each in zip(values, biases, strict=True)]


def _padding(node: ForeignNode, keys: str, index: int = 4) -> str:
    """Return what keys that are padding get added: mask_filter_value; "" without a mask."""
    if not node.input(index):
        return ""
    mask, batch = node.type(index), node.type(0).shape[0]
    fits = mask.rank in (2, 3) or mask.shape in ((batch,), (2 * batch,))
    node.check(fits, index, "[batch], [2 batch], [batch, keys] or [batch, queries, keys]")
    if mask.rank == 1:
        keep = _between(node, node.input(index), batch, mask.shape[0], keys)
    else:
        flags = node("Greater", node.input(index), node.constant(0, mask.dtype))
        keep = node("Unsqueeze", flags, node.constant([1, 2] if mask.rank == 2 else [1]))
    return node("Where", keep, node.number(0), node.number(node.attrs["mask_filter_value"]))


def _between(node: ForeignNode, mask: str, batch: int, size: int, keys: str) -> str:
    """Return flags of keys before the end of each sequence and, where they follow the ends, not before its start."""
    bounds = node.cast(node.reshape(mask, -1, batch, 1, 1, 1), "int64")
    if size == batch:
        return node("Less", node.places(keys), node("Squeeze", bounds, node.constant([0])))
    ends, starts = (node("Gather", bounds, node.constant(part), axis=0) for part in range(2))
    return node(
        "And", node("Less", node.places(keys), ends), node("GreaterOrEqual", node.places(keys), starts)
    )


def _projected(node: ForeignNode) -> None:
    """Compute attention of operands that are products of the input and its weights, side by side."""
    x, weights = node.type(0), node.type(1)
    node.check(x.rank == 3 and weights.rank == 2, 0, "[batch, places, hidden], with weights [hidden, all]")
    _attend_to_itself(node, node("MatMul", node.input(0), node.input(1)), 2, 3, 4, 5)


def _attend_to_itself(
    node: ForeignNode, product: str, bias: int, mask: int, past: int, added: int | None
) -> None:
    """Add attention of products, [batch, places, queries and keys and values], by the places of inputs."""
    heads, total = int(node.attrs["num_heads"]), node.type(1).shape[1]
    widths = [*(node.attrs.get("qkv_hidden_sizes") or (total // 3,) * 3)]
    if heads < 1 or len(widths) != 3 or sum(widths) != total or any(width % heads for width in widths):
        raise node.fail(f"weights of {total} columns are not {widths}, of {heads} heads each")
    if node.input(bias):
        node.check(node.type(bias).size == total, bias, f"[{total}]")
        product = node("Add", product, node.input(bias))
    q, k, v = (
        _heads(node, each, heads)
        for each in node.several("Split", (product, node.constant(widths)), [""] * 3, axis=2)
    )
    k, v = _stacked(node, k, v, past)
    queries, keys = node.extent(q, 2), node.extent(k, 2)
    keep = _causal(node, queries, keys, node("Sub", keys, queries)) if node.attrs["unidirectional"] else ""
    terms = [each for each in (node.input(added) if added else "", _padding(node, keys, mask)) if each]
    bias_of_scores = node("Add", *terms) if len(terms) == 2 else "".join(terms)
    _attend(node, q, k, v, _Scores(_scale(node, widths[0] // heads), 0.0, bias_of_scores, keep))


def _stacked(node: ForeignNode, k: str, v: str, past: int) -> tuple[str, str]:
    """Return keys and values behind those of the past, which is one tensor of both, as is the output."""
    if node.input(past):
        before = (node("Gather", node.input(past), node.constant(part), axis=0) for part in range(2))
        k, v = (node("Concat", old, new, axis=2) for old, new in zip(before, (k, v), strict=True))
    if node.output(1):
        both = (node("Unsqueeze", each, node.constant([0])) for each in (k, v))
        node("Concat", *both, axis=0, result=node.output(1))
    return k, v


def _projected_integers(node: ForeignNode) -> None:
    """Compute attention of products of integers, in steps of both operands."""
    node.real = 3
    x, weights = (node("DequantizeLinear", *names, axis=axis) for names, axis in _quantised_operands(node))
    _attend_to_itself(node, node("MatMul", x, weights), 2, 5, 8, None)


def _quantised_operands(node: ForeignNode) -> list[tuple[list[str], int]]:
    """Return integers, scale and zero point of input and weights, and the axis of their scales."""
    return [
        ([name for name in map(node.input, places) if name], axis)
        for places, axis in (((0, 3, 6), 0), ((1, 4, 7), 1))
    ]


def _group_query(node: ForeignNode) -> None:
    heads, groups = int(node.attrs["num_heads"]), int(node.attrs["kv_num_heads"])
    if heads < 1 or groups < 1 or heads % groups:
        raise node.fail(
            f"num_heads is {heads}, kv_num_heads is {groups}: the first is a multiple of the second"
        )
    q, k, v, size = _grouped_operands(node, heads, groups)
    place = _CachePlace.of(node)
    if node.attrs["do_rotary"]:
        q, k = (_rotated(node, each, place) for each in (q, k))
    k, v = place.kept(node, k, 3, 1), place.kept(node, v, 4, 2)
    keep = _causal(node, place.queries, node.extent(k, 2), place.first, node.attrs["local_window_size"])
    how = _Scores(_scale(node, size), node.attrs["softcap"], node.input(10), keep)
    _attend(node, q, _shared(node, k, heads, groups), _shared(node, v, heads, groups), how)


def _grouped_operands(node: ForeignNode, heads: int, groups: int) -> tuple[str, str, str, int]:
    """Return queries, keys and values by heads, and the size of a head."""
    apart = heads if node.input(1) else heads + 2 * groups
    shape = node.type(0).shape
    node.check(len(shape) == 3 and shape[2] % apart == 0, 0, f"[batch, places, {apart} heads]")
    size = shape[2] // apart
    if bool(node.input(1)) != bool(node.input(2)):
        raise node.fail("keys and values are given both, or packed with the queries")
    q, k, v = (node.input(index) for index in range(3))
    if not k:
        widths = node.constant([heads * size, groups * size, groups * size])
        q, k, v = node.several("Split", (q, widths), [""] * 3, axis=2)
    else:
        for index in (1, 2):
            other = node.type(index).shape
            node.check(
                other == (*shape[:2], groups * size), index, f"[{shape[0]}, {shape[1]}, {groups * size}]"
            )
    if bool(node.input(3)) != bool(node.input(4)):
        raise node.fail("keys and values of the past are given both")
    for index in (3, 4) if node.input(3) else ():
        past = node.type(index).shape
        fits = len(past) == 4 and (past[0], past[1], past[3]) == (shape[0], groups, size)
        node.check(fits, index, f"[{shape[0]}, {groups}, places, {size}]")
    node.check(node.type(5).size == shape[0], 5, f"[{shape[0]}]")
    node.check(node.type(6).size == 1, 6, "one number")
    return _heads(node, q, heads), _heads(node, k, groups), _heads(node, v, groups), size


@dataclass(frozen=True)
class _CachePlace:
    """The place of new keys: at ``first`` of a cache, a scalar or [batch, 1, 1, 1].

    Without ``total`` they are put behind the past, else into a cache of so many places.
    """

    queries: str
    first: str
    total: int | None

    @classmethod
    def of(cls, node: ForeignNode) -> _CachePlace:
        """Return the place of a node's keys.

        The number of all places says how long the cache is; where it is known only when the model runs, the past is
        a buffer that is long enough. A single sequence fills it: its length is that number.
        """
        batch, new = node.type(0).shape[:2]
        queries = node.extent(node.input(0), 1)
        past = node.type(3).shape[2] if node.input(3) else 0
        known = node.scope.constant_of(node.input(6))
        total = max(int(known.reshape(-1)[0]), past) if known is not None else past
        if total < new:
            raise node.fail(
                f"{new} new keys do not fit a cache of {total} places; input {node.input(6)!r} says how many"
            )
        if batch == 1 and known is not None and total == past + new:
            before = node.extent(node.input(3), 2) if node.input(3) else node.constant(0)
            return cls(queries, before, None)
        everything = node.cast(node.reshape(node.input(6)), "int64")
        length = node.cast(node.reshape(node.input(5), -1, 1, 1, 1), "int64")
        before = node("Sub", node("Add", length, node.constant(1)), queries)
        prompt = node("Equal", everything, queries)  # shorter sequences are padded behind
        return cls(queries, node("Where", prompt, node.constant(0), before), total)

    def kept(self, node: ForeignNode, value: str, past: int, output: int) -> str:
        """Return the keys or values of a cache with new ones in it, which is an output; in a buffer others stay."""
        if self.total is None:
            return _joined(node, past, value, output)
        starts = node.reshape(self.first, -1)
        return node(
            "TensorScatter",
            self._buffer(node, value, past),
            value,
            starts,
            axis=2,
            result=node.output(output),
        )

    def _buffer(self, node: ForeignNode, value: str, past: int) -> str:
        """Return the past with room for all places."""
        if node.input(past):
            behind = self.total - node.type(past).shape[2] if self.total else 0
            pads = node.constant([0, 0, 0, 0, 0, 0, behind, 0])
            return node("Pad", node.input(past), pads) if behind else node.input(past)
        shape = node("Shape", value)
        sizes = [node("Slice", shape, *map(node.constant, ends)) for ends in (([0], [2]), ([3], [4]))]
        return node(
            "Expand", node.number(0), node("Concat", sizes[0], node.constant([self.total]), sizes[1], axis=0)
        )


def _rotated(node: ForeignNode, value: str, place: _CachePlace) -> str:
    """Return queries or keys turned by their places."""
    if not (node.input(7) and node.input(8)):
        raise node.fail("do_rotary = 1 takes inputs 7 and 8, cosines and sines")
    where = node.input(9)
    if not where:
        one = node("Add", node.places(place.queries), node.reshape(place.first, -1, 1))
        batch = node("Shape", node.input(0), start=0, end=1)
        where = node("Expand", one, node("Concat", batch, node.constant([1]), axis=0))
        most = node.constant(node.type(7).shape[0] - 1)  # of padding
        where = node("Min", node("Max", where, node.constant(0)), most)
    rotated = 2 * node.type(7).shape[1]
    return node(
        "RotaryEmbedding",
        *(value, node.input(7), node.input(8), where),
        interleaved=node.attrs["rotary_interleaved"],
        rotary_embedding_dim=rotated,
    )


def _shared(node: ForeignNode, value: str, heads: int, groups: int) -> str:
    """Return keys or values, repeated for the heads of queries that share them."""
    if heads == groups:
        return value
    apart = node("Unsqueeze", value, node.constant([2]))
    repeated = node("Expand", apart, node.constant([1, 1, heads // groups, 1, 1]))
    size = node.type(0).shape[2] // (heads if node.input(1) else heads + 2 * groups)
    return node.reshape(repeated, 0, heads, -1, size)


_MULTI_HEAD = {"num_heads": int, "mask_filter_value": -10000.0, "scale": 0.0, "unidirectional": 0}
_GROUPS = {
    **dict.fromkeys(("num_heads", "kv_num_heads"), int),
    **dict.fromkeys(("do_rotary", "rotary_interleaved"), 0),
    "scale": 0.0,
    "softcap": 0.0,
    "local_window_size": -1,
}
_WHOLE = {
    "smooth_softmax": 0,
    "qk_output": 0,
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "kv_cache_bit_width": 0,
}

_SELF = {"num_heads": int, "mask_filter_value": -10000.0, "scale": 0.0, "unidirectional": 0}
_PLAIN = {"do_rotary": 0, "past_present_share_buffer": 0}

ATTENTION: Mapping[str, Rule] = {
    "Attention": Rule(
        *(_projected, (0, 1), 6, {**_SELF, "qkv_hidden_sizes": ()}, _PLAIN, ("rotary_embedding_dim",), (0, 1))
    ),
    "QAttention": Rule(_projected_integers, (0, 1, 2, 3, 4), 9, _SELF, _PLAIN, outputs=(0, 1)),
    "GroupQueryAttention": Rule(_group_query, (0, 5, 6), 11, _GROUPS, _WHOLE, outputs=(0, 1, 2)),
    "MultiHeadAttention": Rule(_multi_head, (0,), 10, _MULTI_HEAD, outputs=(0, 1, 2)),
}
"""The definition of each operator."""

__all__ = ["ATTENTION"]
