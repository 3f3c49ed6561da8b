"""Transposed convolutions as plain ones, without a multiplication by the zeros between input elements.

Output elements of the same phase (index modulo the stride) meet the same taps: each phase is a convolution of
stride 1 with part of the weights, turned around at compile time ("sub-pixel convolution", Shi et al., 2016). The
phases are written straight into the result (see ``views``). Elementwise operations after it go along, phase by phase.

With few output channels a phase leaves most of a vector empty. A matrix product of the input with the weights of all
taps at once does not, and its columns are then added where they overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node
from autotune.graph.ops.convolution_transposed import TransposedGeometry, transposed_geometry
from autotune.graph.ops.interleave import phase_size, phases
from autotune.passes.attributes import ints, is_channels_last
from autotune.passes.base import GraphPass
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class SplitPhases(GraphPass):
    """Split channels-last transposed convolutions with constant weights into their phases, or columns.

    Both are estimated in vector operations, for vectors of ``lanes`` elements; ``moves`` are those that a column
    costs between the product and the sum.
    """

    name: ClassVar[str] = "split_phases"
    lanes: int = 16
    moves: int = 3

    def apply(self, graph: Graph) -> Graph:
        consumers = graph.consumers()

        def rule(rewriter: Rewriter, node: Node) -> bool:
            if node.op == "ConvTranspose":
                return self._split(rewriter, node)
            return _follow(rewriter, node, consumers)

        return rewrite(graph, rule)

    def _split(self, rewriter: Rewriter, node: Node) -> bool:
        weight = rewriter.constant_of(rewriter.current(node.inputs[1]))
        if weight is None or not is_channels_last(node) or any(v != ABSENT for v in node.inputs[2:]):
            return False
        types = rewriter.graph.input_types(node)
        geo = transposed_geometry(types, ops.get(node.op).canonical(types, node.attrs))
        if self._prefers_columns(geo):
            _columns(rewriter, node, geo, weight)
            return True
        return _phases(rewriter, node, geo, weight)

    def _prefers_columns(self, geo: TransposedGeometry) -> bool:
        """Return whether one product for all taps takes fewer operations an input element than one for each tap."""
        aligned = not any(k % s for k, s in zip(geo.kernel, geo.strides, strict=True))
        if geo.groups > 1 or set(geo.dilations) != {1} or not aligned:
            return False
        taps = math.prod(geo.kernel)
        apart = taps * math.ceil(geo.out_channels / self.lanes)
        at_once = math.ceil(taps * geo.out_channels / self.lanes)
        return geo.in_channels * at_once + self.moves * apart < geo.in_channels * apart


def _columns(rewriter: Rewriter, node: Node, geo: TransposedGeometry, weight: Array) -> None:
    """Compute a product of pixels and taps, then the sum of what overlaps."""
    x, (output,) = rewriter.current(node.inputs[0]), node.outputs
    taps = math.prod(geo.kernel) * geo.out_channels
    matrix = np.ascontiguousarray(np.moveaxis(weight, -2, 0)).reshape(geo.in_channels, taps)
    pixels = geo.batch * math.prod(geo.size)
    flat = rewriter.emit("Reshape", [x], {"shape": (pixels, geo.in_channels)}, name=f"{x}.pixels")
    name = rewriter.constant(f"{node.inputs[1]}.columns", matrix)
    product = rewriter.emit("MatMul", [flat, name], name=f"{output}.columns")
    shape = (geo.batch, *geo.size, taps)
    image = rewriter.emit("Reshape", [product], {"shape": shape}, name=f"{output}.columns_image")
    attrs: dict[str, Attr] = {
        "kernel_shape": geo.kernel,
        "strides": geo.strides,
        "pads": geo.pad_begin,
        "size": geo.out_size,
    }
    rewriter.become(output, "OverlapAdd", [image], attrs)


@dataclass(frozen=True)
class _Axis:
    """One spatial axis of a phase: a convolution over ``taps``, in this order, of the input from ``start`` on.

    It reads ``end - start`` elements after padding; both bounds may lie outside of the input.
    """

    taps: tuple[int, ...]
    dilation: int
    start: int
    end: int

    @classmethod
    def of(cls, geo: TransposedGeometry, axis: int, phase: int) -> _Axis:
        """Return taps t with i*stride + t*dilation = o + pad for an element i, where o = a*stride + phase.

        Where one tap t fits, those at multiples of stride/gcd from it do; each moves i by dilation/gcd.
        """
        s, d, k = geo.strides[axis], geo.dilations[axis], geo.kernel[axis]
        base = phase + geo.pad_begin[axis]
        taps = [t for t in range(k) if (base - t * d) % s == 0]
        count = phase_size((geo.out_size[axis],), (s,), (phase,))[0]
        if not taps:
            return cls((), 1, 0, count)
        first = (base - taps[-1] * d) // s  # the last tap reads the first element
        last = count - 1 + (base - taps[0] * d) // s
        return cls(tuple(reversed(taps)), d // math.gcd(s, d), first, last + 1)

    def overlaps(self, size: int) -> bool:
        """Return whether any of the input is read."""
        return self.start < size and self.end > 0


def _phases(rewriter: Rewriter, node: Node, geo: TransposedGeometry, weight: Array) -> bool:
    """Return a convolution for each phase; False where a phase reads nothing."""
    every = [[_Axis.of(geo, axis, p) for axis, p in enumerate(phase)] for phase in phases(geo.strides)]
    small = any(o < s for o, s in zip(geo.out_size, geo.strides, strict=True))
    outside = any(
        not axis.overlaps(size) for axes in every for axis, size in zip(axes, geo.size, strict=True)
    )
    if small or outside:  # a phase has no elements, or is nothing but zeros: not worth a rule
        return False
    plain = _plain_weight(weight, geo)
    (output,) = node.outputs
    results = [_convolution(rewriter, node, geo, axes, plain) for axes in every]
    if len(results) == 1:
        rewriter.replace(output, results[0])
    else:
        attrs: dict[str, Attr] = {"strides": geo.strides, "size": geo.out_size}
        rewriter.become(output, "Interleave", results, attrs)
    return True


def _plain_weight(weight: Array, geo: TransposedGeometry) -> Array:
    """Convert weights from [kernel..., ic, oc/group] to a convolution's [kernel..., ic/group, oc]."""
    kernel = weight.shape[:-2]
    apart = weight.reshape(*kernel, geo.groups, geo.group_inputs, geo.group_outputs)
    return np.moveaxis(apart, -3, -2).reshape(*kernel, geo.group_inputs, geo.out_channels)


def _convolution(
    rewriter: Rewriter, node: Node, geo: TransposedGeometry, axes: Sequence[_Axis], weight: Array
) -> str:
    """Return the convolution of one phase; one of zeros where no tap reaches the phase."""
    (output,) = node.outputs
    x = _cropped(rewriter, rewriter.current(node.inputs[0]), axes, geo.size)
    if all(axis.taps for axis in axes):
        part = weight[np.ix_(*(axis.taps for axis in axes))]
    else:
        part = np.zeros((*(max(len(axis.taps), 1) for axis in axes), *weight.shape[-2:]), weight.dtype)
    name = rewriter.constant(f"{node.inputs[1]}.phase", np.ascontiguousarray(part))
    before = tuple(max(-axis.start, 0) for axis in axes)
    after = tuple(max(axis.end - size, 0) for axis, size in zip(axes, geo.size, strict=True))
    attrs: dict[str, Attr] = {
        "layout": "NHWC",
        "group": geo.groups,
        "pads": (*before, *after),
        "dilations": tuple(axis.dilation for axis in axes),
    }
    return rewriter.emit("Conv", [x, name], attrs, name=f"{output}.phase")


def _cropped(rewriter: Rewriter, x: str, axes: Sequence[_Axis], size: Sequence[int]) -> str:
    """Return the part of the input that a phase reads."""
    starts = tuple(max(axis.start, 0) for axis in axes)
    ends = tuple(min(axis.end, extent) for axis, extent in zip(axes, size, strict=True))
    if not any(starts) and ends == tuple(size):
        return x
    attrs: dict[str, Attr] = {"starts": starts, "ends": ends, "axes": tuple(range(1, len(size) + 1))}
    return rewriter.emit("Slice", [x], attrs, name=f"{x}.part")


def _follow(rewriter: Rewriter, node: Node, consumers: Mapping[str, Sequence[Node]]) -> bool:
    """Return f(Interleave(a, b, ...), c) -> Interleave(f(a, c_a), f(b, c_b), ...), as long as nobody else reads it."""
    if not ops.get(node.op).pointwise or len(node.outputs) != 1:
        return False
    (output,) = node.outputs
    shape = rewriter.graph.type_of(output).shape
    woven = [v for v in node.present_inputs if _is_woven(rewriter, v, consumers)]
    if len(woven) != 1 or rewriter.graph.type_of(woven[0]).shape != shape:
        return False
    others = [rewriter.current(v) for v in node.present_inputs if v != woven[0]]
    if not all(
        _is_uniform(rewriter.type_of(v).shape, shape) or rewriter.type_of(v).shape == shape for v in others
    ):
        return False
    join = rewriter.producer(rewriter.current(woven[0]))
    assert join is not None
    strides = ints(join, "strides")
    results = []
    for phase, part in zip(phases(strides), join.inputs, strict=True):
        inputs = [
            part
            if v == woven[0]
            else v
            if v == ABSENT
            else _phase(rewriter, rewriter.current(v), phase, strides)
            for v in node.inputs
        ]
        results.append(rewriter.emit(node.op, inputs, node.attrs, name=f"{output}.phase"))
    rewriter.become(output, "Interleave", results, join.attrs)
    return True


def _is_woven(rewriter: Rewriter, value: str, consumers: Mapping[str, Sequence[Node]]) -> bool:
    producer = rewriter.producer(rewriter.current(value))
    if producer is None or producer.op != "Interleave" or value in rewriter.graph.outputs:
        return False
    return len(consumers[value]) == 1 and consumers[value][0].inputs.count(value) == 1


def _is_uniform(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Return whether an operand that broadcasts to ``whole`` is the same along the spatial axes."""
    full = (1,) * (len(whole) - len(shape)) + tuple(shape)
    return all(extent == 1 for extent in full[1:-1])


def _phase(rewriter: Rewriter, value: str, phase: Sequence[int], strides: Sequence[int]) -> str:
    """Return the part of an operand that a phase reads: all of it, or every stride-th element."""
    shape = rewriter.type_of(value).shape
    if len(shape) < 3 or all(extent == 1 for extent in shape[1:-1]):
        return value
    axes = tuple(range(1, len(strides) + 1))
    attrs: dict[str, Attr] = {
        "starts": tuple(phase),
        "ends": shape[1:-1],
        "axes": axes,
        "steps": tuple(strides),
    }
    return rewriter.emit("Slice", [value], attrs, name=f"{value}.phase")


__all__ = ["SplitPhases"]
