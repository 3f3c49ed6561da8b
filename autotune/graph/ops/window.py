"""The sliding window that convolution and pooling share: sizes, padding, taps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs
from autotune.graph.ops.common import Expr, Index, ints_attr, pad_stage, spatial_names
from autotune.graph.ops.definition import Attribute

WINDOW_ATTRIBUTES: Mapping[str, Attribute] = {
    "strides": Attribute("ints"),
    "dilations": Attribute("ints"),
    "pads": Attribute("ints"),
}


@dataclass(frozen=True)
class Window:
    """A window over the spatial dimensions; all tuples are outermost first.

    `extra` is what a pool with ceil_mode reads beyond the end padding.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pad_begin: tuple[int, ...]
    pad_end: tuple[int, ...]
    out_size: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.size)

    def reduce_axes(self) -> list[te.IterVar]:
        """Return one reduce axis a dimension: rd, rh, rw."""
        names = spatial_names(self.rank)
        return [te.reduce_axis((0, k), name=f"r{n}") for n, k in zip(names, self.kernel, strict=True)]

    def source(self, position: Index, tap: Index) -> list[Expr]:
        """Return the index at which an output position reads the padded input at a tap of the window."""
        steps = zip(position, self.strides, tap, self.dilations, strict=True)
        return [p * s + t * d for p, s, t, d in steps]

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Yield each position of the window with the slices of the padded input that it sees."""
        for tap in product(*(range(k) for k in self.kernel)):
            steps = zip(tap, self.dilations, self.out_size, self.strides, strict=True)
            yield tap, tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in steps)

    def reachable(self) -> Window:
        """Return the window without taps that only ever see padding, and the padding without cells that
        are then not read."""
        kernel, begin, end = [], [], []
        for i, size in enumerate(self.size):
            stride, dilation, before = self.strides[i], self.dilations[i], self.pad_begin[i]
            last = (self.out_size[i] - 1) * stride
            first = max(0, -((last - before) // dilation))  # tap * dilation + last >= before
            first = min(first, before // dilation)  # what is left of the padding is not negative
            beyond = min(self.kernel[i], -(-(before + size) // dilation))  # tap * dilation < before + size
            kernel.append(max(1, beyond - first))
            begin.append(before - first * dilation)
            end.append(last + (kernel[i] - 1) * dilation + 1 - begin[i] - size)
        extra = tuple(max(0, e - given) for e, given in zip(end, self.pad_end, strict=True))
        ends = tuple(max(0, min(e, given)) for e, given in zip(end, self.pad_end, strict=True))
        return replace(self, kernel=tuple(kernel), pad_begin=tuple(begin), pad_end=ends, extra=extra)

    def pad_array(self, x: Array, value: float) -> Array:
        """Pad a channels-last array."""
        ends = [e + a for e, a in zip(self.pad_end, self.extra, strict=True)]
        if not any(self.pad_begin) and not any(ends):
            return x
        widths = [(0, 0), *zip(self.pad_begin, ends, strict=True), (0, 0)]
        return np.pad(x, widths, constant_values=value)

    def pad_tensor(self, x: te.Tensor, channels_last: bool, value: Expr, name: str) -> te.Tensor:
        """Return a padding stage in the tensor's layout; the tensor itself if nothing is padded."""
        ends = tuple(e + a for e, a in zip(self.pad_end, self.extra, strict=True))
        if not any(self.pad_begin) and not any(ends):
            return x
        before = (0, *self.pad_begin, 0) if channels_last else (0, 0, *self.pad_begin)
        after = (0, *ends, 0) if channels_last else (0, 0, *ends)
        return pad_stage(x, before, after, value, name)


def complete_window(rank: int, attrs: dict[str, Attr]) -> None:
    """Fill in strides, dilations and pads of a window of `rank` dimensions."""
    attrs.setdefault("strides", (1,) * rank)
    attrs.setdefault("dilations", (1,) * rank)
    attrs.setdefault("pads", (0,) * 2 * rank)


def window_of(op: str, x: Sequence[int], attrs: Attrs, ceil_mode: bool = False) -> Window:
    """Return the window of a node from its input's shape, complete attributes and `layout`.

    Raises GraphError if the attributes do not fit the rank or the window does not fit the input.
    """
    rank = len(x) - 2
    size = tuple(x[1:-1]) if attrs["layout"] == "NHWC" else tuple(x[2:])
    check_window(op, attrs, rank)
    kernel, strides = ints_attr(attrs, "kernel_shape"), ints_attr(attrs, "strides")
    dilations, pads = ints_attr(attrs, "dilations"), ints_attr(attrs, "pads")
    out, extra = [], []
    for i in range(rank):
        padded = size[i] + pads[i] + pads[rank + i]
        span = (kernel[i] - 1) * dilations[i] + 1
        if span > padded and not (ceil_mode and padded > 0):
            raise GraphError(
                f"{op}: a window of {span} elements does not fit into dimension {i} of {size}, "
                f"which has {padded} with padding"
            )
        count = (padded - span) // strides[i] + 1
        if ceil_mode:
            count = -((span - padded) // strides[i]) + 1
            if (count - 1) * strides[i] >= size[i] + pads[i]:
                count -= 1  # the last window would start in the end padding
        out.append(count)
        extra.append(max(0, (count - 1) * strides[i] + span - padded))
    return Window(size, kernel, strides, dilations, pads[:rank], pads[rank:], tuple(out), tuple(extra))


def check_window(op: str, attrs: Attrs, rank: int) -> None:
    """Raise GraphError unless kernel, strides, dilations and pads are what `rank` dimensions take."""
    for key, length, least in (
        ("kernel_shape", rank, 1),
        ("strides", rank, 1),
        ("dilations", rank, 1),
        ("pads", 2 * rank, 0),
    ):
        value = ints_attr(attrs, key)
        if len(value) != length or any(v < least for v in value):
            raise GraphError(f"{op}: {key} = {value}; it takes {length} ints, each >= {least}")
