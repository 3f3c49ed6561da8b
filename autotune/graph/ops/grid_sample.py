"""GridSample(x, grid): an image read at places that another tensor says, as in spatial transformer networks.

grid [n, spatial..., rank] gives for each element of the result a place in x, coordinates of the innermost axis first,
-1 and 1 being the ends: the middles of the outermost elements with align_corners=1, their outer edges otherwise.
``mode`` "nearest" takes the element next to the place (halves to even), "linear" and "cubic" blend 2 and 4 of them an
axis. Beyond its ends an image is 0 (padding_mode "zeros"), goes on with its last elements ("border"), or is mirrored
there ("reflection"). Jaderberg et al., Spatial Transformer Networks, 2015; sampled as PyTorch does.

Attributes: mode, padding_mode, align_corners, layout. te stages: one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.arithmetic import ARRAYS, EXPRESSIONS, Arithmetic
from autotune.graph.ops.common import FLOATS, Expr, at, int_attr, stage, str_attr
from autotune.graph.ops.definition import LAYOUT, Arrays, Attribute, Tensors, Types
from autotune.graph.ops.resize import blend_weights
from autotune.graph.ops.wide import define_in_float32
from autotune.te.dtypes import is_float

_BEYOND = 3
"""So many elements away from an image, nothing of it is seen."""


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, grid, last = at(types, 0), at(types, 1), attrs["layout"] == "NHWC"
    rank = x.rank - 2
    spatial = x.shape[1:-1] if last else x.shape[2:]
    fits = rank >= 1 and grid.rank == rank + 2 and grid.shape[-1] == rank and grid.shape[0] == x.shape[0]
    if not fits or 0 in spatial:
        raise GraphError(
            f"GridSample: grid {grid} does not fit x {x}; it takes [{x.shape[0]}, ..., {rank}] with {rank} dimensions "
            "between, and an image with elements"
        )
    if grid.dtype not in FLOATS or (attrs["mode"] != "nearest" and not is_float(x.dtype)):
        raise GraphError(
            f"GridSample of x {x} by grid {grid}, mode {attrs['mode']}: it blends and takes floats"
        )
    channels = x.shape[-1] if last else x.shape[1]
    places = grid.shape[1:-1]
    shape = (x.shape[0], *places, channels) if last else (x.shape[0], channels, *places)
    return [TensorType(shape, x.dtype)]


def _sampled(
    a: Arithmetic,
    read: Callable[[list[Any]], Any],
    spatial: Sequence[int],
    places: Sequence[Any],
    attrs: Attrs,
    dtype: str,
) -> Any:
    """Return the value at a place, of which the coordinates are given outermost first; ``read`` reads x."""
    mode, taps = str_attr(attrs, "mode"), []
    for extent, g in zip(spatial, places, strict=True):
        place = _place(a, g, extent, attrs)
        if mode == "nearest":
            found = [(0, None)]
        else:
            place, rest = a.floor(place), place - a.floor(place)
            found = blend_weights(mode, a.real(rest, dtype))
        k = a.integer(place)
        taps.append([(*_inside(a, k + offset, extent, attrs), weight) for offset, weight in found])

    def blended(cell: list[Any], conditions: list[Any]) -> Any:
        if len(cell) == len(spatial):
            value = read(cell)
            for condition in conditions:
                value = a.where(condition, value, 0)
            return value
        total = None
        for k, seen, weight in taps[len(cell)]:
            part = blended([*cell, k], conditions if seen is None else [*conditions, seen])
            part = part if weight is None else part * weight
            total = part if total is None else total + part
        return total

    return blended([], [])


def _place(a: Arithmetic, g: Any, extent: int, attrs: Attrs) -> Any:
    """Return the place in the image of a coordinate of the grid, near enough to tell what is there."""
    corners, padding = int_attr(attrs, "align_corners"), str_attr(attrs, "padding_mode")
    place = (g + 1) * (0.5 * (extent - 1)) if corners else ((g + 1) * float(extent) - 1) * 0.5
    if attrs["mode"] == "nearest":
        place = a.nearest(place)
    if padding == "border":
        return a.low(a.high(place, 0.0), float(extent - 1))
    if padding == "zeros":
        return a.low(a.high(place, float(-_BEYOND)), float(extent - 1 + _BEYOND))
    if corners:
        return _mirrored(a, place, 2.0 * (extent - 1)) if extent > 1 else place * 0
    return _mirrored(a, place + 0.5, 2.0 * extent) - 0.5


def _mirrored(a: Arithmetic, x: Any, period: Any) -> Any:
    """Return a value that repeats with the period, forwards and then backwards."""
    x = x - a.floor(x * (1 / period)) * period
    return a.low(x, period - x)


def _inside(a: Arithmetic, k: Any, extent: int, attrs: Attrs) -> tuple[Any, Any]:
    """Return the element that stands at index k, and the condition under which there is one; None: always."""
    padding = str_attr(attrs, "padding_mode")
    if padding == "zeros":
        return a.within(k, extent), (k >= 0) & (k < extent) if a is ARRAYS else te.all(k >= 0, k < extent)
    if padding == "reflection":
        corners = int_attr(attrs, "align_corners")
        period = 2 * (extent - 1) if corners else 2 * extent
        if period:
            rest = k % period
            k = a.low(rest, period - rest if corners else period - 1 - rest)
    return a.within(k, extent), None


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x, grid, last = at(arrays, 0), at(arrays, 1), attrs["layout"] == "NHWC"
    (result,) = _infer([TensorType.of(x), TensorType.of(grid)], attrs)
    x = x if last else np.moveaxis(x, 1, -1)
    spatial = x.shape[1:-1]
    batch = np.arange(x.shape[0]).reshape(-1, *[1] * len(spatial))
    places = [grid[..., i, None] for i in reversed(range(len(spatial)))]

    def read(cell: list[Any]) -> Any:
        return x[(batch, *(k[..., 0] for k in cell))]

    found = _sampled(ARRAYS, read, spatial, places, attrs, str(x.dtype)).astype(x.dtype)
    return [np.ascontiguousarray(found if last else np.moveaxis(found, -1, 1)).reshape(result.shape)]


def _compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, grid, last = at(tensors, 0), at(tensors, 1), attrs["layout"] == "NHWC"
    (result,) = _infer([TensorType(t.shape, t.dtype) for t in (x, grid)], attrs)
    spatial = x.shape[1:-1] if last else x.shape[2:]

    def element(*index: Expr) -> Expr:
        n, position = index[0], index[1:-1] if last else index[2:]
        places = [grid(n, *position, i) for i in reversed(range(len(spatial)))]

        def read(cell: list[Any]) -> Any:
            return x(n, *cell, index[-1]) if last else x(n, index[1], *cell)

        return _sampled(EXPRESSIONS, read, spatial, places, attrs, x.dtype)

    return [stage(result.shape, element, names[0])]


def _flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return a product and a sum for each element that is blended."""
    taps = {"nearest": 0, "linear": 2, "cubic": 4}[str_attr(attrs, "mode")]
    return results[0].size * int(2 * taps ** (at(types, 0).rank - 2))


define_in_float32(
    "GridSample",
    "movement",
    (2, 2),
    _infer,
    _reference,
    _compute,
    {
        "align_corners": Attribute("int", 0),
        "layout": LAYOUT,
        "mode": Attribute("str", "linear", choices=("nearest", "linear", "cubic")),
        "padding_mode": Attribute("str", "zeros", choices=("zeros", "border", "reflection")),
    },
    flops_rule=_flops,
)
