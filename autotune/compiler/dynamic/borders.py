"""Operators that add elements at the borders of a request, or move them between channels and places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase, PaddingMask, symbols_text
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.graph.ops.common import float_attr, int_attr, ints_attr
from autotune.runtime.axes import Axes, Axis, Factor, axis, is_symbolic, quotient_of


def padded(case: NodeCase) -> Effect:
    """Pad: what a request's end is padded with lies directly behind it, or is looked up in it."""
    attrs, axes = case.node.attrs, case.axes(0)
    pads, rank = ints_attr(attrs, "pads"), len(case.axes(0))
    grown = [i for i in range(rank) if is_symbolic(axes[i]) and (pads[i], pads[i + rank]) != (0, 0)]
    for place in grown:
        if any(
            ints_attr(each, "pads")[place] != pads[place] for each in case.observed.attrs_of_twins(case.node)
        ):
            raise case.refuse(f"pads before {symbols_text(axes, [place])} by what depends on sizes")
    found = (_longer(case),)
    if attrs["mode"] == "constant":
        return Effect(found, tuple(PaddingMask(0, place, float_attr(attrs, "value")) for place in grown))
    lasts = {place: quotient_of(case.whole(0, place), 1, -1, 1) for place in grown}

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        value = inputs[0]
        for place, last in lasts.items():
            index = _mirrored(case, writer, np.arange(case.results[0].shape[place]) - pads[place], last)
            value = writer.node("Gather", (value, index), f"{value}.padded", axis=place)
        rest = tuple(0 if i % rank in lasts else number for i, number in enumerate(pads))
        writer.emit(case.node.replace(inputs=(value,), attrs={**attrs, "pads": rest}))

    return Effect(found, write=write)


def _longer(case: NodeCase) -> Axes:
    """Return the axes of the result: longer than the operand's by the pads, or else what gives its sizes."""
    axes, pads, grown = case.axes(0), ints_attr(case.node.attrs, "pads"), case.observed.grown
    wholes = [grown.whole(own) for own in axes]
    likely = tuple(
        own if whole is None else axis(grown.one(quotient_of(whole, 1, before + after, 1)))
        for own, whole, before, after in zip(axes, wholes, pads, pads[len(axes) :], strict=False)
    )
    return case.observed.axes_of(case.node.outputs[0], likely)


def _mirrored(case: NodeCase, writer: GraphWriter, places: np.ndarray, last: Factor) -> str:
    """Return the elements that stand at places, some of which are beyond the first or the last of a request."""
    mode = case.node.attrs["mode"]
    if mode not in ("edge", "reflect"):
        raise case.refuse(f"pads by mode {mode} along an axis that grows")
    end = writer.size(last)
    inside = writer.constant("places", np.abs(places) if mode == "reflect" else np.maximum(places, 0))
    if mode == "reflect":
        behind = writer.node("Sub", (end, inside), "behind")
        inside = writer.node("Sub", (end, writer.node("Abs", (behind,), "behind")), "index")
        inside = writer.node("Max", (inside, writer.number(0)), "index")
    return writer.node("Min", (inside, end), "index")


def shuffled(case: NodeCase) -> Effect:
    """Move elements between channels and neighbouring places: blocks of these are as many for each request."""
    node, axes, shape = case.node, case.axes(0), case.results[0].shape
    block, channels = (
        int_attr(node.attrs, "blocksize"),
        1 if node.attrs["layout"] == "NCHW" else len(axes) - 1,
    )
    case.require_plain(0, [channels], "moves")
    found: list[Axis] = []
    for place, (own, size) in enumerate(zip(axes, shape, strict=True)):
        found.append(
            axis(size) if place in (0, channels) or not is_symbolic(own) else _blocks(case, place, block)
        )
    found[0] = axes[0]
    return Effect((tuple(found),))


def _blocks(case: NodeCase, place: int, block: int) -> Axis:
    extent = case.whole(0, place)
    if case.node.op == "DepthToSpace":
        return axis(case.observed.grown.one(quotient_of(extent, block, 0, 1)))
    found = case.observed.grown.divided(extent, block)
    if found is None:
        raise case.refuse(
            f"takes blocks of {block} along {symbols_text(case.axes(0), [place])}: give it such a step"
        )
    return axis(found)


__all__ = ["padded", "shuffled"]
