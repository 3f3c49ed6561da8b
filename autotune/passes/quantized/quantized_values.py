"""Real numbers that integers stand for, while a graph is rewritten: real = (q - zero) * scale.

What is said of a value is known of it beside its node, so that its readers may take the integers instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import ABSENT, Array, Attr, Node, TensorType
from autotune.passes.attributes import integer
from autotune.passes.rewriter import Rewriter

SMALL = ("uint8", "int8")


@dataclass(frozen=True)
class Quantized:
    """Integers and what they stand for; ``scale`` and ``zero`` are scalars or go along ``axis``.

    ``value`` is int8, uint8 or int32. Scales are positive float32; zero points are of the type of the value.
    """

    value: str
    scale: Array
    zero: Array
    axis: int

    @property
    def is_uniform(self) -> bool:
        """Return whether all elements have one scale and one zero point."""
        return self.scale.size == 1 and self.zero.size == 1

    def same_steps(self, other: Quantized) -> bool:
        """Return whether an integer stands for the same number in both, which are uniform."""
        alike = self.zero.dtype == other.zero.dtype and self.is_uniform and other.is_uniform
        return alike and bool(
            self.scale.item() == other.scale.item() and self.zero.item() == other.zero.item()
        )

    def along(self, array: Array, rank: int) -> Array:
        """Return a scale or zero point so that it broadcasts to the value, of ``rank`` dimensions, from the right."""
        if array.size == 1:
            return array.reshape(())
        axis = self.axis % rank
        return array.reshape(-1, *(1,) * (rank - 1 - axis))


@dataclass(frozen=True)
class QuantizedValues:
    """The known quantisations of the values of a new graph, and nodes that compute with them."""

    rewriter: Rewriter
    known: dict[str, Quantized]

    def of(self, value: str) -> Quantized | None:
        """Return the quantisation of a value of the new graph, if that is known."""
        return self.known.get(value)

    def small(self, value: str) -> Quantized | None:
        """Return the quantisation of a value if that is eight bits, alike for all elements, and known at
        run time only."""
        found = self.of(value)
        if found is None or not found.is_uniform or self.rewriter.constant_of(found.value) is not None:
            return None
        return found if self.dtype(found.value) in SMALL else None

    def weights(self, value: str, axis: int) -> Quantized | None:
        """Return the quantisation of constant weights, if it is eight bits with a scale for all or for
        each index of ``axis``."""
        found = self.of(value)
        if found is None:
            return None
        array = self.rewriter.constant_of(found.value)
        if array is None or str(array.dtype) not in SMALL:
            return None
        return found if found.is_uniform or found.axis % array.ndim == axis % array.ndim else None

    def learn(self, node: Node) -> None:
        """Remember what a DequantizeLinear of the new graph does, where its parameters are constants."""
        q, scale, *more = node.inputs
        steps = self.rewriter.constant_of(scale)
        zero = self.rewriter.constant_of(more[0]) if more and more[0] != ABSENT else None
        if steps is None or steps.dtype != np.float32 or not bool(np.all(np.isfinite(steps) & (steps > 0))):
            return
        if more and more[0] != ABSENT and zero is None:
            return
        zero = np.zeros((), self.dtype(q)) if zero is None else zero
        steps, zero = (array.reshape(()) if array.size == 1 else array for array in (steps, zero))
        self.known[node.outputs[0]] = Quantized(q, steps, zero, integer(node, "axis"))

    def dequantize(self, output: str, found: Quantized) -> None:
        """Define a value of the old graph by what stands for it."""
        zeros = [self.constant(output, "zero", found.zero)] if found.zero.any() else []
        operands = (found.value, self.constant(output, "scale", found.scale), *zeros)
        self.rewriter.become(output, "DequantizeLinear", operands, {"axis": found.axis})
        self.known[output] = found

    # -- nodes -----------------------------------------------------------------------------------------------

    def dtype(self, value: str) -> str:
        return self.rewriter.type_of(value).dtype

    def constant(self, stem: str, what: str, array: Array) -> str:
        return self.rewriter.constant(f"{stem}.{what}", array)

    def emit(self, op: str, operands: Sequence[str], stem: str, what: str, **attrs: Attr) -> str:
        return self.rewriter.emit(op, operands, attrs, name=f"{stem}.{what}")

    def cast(self, value: str, to: str, stem: str) -> str:
        return value if self.dtype(value) == to else self.emit("Cast", [value], stem, to, to=to)

    def clipped(self, value: str, low: float, high: float, stem: str) -> str:
        """Return a value within bounds; the same where its type has no others."""
        limits = np.iinfo(self.dtype(value))
        if low <= limits.min and high >= limits.max:
            return value
        return self.emit("Clip", [value], stem, "clipped", min=float(low), max=float(high))

    def scaled(self, found: Quantized, scale: float, stem: str) -> str:
        """Return the numbers that integers stand for over ``scale``, in float32 by one multiplication."""
        rank = self.rewriter.type_of(found.value).rank
        value = found.value
        if found.zero.any():
            zero = found.along(found.zero, rank).astype(np.int32)
            value = self.cast(value, "int32", stem)
            value = self.emit("Sub", [value, self.constant(stem, "zero", zero)], stem, "centred")
        factor = found.along(found.scale, rank) / np.float32(scale)
        value = self.cast(value, "float32", stem)
        return self.emit("Mul", [value, self.constant(stem, "factor", factor)], stem, "steps")

    def rounded(self, steps: str, zero: int, low: float, high: float, to: str, stem: str) -> str:
        """Return whole numbers from ``steps``, moved by the zero point and within bounds, as ``to``."""
        value = self.emit("Round", [steps], stem, "rounded")
        if zero:
            offset = self.constant(stem, "zero", np.asarray(zero, np.float32))
            value = self.emit("Add", [value, offset], stem, "moved")
        value = self.emit("Clip", [value], stem, "clipped", min=float(low), max=float(high))
        return self.emit("Cast", [value], stem, to, to=to)

    def type_of(self, value: str) -> TensorType:
        return self.rewriter.type_of(value)


__all__ = ["SMALL", "Quantized", "QuantizedValues"]
