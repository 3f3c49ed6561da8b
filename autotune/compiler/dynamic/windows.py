"""Windows along axes that grow: convolutions, pools, and what takes whole images.

A window of a request may reach beyond its last element into padding, which it must find there as zeros, or as the least
number of a maximum: the operand is masked, which is computed where it is produced. How many places a window has is an
expression in the request's size: ``(height+1)/2``. Averages that leave padding out divide by numbers of elements
that are computed for the request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase, PaddingMask, symbols_text
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ir import ABSENT, Array, Attr
from autotune.graph.ops.common import ints_attr
from autotune.runtime.axes import Axis, Factor, axis, is_symbolic, quotient_of


@dataclass(frozen=True)
class _Along:
    """A window along an axis of the first operand; ``same`` names the rule that keeps the size, "SAME_UPPER" or
    "SAME_LOWER", where its padding depends on the size."""

    number: int
    place: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    same: str = ""

    @property
    def span(self) -> int:
        """Elements from the first that a window takes to its last."""
        return (self.kernel - 1) * self.dilation + 1

    def count(self, extent: Factor, ceil: bool) -> Factor:
        """Return the places of the window over so many elements."""
        if self.same:
            return quotient_of(extent, 1, self.stride - 1, self.stride)
        more = self.end - self.span + self.stride
        if ceil:  # the last window begins before the padding at the end
            return quotient_of(extent, 1, self.begin + min(0, more) + self.stride - 1, self.stride)
        return quotient_of(extent, 1, self.begin + more, self.stride)

    def begins(self, extents: Array) -> Array:
        """Return the padding before the first element, of images of such extents."""
        if not self.same:
            return np.full_like(extents, self.begin)
        total = np.maximum(-(-extents // self.stride) * self.stride - self.stride + self.span - extents, 0)
        found: Array = total // 2 if self.same == "SAME_UPPER" else total - total // 2
        return found

    def shifts(self, case: NodeCase) -> bool:
        """Return whether a request's first window begins elsewhere than the bucket's."""
        return self.same != "" and bool((self.begins(_extents(case, self)) != self.begin).any())


def _extents(case: NodeCase, along: _Along) -> Array:
    """Return the extents that requests may have of an operand."""
    found = case.observed.grown.values(case.whole(0, along.place))
    if found is None:
        raise case.refuse(f"has padding that depends on a sum, {symbols_text(case.axes(0), [along.place])}")
    return found


def _windows(case: NodeCase) -> list[_Along]:
    """Return the windows along all spatial axes, with the rules of their padding."""
    axes = case.axes(0)
    return [_padded_as_seen(case, each) if is_symbolic(axes[each.place]) else each for each in _given(case)]


def _given(case: NodeCase) -> Iterator[_Along]:
    """Yield the same with the padding that they have in the bucket."""
    attrs = case.node.attrs
    kernel, strides = ints_attr(attrs, "kernel_shape"), ints_attr(attrs, "strides")
    dilations, pads = ints_attr(attrs, "dilations"), ints_attr(attrs, "pads")
    for i, place in enumerate(_spatial(case)):
        yield _Along(i, place, kernel[i], strides[i], dilations[i], pads[i], pads[i + len(kernel)])


def _padded_as_seen(case: NodeCase, along: _Along) -> _Along:
    """Return a window with the rule of its padding at all sizes: fixed numbers, or those that keep the size."""
    node, rank = case.node, len(_spatial(case))
    for rule in case.observed.traced.rules.get(node.outputs[0], ()):
        if rule in ("SAME_UPPER", "SAME_LOWER"):
            return replace(along, same=rule)
    every = [ints_attr(each, "pads") for each in (node.attrs, *case.observed.attrs_of_twins(node))]
    if len({(pads[along.number], pads[along.number + rank]) for pads in every}) > 1:
        raise case.refuse(
            f"has padding along {symbols_text(case.axes(0), [along.place])} that depends on it in an unknown way"
            "\n  give the range a step that keeps it, such as 320..1280:+32"
        )
    return along


def _count(case: NodeCase, along: _Along) -> Factor:
    ceil = bool(case.node.attrs.get("ceil_mode"))
    return case.observed.grown.one(along.count(case.whole(0, along.place), ceil))


def _spatial(case: NodeCase) -> range:
    rank = len(case.axes(0))
    return range(1, rank - 1) if case.node.attrs["layout"] == "NHWC" else range(2, rank)


def _channel(case: NodeCase) -> int:
    return len(case.axes(0)) - 1 if case.node.attrs["layout"] == "NHWC" else 1


def _results(case: NodeCase, grown: Mapping[int, Axis]) -> tuple[Axis, ...]:
    """Return the axes of a result: the batch's, those that grow, and extents."""
    shape = case.results[0].shape
    return (case.axes(0)[0], *(grown.get(i, axis(size)) for i, size in enumerate(shape) if i))


def _moved(case: NodeCase) -> dict[int, Axis]:
    """Return the axes of a result along which a window moves over one that grows."""
    return {each.place: axis(_count(case, each)) for each in _grown(case)}


def _grown(case: NodeCase) -> list[_Along]:
    return [each for each in _windows(case) if is_symbolic(case.axes(0)[each.place])]


def _convolution(case: NodeCase) -> Effect:
    """Mask what a window may see beyond the request; algorithms may mix neighbours that one of 1 does not see."""
    case.require_plain(0, [_channel(case)], "sums")
    _require_plain_weights(case)
    reaching = [each for each in _grown(case) if each.kernel > 1 or each.begin or each.end]
    if reaching:
        return _over(case, reaching, _zero(case))
    channel, results = _channel(case), (_results(case, _moved(case)),)
    if case.node.op != "Conv":
        return Effect(results)
    masks = case.mixed(_spatial(case), case.shape(0)[channel], case.results[0].shape[channel])
    return Effect(results, tuple(masks))


def _zero(case: NodeCase) -> float | str:
    """Return what an image is padded with: the number that stands for zero in quantised ones."""
    zero = case.node.inputs[2:3] if case.node.op != "Conv" else ()
    return 0.0 if zero in ((), (ABSENT,)) else zero[0]


def _over(case: NodeCase, reaching: Sequence[_Along], fill: float | str) -> Effect:
    """Return windows, some of which reach beyond a request, where they see ``fill``."""
    shifted = [each for each in reaching if each.shifts(case)]
    masks = tuple(PaddingMask(0, each.place, fill) for each in reaching if each not in shifted)
    results = (_results(case, _moved(case)),)
    if not shifted:
        return Effect(results, masks)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        value = inputs[0]
        for each in shifted:
            value = _shifted(case, writer, value, each, fill)
        writer.emit(case.node.replace(inputs=(value, *inputs[1:]), attrs=_without_pads(case, shifted)))

    return Effect(results, masks, write=write)


def _without_pads(case: NodeCase, axes: Sequence[_Along]) -> dict[str, Attr]:
    """Return a node's attributes with no padding along some axes."""
    rank = len(_spatial(case))
    left = {i for each in axes for i in (each.number, each.number + rank)}
    pads = tuple(0 if i in left else pad for i, pad in enumerate(ints_attr(case.node.attrs, "pads")))
    return {**case.node.attrs, "pads": pads}


def _begin(case: NodeCase, writer: GraphWriter, along: _Along) -> str:
    """Return the padding before the first element of a request, int64 []."""
    number = writer.number
    if not along.shifts(case):
        return number(along.begin)
    size = writer.size(case.whole(0, along.place))
    last = writer.node("Mul", (writer.size(_count(case, along)), number(along.stride)), "last")
    end = writer.node("Add", (last, number(along.span - along.stride)), "end")
    total = writer.node("Max", (writer.node("Sub", (end, size), "padding"), number(0)), "padding")
    begin = writer.node("Div", (total, number(2)), "begin")
    return begin if along.same == "SAME_UPPER" else writer.node("Sub", (total, begin), "begin")


def _shifted(case: NodeCase, writer: GraphWriter, value: str, along: _Along, fill: float | str) -> str:
    """Return an image with its padding along an axis, as much of it before the first element as a request has."""
    size, number = writer.size(case.whole(0, along.place)), writer.number
    whole = (case.results[0].shape[along.place] - 1) * along.stride + along.span
    index = writer.node("Sub", (writer.places(whole), _begin(case, writer, along)), "index")
    before = writer.node("GreaterOrEqual", (index, number(0)), "is_inside")
    inside = writer.node("And", (before, writer.node("Less", (index, size), "is_before")), "is_inside")
    most = number(writer.types[value].shape[along.place] - 1)
    index = writer.node("Min", (writer.node("Max", (index, number(0)), "index"), most), "index")
    taken = writer.node("Gather", (value, index), f"{value}.moved", axis=along.place)
    return writer.where(inside, taken, fill, along.place)


def _require_plain_weights(case: NodeCase) -> None:
    for index, other in enumerate(case.operands[1:], 1):
        if other is not None:
            case.require_plain(index, range(len(other)), "has weights that grow")


def _transposed(case: NodeCase) -> Effect:
    case.require_plain(0, [_channel(case)], "sums")
    _require_plain_weights(case)
    attrs, found = case.node.attrs, dict[int, Axis]()
    extra = ints_attr(attrs, "output_padding")
    if any(
        (ints_attr(each, "pads"), ints_attr(each, "output_padding")) != (ints_attr(attrs, "pads"), extra)
        for each in case.observed.attrs_of_twins(case.node)
    ):
        raise case.refuse("has other padding at other sizes")
    for each in _given(case):
        if is_symbolic(case.axes(0)[each.place]):
            plus = each.span + extra[each.number] - each.begin - each.end - each.stride
            grown = quotient_of(case.whole(0, each.place), each.stride, plus, 1)
            found[each.place] = axis(case.observed.grown.one(grown))
    return Effect((_results(case, found),), tuple(PaddingMask(0, place, 0.0) for place in found))


def _reaching(case: NodeCase) -> list[_Along]:
    """Return the windows that may reach beyond the last element of a request."""
    ceil = bool(case.node.attrs.get("ceil_mode"))
    return [each for each in _grown(case) if ceil or each.end or each.same]


def _max_pool(case: NodeCase) -> Effect:
    return _over(case, _reaching(case), -math.inf)


def _average_pool(case: NodeCase) -> Effect:
    """Average; where the padding at a request's end is not counted, it is a sum divided by what is counted."""
    attrs = case.node.attrs
    ceil, counted = bool(attrs["ceil_mode"]), bool(attrs.get("count_include_pad"))
    reaching = _reaching(case)
    if not reaching or case.node.op == "SumPool" or (counted and not ceil):
        return _over(case, reaching, 0.0)
    shifted = [each for each in reaching if each.shifts(case)]

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        value = inputs[0]
        for each in shifted:
            value = _shifted(case, writer, value, each, 0.0)
        plain = {
            key: each for key, each in _without_pads(case, shifted).items() if key != "count_include_pad"
        }
        found = writer.node("SumPool", (value,), f"{case.node.outputs[0]}.sum", **plain)
        dtype = writer.types[found].dtype
        for each in _windows(case):
            count = _counted(case, writer, each, counted)
            found = writer.node("Div", (found, writer.node("Cast", (count,), "count", to=dtype)), "mean")
        writer.emit(case.node.replace(op="Identity", inputs=(found,), attrs={}))

    masks = tuple(PaddingMask(0, each.place, 0.0) for each in reaching if each not in shifted)
    return Effect((_results(case, _moved(case)),), masks, write=write)


def _counted(case: NodeCase, writer: GraphWriter, along: _Along, padding: bool) -> str:
    """Return the elements that the windows along an axis count, int64 along this axis of the result."""
    size = case.results[0].shape[along.place]
    tap = np.arange(size)[:, None] * along.stride + np.arange(along.kernel) * along.dilation
    places, begin = writer.constant("places", tap), _begin(case, writer, along)
    end = writer.node("Add", (begin, writer.size(case.whole(0, along.place))), "end")
    last = writer.node("Add", (end, writer.number(along.end if padding else 0)), "end")
    first = writer.number(0) if padding else begin
    before = writer.node("Less", (places, last), "is_counted")
    inside = writer.node("GreaterOrEqual", (places, first), "is_inside")
    each = writer.node("Cast", (writer.node("And", (before, inside), "is_counted"),), "one", to="int64")
    total = writer.node("ReduceSum", (each,), "count", axes=(1,), keepdims=0)
    some = writer.node("Max", (total, writer.number(1)), "count")
    shape = tuple(size if i == along.place else 1 for i in range(len(case.axes(0))))
    return writer.node("Reshape", (some,), "count", shape=shape)


def _whole_image(case: NodeCase) -> Effect:
    """Reduce all of an image: a mean is divided by how many elements a request has."""
    places = tuple(_spatial(case))
    grown = [place for place in places if is_symbolic(case.axes(0)[place])]
    results = (_results(case, {}),)
    if not grown:
        return Effect(results)
    mean = case.node.op == "GlobalAveragePool"
    masks = tuple(PaddingMask(0, place, 0.0 if mean else -math.inf) for place in grown)

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        attrs: dict[str, Attr] = {"axes": places, "keepdims": 1}
        if not mean:
            writer.emit(case.node.replace(op="ReduceMax", inputs=tuple(inputs), attrs=attrs))
            return
        total = writer.node("ReduceSum", inputs, f"{case.node.outputs[0]}.sum", **attrs)
        count = writer.product([factor for place in places for factor in case.axes(0)[place]])
        divisor = writer.node("Cast", (count,), "divisor", to=writer.types[total].dtype)
        writer.emit(case.node.replace(op="Div", inputs=(total, divisor), attrs={}))

    return Effect(results, masks, write=write)


def _channels_beside(case: NodeCase) -> Effect:
    """Normalise over neighbouring channels, each place for itself."""
    case.require_plain(0, [_channel(case)], "looks beyond single places")
    return Effect((case.axes(0),))


RULES: Mapping[str, Callable[[NodeCase], Effect]] = {
    "AveragePool": _average_pool,
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), _convolution),
    "ConvTranspose": _transposed,
    "GlobalAveragePool": _whole_image,
    "GlobalMaxPool": _whole_image,
    "LRN": _channels_beside,
    "MaxPool": _max_pool,
    "SumPool": _average_pool,
}

__all__ = ["RULES"]
