"""ONNX's quantised operators as sums of integer products with elementwise operators around them.

A product with zero points is ``sum (a - p)(b - q) = sum a b - p sum b - q sum a + n p q``. Constant
weights are centred at compile time, so that q is 0 where they then fit eight bits, and ``sum b`` is a
constant. The first operand is brought to the signedness that the target's dot product takes by
moving it by 128, which moves its zero point as well (the offset trick of oneDNN and gemmlowp).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.errors import UsageError
from autotune.graph.ir import ABSENT, Attr, Graph, Node
from autotune.graph.ops.quantized import COLUMNS, ROWS, matrices, spread
from autotune.passes.attributes import integer, ints
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter

SIGNS = ("uint8", "int8")
DOT_GROUP = 4
"""Products of bytes that dot products of all targets add up."""


@dataclass(frozen=True)
class IntegerProducts(GraphPass):
    """Express quantised operators; ``activations`` is the type of first operands ("uint8", "int8")."""

    name: ClassVar[str] = "integer_products"
    activations: str = "uint8"

    def __post_init__(self) -> None:
        if self.activations not in SIGNS:
            raise UsageError(f"activations are {' or '.join(SIGNS)}, not {self.activations!r}")

    def apply(self, graph: Graph) -> Graph:
        rewriter = Rewriter(graph)
        for node in rewriter.walk():
            if node.op in _RULES:
                _RULES[node.op](_Expression(rewriter, node, self.activations))
            else:
                rewriter.keep(node)
        return rewriter.finish()


class _Expression:
    """The nodes that take the place of one operator; values are named after its output."""

    def __init__(self, rewriter: Rewriter, node: Node, activations: str) -> None:
        self.rewriter = rewriter
        self.node = node
        self.activations = activations
        self.stem = node.outputs[0]

    def input(self, index: int) -> str | None:
        """Return the current name of an input; None if it is absent or a zero that is known."""
        inputs = self.node.inputs
        if index >= len(inputs) or inputs[index] == ABSENT:
            return None
        value = self.rewriter.current(inputs[index])
        array = self.rewriter.constant_of(value)
        return None if array is not None and not array.any() else value

    def required(self, index: int) -> str:
        """Return the current name of an input that is there."""
        return self.rewriter.current(self.node.inputs[index])

    def emit(self, op: str, *inputs: str, what: str, attrs: Mapping[str, Attr] | None = None) -> str:
        return self.rewriter.emit(op, inputs, attrs or {}, name=f"{self.stem}.{what}")

    def become(self, op: str, *inputs: str, attrs: Mapping[str, Attr] | None = None) -> None:
        self.rewriter.become(self.stem, op, inputs, attrs or {})

    def number(self, value: float, dtype: str) -> str:
        return self.rewriter.constant(f"{self.stem}.{value}", np.asarray(value, dtype))

    def cast(self, value: str, to: str, what: str) -> str:
        if self.dtype(value) == to:
            return value
        array = self.rewriter.constant_of(value)
        if array is not None:
            return self.rewriter.constant(f"{value}.{to}", array.astype(to))
        return self.emit("Cast", value, what=what, attrs={"to": to})

    def dtype(self, value: str) -> str:
        return self.rewriter.type_of(value).dtype

    def shape(self, value: str) -> tuple[int, ...]:
        return self.rewriter.type_of(value).shape

    def along(self, value: str, rank: int, axis: int) -> str:
        """Return scalars, or one value an index of an axis, so that they broadcast to ``rank`` dimensions."""
        size = math.prod(self.shape(value))
        shape = () if size == 1 else tuple(-1 if d == axis % rank else 1 for d in range(rank))
        return self.reshaped(value, tuple(size if d == -1 else d for d in shape))

    def spread(self, value: str, operand: tuple[int, ...], axis: int) -> str:
        """Return scales or zero points of matrices so that they broadcast to these."""
        shape = spread(self.shape(value), operand, axis)
        assert shape is not None, "checked where types are inferred"
        return self.reshaped(value, shape)

    def reshaped(self, value: str, shape: tuple[int, ...]) -> str:
        """Return the value in another shape."""
        if self.shape(value) == shape:
            return value
        array = self.rewriter.constant_of(value)
        if array is not None:
            return self.rewriter.constant(f"{value}.along", array.reshape(shape))
        return self.emit("Reshape", value, what=f"{value}.along", attrs={"shape": shape})

    # -- sums of products ------------------------------------------------------------------------------------

    def matmul(self, a: str, a_zero: str | None, b: str, b_zero: str | None) -> str:
        """Return int32 sums of a MatMul with zero points, whose operands are matrices."""
        a, b = (
            self.reshaped(value, matrices(self.shape(value), axis))
            for value, axis in ((a, ROWS), (b, COLUMNS))
        )
        a_zero = None if a_zero is None else self.spread(a_zero, self.shape(a), ROWS)
        b_zero = None if b_zero is None else self.spread(b_zero, self.shape(b), COLUMNS)
        a, a_zero = self._signed(a, a_zero, self.activations)
        b, b_zero = self._centred(b, b_zero)
        total = self.emit("IntegerMatMul", a, b, what="products")
        depth = self.shape(a)[-1]
        if a_zero is not None:
            a_zero = self.cast(a_zero, "int32", "zero")
            total = self._minus(total, a_zero, self._sum(b, ROWS))
        if b_zero is not None:
            b_zero = self.cast(b_zero, "int32", "zero")
            total = self._minus(total, b_zero, self._sum(a, COLUMNS))
            if a_zero is not None:
                both = self.emit("Mul", a_zero, b_zero, what="zeros")
                both = self.emit("Mul", both, self.number(depth, "int32"), what="zeros")
                total = self.emit("Add", total, both, what="corrected")
        return total

    def conv(self, x: str, x_zero: str | None, w: str, w_zero: str | None) -> str:
        """Return int32 sums of a convolution with zero points."""
        x, x_zero = self._signed(x, x_zero, self.activations)
        w_zero = None if w_zero is None else self.along(w_zero, len(self.shape(w)), 0)
        w, w_zero = self._centred(w, w_zero)
        if w_zero is not None:  # centred in 16 bits, by FoldConstants where it is known
            wide = self.cast(w, "int32", "weights")
            w = self.emit("Sub", wide, self.cast(w_zero, "int32", "zero"), what="weights")
            w = self.cast(w, "int16", "weights")
        x, w = self._filled(x, w)
        # What lies around the input is only read where there is padding.
        fills = [self.along(x_zero, 1, 0)] if x_zero is not None and any(ints(self.node, "pads")) else []
        total = self.emit("IntegerConv", x, w, *fills, what="products", attrs=self.node.attrs)
        if x_zero is None:
            return total
        rank = len(self.shape(w))
        wide = self.cast(w, "int32", "weights")
        axes: dict[str, Attr] = {"axes": tuple(range(1, rank)), "keepdims": 0}
        sums = self.along(self.emit("ReduceSum", wide, what="sums", attrs=axes), rank, 1)
        return self._minus(total, self.cast(self.along(x_zero, rank, 0), "int32", "zero"), sums)

    def _filled(self, x: str, w: str) -> tuple[str, str]:
        """Return an image of few channels with as many as a dot product takes at once, by which zeros
        are multiplied."""
        array = self.rewriter.constant_of(w)
        if array is None or array.dtype != np.int8 or integer(self.node, "group") != 1:
            return x, w
        missing = DOT_GROUP - array.shape[1]
        if missing <= 0 or array[0, 0].size == 1:
            return x, w
        ends = [(0, missing if axis == 1 else 0) for axis in range(array.ndim)]
        pads = tuple(pair[side] for side in (0, 1) for pair in ends)
        filled = self.emit("Pad", x, what="filled", attrs={"pads": pads})
        return filled, self.rewriter.constant(f"{w}.filled", np.pad(array, ends))

    def _signed(self, value: str, zero: str | None, to: str) -> tuple[str, str | None]:
        """Return eight bits in the other signedness: moved by 128, and the zero point with them."""
        if self.dtype(value) == to or self.dtype(value) not in SIGNS:
            return value, zero
        offset = self.number(128 if to == "uint8" else -128, "int32")

        def moved(old: str, what: str) -> str:
            wide = self.cast(old, "int32", what)
            return self.cast(self.emit("Add", wide, offset, what=what), to, what)

        if zero is None:
            return moved(value, "moved"), self.number(128 if to == "uint8" else -128, to)
        return moved(value, "moved"), moved(zero, "zero")

    def _centred(self, value: str, zero: str | None) -> tuple[str, str | None]:
        """Return the constant weights less a zero point that broadcasts to them where that fits int8;
        others as int8."""
        array = self.rewriter.constant_of(value)
        known = None if zero is None else self.rewriter.constant_of(zero)
        if array is not None and (zero is None or known is not None):
            wide = array.astype(np.int32)
            if known is not None:
                wide = wide - known.astype(np.int32)
            if array.dtype == np.int8 and zero is None:
                return value, None
            if wide.size == 0 or (wide.min() >= -128 and wide.max() <= 127):
                return self.rewriter.constant(f"{value}.centred", wide.astype(np.int8)), None
        return self._signed(value, zero, "int8")

    def _sum(self, value: str, axis: int) -> str:
        attrs: dict[str, Attr] = {"axes": (axis % len(self.shape(value)),), "keepdims": 1}
        return self.emit("ReduceSum", self.cast(value, "int32", "wide"), what="sums", attrs=attrs)

    def _minus(self, total: str, zero: str, sums: str) -> str:
        product = self.emit("Mul", zero, sums, what="offset")
        return self.emit("Sub", total, product, what="corrected")

    # -- real numbers ----------------------------------------------------------------------------------------

    def rescaled(self, sums: str, left: str, right: str, out: str, zero: str | None, to: str) -> None:
        """Emit the operator's output: sums times ``left * right / out``, rounded, from ``zero`` on; all broadcast."""
        scales = [self.cast(scale, "float32", "scale") for scale in (left, right, out)]
        factor = self.emit("Div", self.emit("Mul", *scales[:2], what="factor"), scales[2], what="factor")
        real = self.emit("Mul", self.cast(sums, "float32", "real"), factor, what="real")
        self.quantized(real, zero, to)

    def quantized(self, real: str, zero: str | None, to: str) -> None:
        """Emit the operator's output: whole numbers from real ones, moved by the zero point and clipped."""
        value = self.emit("Round", real, what="rounded")
        if zero is not None:
            value = self.emit("Add", value, self.cast(zero, "float32", "zero"), what="moved")
        limits = np.iinfo(to)
        bounds: dict[str, Attr] = {"min": float(limits.min), "max": float(limits.max)}
        value = self.emit("Clip", value, what="clipped", attrs=bounds)
        self.become(
            "Cast", self.reshaped(value, self.rewriter.graph.type_of(self.stem).shape), attrs={"to": to}
        )


def _quantize(e: _Expression) -> None:
    x, axis = e.required(0), integer(e.node, "axis")
    rank = len(e.shape(x))
    scale = e.along(e.required(1), rank, axis)
    real = e.emit("Div", e.cast(x, "float32", "real"), e.cast(scale, "float32", "scale"), what="real")
    zero = e.input(2)
    zero = None if zero is None else e.along(zero, rank, axis)
    e.quantized(real, zero, e.rewriter.graph.type_of(e.stem).dtype)


def _dequantize(e: _Expression) -> None:
    q, axis = e.required(0), integer(e.node, "axis")
    rank, zero = len(e.shape(q)), e.input(2)
    if zero is not None:
        offset = e.cast(e.along(zero, rank, axis), "int32", "zero")
        q = e.emit("Sub", e.cast(q, "int32", "wide"), offset, what="centred")
    scale = e.cast(e.along(e.required(1), rank, axis), "float32", "scale")
    e.become("Mul", e.cast(q, "float32", "real"), scale)


def _matmul_integer(e: _Expression) -> None:
    sums = e.matmul(e.required(0), e.input(2), e.required(1), e.input(3))
    e.become("Identity", e.reshaped(sums, e.rewriter.graph.type_of(e.stem).shape))


def _conv_integer(e: _Expression) -> None:
    e.become("Identity", e.conv(e.required(0), e.input(2), e.required(1), e.input(3)))


def _qlinear_matmul(e: _Expression) -> None:
    a, b = e.required(0), e.required(3)
    sums = e.matmul(a, e.input(2), b, e.input(5))
    rows, columns = matrices(e.shape(a), ROWS), matrices(e.shape(b), COLUMNS)
    left, right = e.spread(e.required(1), rows, ROWS), e.spread(e.required(4), columns, COLUMNS)
    out, zero = e.spread(e.required(6), e.shape(sums), ROWS), e.input(7)
    zero = None if zero is None else e.spread(zero, e.shape(sums), ROWS)
    e.rescaled(sums, left, right, out, zero, e.dtype(e.required(7)))


def _qlinear_conv(e: _Expression) -> None:
    sums, bias = e.conv(e.required(0), e.input(2), e.required(3), e.input(5)), e.input(8)
    if bias is not None:
        sums = e.emit("Add", sums, e.along(bias, len(e.shape(sums)), 1), what="biased")
    rank, zero = len(e.shape(sums)), e.input(7)
    left, right, out = (e.along(e.required(i), rank, 1) for i in (1, 4, 6))
    zero = None if zero is None else e.along(zero, rank, 1)
    e.rescaled(sums, left, right, out, zero, e.dtype(e.required(7)))


_RULES = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}


__all__ = ["IntegerProducts"]
