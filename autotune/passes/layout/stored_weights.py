"""Weights stored in a shorter type, and widened to float32 in registers where they are read.

A product of few rows takes the time in which its weights come from memory: with half of the bytes it takes half of
it. Sums stay in float32. float16 and int8 have few exponents, or none: each output channel has a scale, with which its
sums are multiplied once. bfloat16 has the exponents of float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.passes.attributes import integer, is_channels_last
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite

_ERRORS: Mapping[str, float] = {"float16": 9e-4, "bfloat16": 8e-3, "int8": 4e-2}

LEAST_BYTES = 1 << 20
"""Of float32 weights: fewer stay in a second cache, where widening them costs what reading them saves."""

_INT8_LEVELS = 127.0
_SMALLEST = 2.0**-126
"""Scales are no smaller, those of channels of zeros either."""


@dataclass(frozen=True)
class StoredWeights(Algorithm):
    """Store large constant weights of matrix products and convolutions in ``dtype``; of what ``of`` makes, if given."""

    name: ClassVar[str] = "stored_weights"
    dtype: str = "bfloat16"
    of: Algorithm | None = None

    @property
    def label(self) -> str:
        """``float16 weights``, ``winograd F(4x4), float16 weights``."""
        own = f"{self.dtype} weights"
        return own if self.of is None else f"{self.of.label}, {own}"

    @property
    def error(self) -> float:
        """About three times what was measured for 16 to 9216 terms; see docs/weights.md."""
        own = _ERRORS[self.dtype]
        return own if self.of is None else self.of.amplification * own + self.of.error

    @property
    def growth(self) -> float:
        """That of what it is combined with."""
        return 1.0 if self.of is None else self.of.growth

    @property
    def feature(self) -> str:
        """Without F16C float16 is widened by a dozen instructions an element."""
        return "f16c" if self.dtype == "float16" else ""

    def apply(self, graph: Graph) -> Graph:
        before = graph if self.of is None else self.of.apply(graph)
        if self.of is not None and before is graph:
            return graph
        fixed = _fixed(before)
        after = rewrite(before, lambda rewriter, node: self._convert(rewriter, node, fixed))
        return graph if after is before else after

    def _convert(self, rewriter: Rewriter, node: Node, fixed: frozenset[str]) -> bool:
        if not _is_eligible(rewriter, node, fixed):
            return False
        x, w = (rewriter.current(v) for v in node.inputs)
        (output,) = node.outputs
        if self.dtype == "bfloat16":
            stored = rewriter.emit("Cast", [w], {"to": self.dtype}, name=f"{w}.{self.dtype}")
            rewriter.become(output, node.op, [x, stored], node.attrs)
            return True
        scale, stored = _scaled(rewriter, w, self.dtype)
        product = rewriter.emit(node.op, [x, stored], node.attrs, name=f"{output}.unscaled")
        rewriter.become(output, "Mul", [product, scale])
        return True


def _fixed(graph: Graph) -> frozenset[str]:
    """Return the values that are known at compile time."""
    known = set(graph.constants)
    for node in graph.nodes:
        if known.issuperset(node.present_inputs):
            known.update(node.present_outputs)
    return frozenset(known)


def _is_eligible(rewriter: Rewriter, node: Node, fixed: frozenset[str]) -> bool:
    if node.op not in ("MatMul", "Conv") or len(node.inputs) != 2:
        return False
    x, w = node.inputs
    if node.op == "Conv" and (not is_channels_last(node) or integer(node, "group") != 1):
        return False
    found = rewriter.type_of(rewriter.current(w))
    large = found.rank >= 2 and found.dtype == "float32" and found.nbytes >= LEAST_BYTES
    return large and w in fixed and x not in fixed


def _scaled(rewriter: Rewriter, weights: str, dtype: str) -> tuple[str, str]:
    """Return a scale for each output channel, the last axis, and the weights over it in ``dtype``.

    float16 takes powers of two: weights that were float16 before stay as they are. A channel with a weight that is not
    finite becomes NaN.
    """

    def emit(op: str, *operands: str, **attrs: str | int | tuple[int, ...]) -> str:
        return rewriter.emit(op, operands, attrs, name=f"{weights}.{op.lower()}")

    def number(value: float) -> str:
        return rewriter.constant(f"{weights}.number", np.asarray(value))

    # The largest of their absolute values would be another array of that size.
    axes = tuple(range(rewriter.type_of(weights).rank - 1))
    ends = [emit(op, weights, axes=axes, keepdims=0) for op in ("ReduceMax", "ReduceMin")]
    largest = emit("Cast", emit("Max", ends[0], emit("Neg", ends[1])), to="float64")
    largest = emit("Max", largest, number(_SMALLEST))
    if dtype == "int8":
        scale = emit("Cast", emit("Div", largest, number(_INT8_LEVELS)), to="float32")
        ratio = emit("Round", emit("Div", weights, scale))
    else:
        power = emit("Floor", emit("Div", emit("Log", largest), number(math.log(2))))
        scale = emit("Cast", emit("Pow", number(2.0), power), to="float32")
        ratio = emit("Div", weights, scale)
    return scale, emit("Cast", ratio, to=dtype)


__all__ = ["LEAST_BYTES", "StoredWeights"]
