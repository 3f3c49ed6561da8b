"""TfIdfVectorizer over integers: how often each n-gram of a pool comes in a row, by comparing it at every place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.frontends.onnx.emit import Composer, Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.ir import Array

_MOST = 1 << 24
"""Comparisons of one length of n-grams at most."""


def _vectorizer(node: OnnxNode, emit: Emitter) -> None:
    """Compute counts, or 1 for what comes at all, times the weights."""
    x, attrs = node.input_type(0), node.attrs
    if "pool_int64s" not in attrs:
        raise node.fail("only n-grams of integers are supported (pool_int64s)")
    columns = attrs["ngram_indexes"]
    size = max(columns) + 1
    total = ""
    for length, grams, places in _pools(node):
        for skip in range(1, int(attrs["max_skip_count"]) + 2 if length > 1 else 2):
            found = _counted(node, emit, grams, length, skip)
            if not found:
                continue
            # Each n-gram's count at its place in the result.
            spread = np.zeros((len(grams), size), np.float32)
            spread[np.arange(len(grams)), [columns[place] for place in places]] = 1
            part = emit("MatMul", [found, emit.constant(spread, "float32")])
            total = emit("Add", [total, part]) if total else part
    shape = (*x.shape[:-1], size)
    if not total:
        emit.define(node.outputs[0], np.zeros(shape, np.float32))
        return
    if attrs["mode"] == "IDF":
        total = emit("Min", [total, emit.constant(1, "float32")])
    weights = attrs.get("weights")
    if weights is not None and attrs["mode"] != "TF":
        total = emit("Mul", [total, emit.constant(np.asarray(weights), "float32")])
    emit("Reshape", [total], {"shape": shape}, "", node.outputs[0])


def _pools(node: OnnxNode) -> list[tuple[int, Array, range]]:
    """Return the n-grams of each length that counts, and their numbers among all."""
    attrs, found, number = node.attrs, [], 0
    pool, starts = np.array(attrs["pool_int64s"], np.int64), attrs["ngram_counts"]
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams = pool[start:end].reshape(-1, length)
        if len(grams) and attrs["min_gram_length"] <= length <= attrs["max_gram_length"]:
            found.append((length, grams, range(number, number + len(grams))))
        number += len(grams)
    return found


def _counted(node: OnnxNode, emit: Emitter, grams: Array, length: int, skip: int) -> str:
    """Count each n-gram in each row with elements ``skip`` apart, [rows, n-grams]; empty where none fits."""
    x = node.input_type(0)
    windows = x.shape[-1] - (length - 1) * skip
    if windows < 1:
        return ""
    if x.size * len(grams) * length > _MOST:
        raise node.fail(
            f"{len(grams)} n-grams of {length} at each of {x.size} places are too many to compare"
        )
    rows = emit("Reshape", node.inputs, {"shape": (x.size // x.shape[-1], x.shape[-1])}, "rows")
    wide = emit("Cast", [rows], {"to": "int64"}, "wide")
    same = ""
    for place in range(length):
        cut = {"axes": (1,), "starts": (place * skip,), "ends": (place * skip + windows,)}
        column = emit("Unsqueeze", [emit("Slice", [wide], cut)], {"axes": (2,)})
        equal = emit("Equal", [column, emit.constant(grams[:, place], "int64")])
        same = emit("And", [same, equal]) if same else equal
    ones = emit("Cast", [same], {"to": "float32"}, "ones")
    return emit("ReduceSum", [ones], {"axes": (1,), "keepdims": 0}, "counts")


COMPOSED_TFIDF: Mapping[str, Composer] = {"TfIdfVectorizer": _vectorizer}

__all__ = ["COMPOSED_TFIDF"]
