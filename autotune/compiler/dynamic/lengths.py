"""Lengths that a graph computes: where values get them, and how results say them.

They are axes with padding like those of open sizes, but that the graph itself says where a request ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.compiler.dynamic.case import Effect, NodeCase
from autotune.compiler.dynamic.moved import together
from autotune.compiler.dynamic.observed import Observed
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.runtime.axes import Axis, axis, product_of, symbols_of


def part(case: NodeCase) -> Effect:
    """Return a value of which a computed length is there: as it is, or cut to the length's bound."""
    place, symbol = case.observed.traced.parts[case.node.outputs[0]]
    own, node = case.axes(0), case.node
    bound, room = case.observed.sizes[symbol], case.shape(0)[place]

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        if bound == room:
            writer.emit(node.replace(op="Identity", attrs={}))
        elif bound < room:
            writer.emit(node)
        else:
            rest = tuple(bound - room if i == len(own) + place else 0 for i in range(2 * len(own)))
            writer.emit(node.replace(op="Pad", attrs={"pads": rest}))

    return Effect(((*own[:place], axis(symbol), *own[place + 1 :]),), write=write)


Counted = tuple[tuple[int, int, int], ...]


def cut_outputs(observed: Observed, writer: GraphWriter) -> tuple[tuple[str, ...], Counted]:
    """Return the outputs with their computed lengths behind them, and which of them says how much is there of which.

    In an output the request's elements follow one another along each of its axes.
    """
    counts, counted = list[str](), list[tuple[int, int, str]]()
    outputs = [*observed.graph.outputs[: observed.traced.outputs]]
    for number, value in enumerate(outputs):
        for place, each in enumerate(writer.axes[value]):
            if symbols_of([each]).isdisjoint(observed.traced.lengths):
                continue
            outputs[number] = value = _whole(observed, writer, value, place, each)
            count = _count(writer, each)
            counts += [count] if count not in counts else []
            counted.append((number, place, count))
    found = (*outputs, *counts)
    return found, tuple((number, place, found.index(count)) for number, place, count in counted)


def _whole(observed: Observed, writer: GraphWriter, value: str, place: int, along: Axis) -> str:
    """Return a value in which what is there comes first along an axis, which is a number from here on."""
    axes = writer.axes[value]
    found = value if observed.grown.whole(along) is not None else together(writer, value, along, place)
    writer.axes[found] = (*axes[:place], axis(writer.types[found].shape[place]), *axes[place + 1 :])
    return found


def _count(writer: GraphWriter, along: Axis) -> str:
    """Return an extent as int64 [1]."""
    name = writer.once(
        ("count", along),
        lambda: writer.node("Reshape", (writer.size(product_of(along)),), "length", shape=(1,)),
    )
    writer.axes[name] = (axis(1),)
    return name
