"""GroupedConv(x, w): a convolution of several groups of channels, with an axis for the groups in its result.

x [n, spatial..., groups * c], w [kernel..., c, groups, o], result [n, spatial..., groups, o]: a Conv whose
channels are told apart, so that each group is a product of its own to schedules. Attributes: kernel_shape (from w if
absent), strides, dilations, pads as those of Conv; always channels last.

te stages: "<out>.pad" (only if a pad is not zero) and the sum. Data axes n, spatial..., g, oc; reduce axes rh, rw, rc
(rd first in 3-D).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    accumulated_in,
    at,
    named_axes,
    narrowed,
    require_float,
    spatial_names,
    stage,
)
from autotune.graph.ops.convolution import conv_array
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.window import WINDOW_ATTRIBUTES, Window, complete_window, window_of


@dataclass(frozen=True)
class _Geometry:
    """All sizes."""

    batch: int
    window: Window
    group_inputs: int
    groups: int
    group_outputs: int

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.batch, *self.window.out_size, self.groups, self.group_outputs)


def complete_grouped(types: Types, attrs: dict[str, Attr]) -> None:
    x, w = at(types, 0).shape, at(types, 1).shape
    if not 3 <= len(x) <= 5 or len(w) != len(x) + 1:
        raise GraphError(f"GroupedConv takes x of 3 to 5 dimensions and w of one more, got {x} and {w}")
    rank = len(x) - 2
    if attrs.setdefault("kernel_shape", w[:rank]) != w[:rank]:
        raise GraphError(f"GroupedConv: kernel_shape {attrs['kernel_shape']} but w has kernel {w[:rank]}")
    complete_window(rank, attrs)


def _geometry(types: Types, attrs: Attrs) -> _Geometry:
    x, w = at(types, 0).shape, at(types, 1).shape
    *_, inputs, groups, outputs = w
    if x[-1] != groups * inputs:
        raise GraphError(
            f"GroupedConv: w of shape {w} has {groups} groups of {inputs} channels, x of shape {x} has {x[-1]}"
        )
    window = window_of("GroupedConv", x, {**attrs, "layout": "NHWC"})
    return _Geometry(x[0], window, inputs, groups, outputs)


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    require_float("GroupedConv", types)
    return [TensorType(grouped_shape(types, attrs), at(types, 0).dtype)]


def grouped_shape(types: Types, attrs: Attrs) -> tuple[int, ...]:
    """Return the shape of the result."""
    return _geometry(types, attrs).out_shape


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    dtype = str(at(arrays, 0).dtype)
    return [grouped_array(arrays, attrs, accumulated_in(dtype)).astype(dtype, copy=False)]


def grouped_array(arrays: Arrays, attrs: Attrs, wide: str) -> Array:
    """Return sums of products in a type."""
    x, w = (at(arrays, i).astype(wide, copy=False) for i in range(2))
    geo = _geometry([TensorType.of(x), TensorType.of(w)], attrs)
    plain = w.reshape(*w.shape[:-2], geo.groups * geo.group_outputs)
    out = conv_array(x, plain, {**attrs, "layout": "NHWC", "group": geo.groups})
    return out.reshape(geo.out_shape)


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    (out,), dtype = names, at(tensors, 0).dtype
    wide = accumulated_in(dtype)
    sums = grouped_stage(tensors, attrs, wide, out, out if wide == dtype else f"{out}.acc")
    return [sums if wide == dtype else narrowed(sums, dtype, out)]


def grouped_stage(tensors: Tensors, attrs: Attrs, wide: str, out: str, name: str) -> te.Tensor:
    """Return the stage ``name`` of sums in a type, for the result ``out``."""
    x, w = at(tensors, 0), at(tensors, 1)
    geo = _geometry([TensorType(t.shape, t.dtype) for t in (x, w)], attrs)
    x = geo.window.pad_tensor(x, True, 0.0, f"{out}.pad")
    window, rc = geo.window.reduce_axes(), te.reduce_axis((0, geo.group_inputs), name="rc")

    def element(*index: Expr) -> Expr:
        n, *position, g, oc = index
        left = x(n, *geo.window.source(position, window), g * geo.group_inputs + rc)
        right = w(*window, rc, g, oc)
        return te.sum(te.cast(left, wide) * te.cast(right, wide), axis=[*window, rc])

    axes = ["n", *spatial_names(geo.window.rank), "g", "oc"]
    return stage(geo.out_shape, named_axes(axes, element), name)


def grouped_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return operations, a multiply-add counted as two."""
    return 2 * results[0].size * _steps(types, attrs)


def _steps(types: Types, _: Attrs) -> int:
    """Return terms of a sum."""
    return math.prod(at(types, 1).shape[:-2])


GROUPED_ATTRIBUTES = {**WINDOW_ATTRIBUTES, "kernel_shape": Attribute("ints")}

define(
    "GroupedConv",
    "convolution",
    (2, 2),
    _infer,
    _reference,
    _compute,
    GROUPED_ATTRIBUTES,
    complete=complete_grouped,
    flops_rule=grouped_flops,
    prologue=("rearrangement", "blend", "elementwise"),
    sum_length=_steps,
    in_onnx=False,
)

__all__ = [
    "GROUPED_ATTRIBUTES",
    "complete_grouped",
    "grouped_array",
    "grouped_flops",
    "grouped_shape",
    "grouped_stage",
]
