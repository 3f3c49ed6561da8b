"""Convolutions by Winograd's minimal filtering: the transforms of input and result, and products between them.

A convolution in tiles of m results along one or two inner spatial axes (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2016), channels last, t = m + taps - 1, th x tw tiles. Along two axes:

    WinogradInput(x)               x [n, outer..., h, w, c]         -> V [t, t, n, outer..., th, tw, c]
    MatMul(V, U)                   position by position             -> M [t, t, n, outer..., th, tw, oc]
    WinogradOutput(M)                                               -> y [n, outer..., h', w', oc]

Along one axis both have t once, and one axis less of tiles. U [t*t, c, oc] is
:func:`autotune.graph.ops.minimal_filtering.weight_matrix` times the weights. Attributes: tile (m), taps (3 if absent),
dilations (of the axes with tiles, ones if absent); pads (of all spatial axes, as ONNX) and axes (how many have tiles:
two if absent, or all) for the first; size (of the axes with tiles) for the last.

te: one axis a stage, written out as sums without the zeros and ones of the matrices: "<out>.pad" and "<out>.rows"
[t, n, outer..., th, w, c] before V (axes x, a, n, h, w, c), "<out>.columns" [t, n, outer..., th, tw, m, oc] before y
(axes n, h, w, c). With dilation rows has w by phases. A position of a window is a loop that a schedule unrolls; which
sum it takes is a select over that loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.common import (
    Expr,
    at,
    int_attr,
    ints_attr,
    named_axes,
    pad_stage,
    spatial_names,
    stage,
)
from autotune.graph.ops.definition import (
    Arrays,
    Attribute,
    Compute,
    Flops,
    InferRule,
    OpDef,
    Reference,
    Tensors,
    Types,
)
from autotune.graph.ops.minimal_filtering import (
    Filtering,
    input_operations,
    input_sum,
    one_of,
    output_operations,
    output_sum,
)
from autotune.graph.ops.registry import define

_TAPS = 3
_AXES = 2


def _complete(types: Types, attrs: dict[str, Attr]) -> None:
    """Leave out what is the default."""
    if set(cast("tuple[int, ...]", attrs.get("dilations", (1,)))) == {1}:
        attrs.pop("dilations", None)
    rank = at(types, 0).rank - 2
    for key, default in (("taps", _TAPS), ("axes", min(_AXES, rank))):
        if attrs.get(key) == default:
            del attrs[key]


def _filterings(sizes: Sequence[int], attrs: Attrs) -> tuple[Filtering, ...]:
    """Return the filterings of the axes with tiles, by the sizes of their results."""
    taps = int_attr(attrs, "taps") if "taps" in attrs else _TAPS
    dilations = ints_attr(attrs, "dilations") if "dilations" in attrs else (1,) * len(sizes)
    if len(dilations) != len(sizes) or min(dilations) < 1:
        raise GraphError(f"Winograd: dilations {dilations} of {len(sizes)} axes with tiles")
    tile = int_attr(attrs, "tile")
    return tuple(Filtering(tile, taps, size, d) for size, d in zip(sizes, dilations, strict=True))


# --- input ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Windows:
    """The windows of an image [n, outer..., inner..., c]: what is padded, and the tiles of the inner axes."""

    shape: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    filterings: tuple[Filtering, ...]

    @classmethod
    def of(cls, x: Sequence[int], attrs: Attrs) -> _Windows:
        """Raise GraphError if pads do not fit."""
        rank, pads = len(x) - 2, ints_attr(attrs, "pads")
        axes = int_attr(attrs, "axes") if "axes" in attrs else min(_AXES, rank)
        if not 1 <= axes <= min(_AXES, rank) or len(pads) != 2 * rank or min(pads) < 0:
            raise GraphError(f"WinogradInput of shape {tuple(x)} with pads {pads} and tiles of {axes} axes")
        before, after = (0, *pads[:rank], 0), [0, *pads[rank:], 0]
        whole = [d + b + a for d, b, a in zip(x, before, after, strict=True)]
        reach = [(f.taps - 1) * f.dilation for f in _filterings((0,) * axes, attrs)]
        sizes = [size - r for size, r in zip(whole[-1 - axes : -1], reach, strict=True)]
        if min(sizes) < 1:
            raise GraphError(f"WinogradInput of shape {tuple(x)} with pads {pads}: no window fits")
        filterings = _filterings(sizes, attrs)
        for axis, filtering in enumerate(filterings, start=len(x) - 1 - axes):
            after[axis] = filtering.padded - x[axis] - before[axis]
        return cls(tuple(x), before, tuple(after), filterings)

    @property
    def padded(self) -> tuple[int, ...]:
        """The image with what makes the last tiles whole."""
        return tuple(d + b + a for d, b, a in zip(self.shape, self.before, self.after, strict=True))

    @property
    def transformed(self) -> tuple[int, ...]:
        """The shape of V."""
        windows, tiles = zip(*((f.window, f.tiles) for f in self.filterings), strict=True)
        return (*windows, *self.padded[: -1 - len(tiles)], *tiles, self.shape[-1])


def _infer_input(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    if not 3 <= x.rank <= 5 or x.dtype != "float32":
        raise GraphError(f"WinogradInput of {x}; it takes float32 [n, spatial..., c] of one to three axes")
    return [TensorType(_Windows.of(x.shape, attrs).transformed, x.dtype)]


def _input(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    windows = _Windows.of(x.shape, attrs)
    v = np.pad(x, list(zip(windows.before, windows.after, strict=True)))
    for back, f in enumerate(reversed(windows.filterings), start=2):
        axis = v.ndim - back
        taken = np.take(v, f.element(*np.indices((f.tiles, f.window))), axis)
        v = np.moveaxis(np.tensordot(taken, np.array(f.input_matrix, np.float64), ([axis + 1], [1])), -1, 0)
    return [v.astype(np.float32)]


def _te_input(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    windows = _Windows.of(x.shape, attrs)
    padded = pad_stage(x, windows.before, windows.after, 0.0, f"{names[0]}.pad")
    *first, last = windows.filterings
    spatial = spatial_names(x.ndim - 2)
    source = _te_rows(padded, first[0], last, spatial, f"{names[0]}.rows") if first else padded

    def element(*index: Expr) -> Expr:
        position, (a, *image, tile, c) = index[: len(first)], index[len(first) :]
        places = [_column(last, tile, k) if first else [last.element(tile, k)] for k in range(last.window)]
        values = [source(*position, *image, *place, c) for place in places]
        return one_of(a, [input_sum(line, values) for line in last.input_matrix])

    axes = [*("x" for _ in first), "a", "n", *spatial, "c"]
    return [te.compute(windows.transformed, named_axes(axes, element), name=names[0])]


def _te_rows(padded: te.Tensor, own: Filtering, last: Filtering, spatial: list[str], name: str) -> te.Tensor:
    """Return the sums of windows along their first axis; with dilation the other axis has one more
    dimension, of phases."""

    def row(a: Expr, *index: Expr) -> Expr:
        *image, tile, w, c = index
        if last.dilation > 1:
            *image, tile, phase, w, c = index
            w = w * last.dilation + phase
        values = [padded(*image, own.element(tile, k), w, c) for k in range(own.window)]
        return one_of(a, [input_sum(line, values) for line in own.input_matrix])

    phases = [last.dilation] if last.dilation > 1 else []
    image, channels = padded.shape[: -1 - _AXES], padded.shape[-1]
    shape = (own.window, *image, own.tiles, *phases, last.phase_size, channels)
    axes = ["a", "n", *spatial[:-1], *("p" for _ in phases), spatial[-1], "c"]
    return stage(shape, named_axes(axes, row), name)


def _column(filtering: Filtering, tile: Expr, k: int) -> list[Expr]:
    """Return the index in rows of element ``k`` of the window of a tile."""
    column = filtering.place(tile) * filtering.tile + k
    return [column] if filtering.dilation == 1 else [filtering.phase(tile), column]


# --- output ---------------------------------------------------------------------------------------


def _infer_output(types: Types, attrs: Attrs) -> list[TensorType]:
    m, size = at(types, 0), ints_attr(attrs, "size")
    axes = len(size)
    if not 1 <= axes <= _AXES or m.rank < 2 * axes + 2 or m.dtype != "float32" or min(size) < 1:
        raise GraphError(f"WinogradOutput of {m} to {size}")
    windows, tiles = zip(*((f.window, f.tiles) for f in _filterings(size, attrs)), strict=True)
    if m.shape[:axes] != windows or m.shape[-1 - axes : -1] != tiles:
        raise GraphError(f"WinogradOutput of {m} in tiles of {attrs['tile']} to {' x '.join(map(str, size))}")
    return [TensorType((*m.shape[axes : -1 - axes], *size, m.shape[-1]), m.dtype)]


def _output(arrays: Arrays, attrs: Attrs) -> list[Array]:
    y, size = at(arrays, 0), ints_attr(attrs, "size")
    for left, f in zip(range(len(size), 0, -1), _filterings(size, attrs), strict=True):
        y = np.tensordot(y, np.array(f.output_matrix, np.float64), ([0], [1]))
        y = np.moveaxis(y, -1, -1 - left)  # [..., tiles, m, ...]
        results = np.arange(f.size)
        tiles, places = f.tile_of(results), f.result_of(results)
        y = np.moveaxis(y, (-2 - left, -1 - left), (0, 1))[tiles, places]
        y = np.moveaxis(y, 0, -1 - left)
    return [np.ascontiguousarray(y, np.float32)]


def _te_output(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    m, size = at(tensors, 0), ints_attr(attrs, "size")
    filterings = _filterings(size, attrs)
    spatial = spatial_names(m.ndim - len(size) - 2)
    own, rest = filterings[0], filterings[1:]
    columns = _te_columns(m, rest[0], spatial, f"{names[0]}.columns") if rest else m

    def element(*index: Expr) -> Expr:
        *image, w, c = index
        place = [own.tile_of(w)]
        if rest:
            *image, h = image
            place = [own.tile_of(h), rest[0].tile_of(w), rest[0].result_of(w)]
        values = [columns(k, *image, *place, c) for k in range(own.window)]
        result = own.result_of(h if rest else w)
        return one_of(result, [output_sum(line, values) for line in own.output_matrix])

    (result,) = _infer_output([TensorType(m.shape, m.dtype)], attrs)
    return [te.compute(result.shape, named_axes(["n", *spatial, "c"], element), name=names[0])]


def _te_columns(m: te.Tensor, own: Filtering, spatial: list[str], name: str) -> te.Tensor:
    """Return the sums of products along the last axis."""

    def column(x: Expr, *index: Expr) -> Expr:
        *place, i, c = index
        values = [m(x, k, *place, c) for k in range(own.window)]
        return one_of(i, [output_sum(line, values) for line in own.output_matrix])

    shape = (m.shape[0], *m.shape[2:-1], own.tile, m.shape[-1])
    return stage(shape, named_axes(["x", "n", *spatial, "i", "c"], column), name)


# --- registration ---------------------------------------------------------------------------------


def _input_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return instructions along all axes of every window, each counted as a multiply-add."""
    filterings = _Windows.of(at(types, 0).shape, attrs).filterings
    window = filterings[0].window
    lines = len(filterings) * math.prod([window] * (len(filterings) - 1))
    windows = results[0].size // math.prod([window] * len(filterings))
    return 2 * input_operations(filterings[0].input_matrix) * lines * windows


def _output_flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return instructions along all axes of every window, each counted as a multiply-add."""
    del results
    filterings = _filterings(ints_attr(attrs, "size"), attrs)
    window, tile = filterings[0].window, filterings[0].tile
    lines = window + tile if len(filterings) > 1 else 1
    windows = at(types, 0).size // math.prod([window] * len(filterings))
    return 2 * output_operations(filterings[0].output_matrix) * lines * windows


def _transform(
    name: str, infer: InferRule, reference: Reference, compute: Compute, flops: Flops, **own: Attribute
) -> OpDef:
    declared = {
        "tile": Attribute("int", required=True),
        "taps": Attribute("int"),
        "dilations": Attribute("ints"),
        **own,
    }
    return define(
        name,
        "winograd",
        (1, 1),
        infer,
        reference,
        compute,
        declared,
        _complete,
        flops_rule=flops,
        in_onnx=False,
    )


_REQUIRED = Attribute("ints", required=True)
_transform(
    "WinogradInput", _infer_input, _input, _te_input, _input_flops, pads=_REQUIRED, axes=Attribute("int")
)
_transform("WinogradOutput", _infer_output, _output, _te_output, _output_flops, size=_REQUIRED)
