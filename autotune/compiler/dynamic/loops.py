"""Loops along an axis with padding, and loops whose bodies have values with such axes.

The body is gone through like a model. Where the steps themselves are padding, what is carried stays as it is in them:
``Where(index < size, new, old)``. So a loop from the end on begins at the request's last element, and what a loop ends
with is that of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from autotune.compiler.dynamic.case import Effect, NodeCase, PaddedGraph
from autotune.compiler.dynamic.observed import Observed
from autotune.compiler.dynamic.writer import GraphWriter
from autotune.frontends.onnx.importer import Begun, Traced
from autotune.graph.ir import Attrs, Graph, TensorType, fresh_name
from autotune.graph.ops.branch import BranchParts
from autotune.graph.ops.loop import LoopParts, body_text, lifted
from autotune.runtime.axes import Axes, Axis, Factor, axis, is_symbolic

PaddedBody: TypeAlias = Callable[[Observed, Mapping[str, Axes]], PaddedGraph]


def repeated(case: NodeCase, padded: PaddedBody) -> Effect:
    """Return the effect of a loop; ``padded`` gives the graph of a body. Raises PaddingError."""
    parts = LoopParts.of(case.node.attrs)
    along, size = _steps(case, parts)
    inner = padded(_body_of(case), dict(zip(parts.body.inputs, _axes(case, parts), strict=True)))
    results = [inner.outputs[value] for value in parts.body.outputs]
    for index, (value, found) in enumerate(zip(parts.body.inputs, results[: parts.carried], strict=False)):
        if found != inner.inputs[value]:
            raise case.refuse(f"carries value {index} with axes {inner.inputs[value]} that become {found}")
    ends = _ends(case, parts) if size is not None else []

    def write(writer: GraphWriter, inputs: Sequence[str]) -> None:
        body = _WrittenBody(inner.graph, parts, [*inputs])
        body.capture({name: writer.size(factor) for factor, name in inner.size_inputs.items()})
        if size is not None:
            body.keep(ends, writer.size(size), writer.constant("steps", np.arange(parts.trips)))
        graph, constants = lifted(body.graph())
        named = [writer.constant(name, array) for name, array in constants.items()]
        attrs = {**case.node.attrs, "body": body_text(graph), **body.counts()}
        writer.emit(case.node.replace(inputs=(*body.operands, *named), attrs=attrs))

    collected = tuple((along, *axes) for axes in results[parts.carried :])
    return Effect((*results[: parts.carried], *collected), write=write)


def passed_on(case: NodeCase) -> Effect:
    """Return the effect of a choice of which one branch has no meaning, and the other passes values on."""
    parts = BranchParts.of(case.node.attrs)
    if parts.then is not None or any(node.op != "Identity" for node in parts.other.nodes):
        raise case.refuse("chooses between branches when it runs")
    made, given = parts.other.producers(), parts.other.inputs
    sources = [made[value].inputs[0] if value in made else value for value in parts.other.outputs]
    return Effect(tuple(case.axes(1 + given.index(source)) for source in sources))


def _steps(case: NodeCase, parts: LoopParts) -> tuple[Axis, Factor | None]:
    """Return the axis of the steps, and the factor that says how many a request has where these are not all."""
    first = parts.carried
    found = [case.axes(first + n)[0] for n in range(parts.scanned)]
    if not found or not any(is_symbolic(each) for each in found):
        if any(LoopParts.of(attrs).trips != parts.trips for attrs in case.observed.attrs_of_twins(case.node)):
            raise case.refuse("has a number of steps that depends on sizes, and scans no axis of them")
        return axis(parts.trips), None
    if not all(case.same(found[0], each) for each in found):
        raise case.refuse(f"scans axes that grow differently, {', '.join(map(str, found))}")
    return found[0], case.whole(first, 0)


def _axes(case: NodeCase, parts: LoopParts) -> list[Axes]:
    """Return axes of the body's inputs: an element of what is scanned, and what is carried or captured."""
    scanned = range(parts.carried, parts.carried + parts.scanned)
    return [case.axes(n)[1:] if n in scanned else case.axes(n) for n in range(len(case.node.inputs))]


def _body_of(case: NodeCase) -> Observed:
    """Return the body as it was observed at the bucket's sizes, and at the others."""
    own = case.observed
    others = own.attrs_of_twins(case.node)
    twins = [
        replace(twin, traced=_traced(attrs, twin.traced))
        for twin, attrs in zip(own.twins, others, strict=True)
    ]
    known = [(at, its.loops.get(case.node.outputs[0])) for at, its in own.begun]
    begun = [(at, _begun(attrs)) for at, attrs in known if attrs is not None]
    return replace(own, traced=_traced(case.node.attrs, own.traced), twins=twins, begun=begun)


def _traced(attrs: Attrs, whole: Traced) -> Traced:
    body = LoopParts.of(attrs).body
    return Traced(body, {}, body.types, body.constants, whole.rules)


def _begun(attrs: Attrs) -> Begun:
    body = LoopParts.of(attrs).body
    return Begun.of(body.types, body.constants, body.nodes)


def _ends(case: NodeCase, parts: LoopParts) -> list[int]:
    """Return for each carried value whether its steps go from the end: it goes together with what it is computed from,
    and what is computed from it. Raises PaddingError where these go from both ends."""
    body, carried = parts.body, parts.carried
    moving = {name: n for n, name in enumerate(body.inputs[: carried + parts.scanned])}
    group = {name: {name} for name in moving}
    ends = {name: parts.from_end[n - carried] for name, n in moving.items() if n >= carried}
    for number, value in enumerate(body.outputs):
        own = [name for name in _read(body, value) if name in moving]
        own += [body.inputs[number]] if number < carried else []
        joined = set().union(*(group[name] for name in own))
        group.update(dict.fromkeys(joined, joined))
        collected = parts.from_end[parts.scanned + number - carried] if number >= carried else None
        if collected is not None and any(ends.setdefault(name, collected) != collected for name in joined):
            raise case.refuse("goes from both ends of an axis that grows, in the same values")
    found = [{ends[name] for name in group[value] if name in ends} for value in body.inputs[:carried]]
    if any(len(each) > 1 for each in found):
        raise case.refuse("goes from both ends of an axis that grows, in the same values")
    return [min(each, default=0) for each in found]


def _read(body: Graph, value: str) -> set[str]:
    """Return the inputs of a body that a value of it is computed from."""
    producers, found, open_ = body.producers(), set[str](), [value]
    while open_:
        name = open_.pop()
        if name in found:
            continue
        found.add(name)
        open_ += producers[name].inputs if name in producers else ()
    return found.intersection(body.inputs)


@dataclass
class _WrittenBody:
    """The body of a loop as it is put together, and the ``operands`` of its inputs."""

    padded: Graph
    parts: LoopParts
    operands: list[str]

    def __post_init__(self) -> None:
        graph, own = self.padded, len(self.parts.body.inputs)
        self._writer = GraphWriter({}, graph.types, graph.constants, [*graph.types])
        self._writer.nodes = [*graph.nodes]
        self._inputs, self._outputs = [*graph.inputs[:own]], [*graph.outputs]
        self._scanned: list[int] = []

    def capture(self, values: Mapping[str, str]) -> None:
        """Add inputs that are the same in every step, by name."""
        self._inputs += values
        self.operands += values.values()

    def keep(self, ends: Sequence[int], size: str, steps: str) -> None:
        """Let carried values stay as they are in steps beyond a request's size; ``steps`` are all steps' numbers."""
        number, real = self._input("size"), {}
        self.capture({number: size})
        for end in dict.fromkeys(ends):
            step = self._input("step")
            place = self.parts.carried + self.parts.scanned + len(self._scanned)
            self._inputs.insert(place, step)
            self.operands.insert(place, steps)
            self._scanned.append(end)
            real[end] = self._writer.node("Less", (step, number), "is_real")
        for n, end in enumerate(ends):
            both = (self._outputs[n], self._inputs[n])
            self._outputs[n] = self._writer.node("Where", (real[end], *both), f"{both[0]}.kept")

    def _input(self, name: str) -> str:
        found = fresh_name(name, self._writer.types)
        self._writer.types[found] = TensorType((), "int64")
        return found

    def counts(self) -> Attrs:
        """Return attributes that say how many values are scanned, and from where."""
        scanned, ends = self.parts.scanned, self.parts.from_end
        return {
            "scanned": scanned + len(self._scanned),
            "from_end": (*ends[:scanned], *self._scanned, *ends[scanned:]),
        }

    def graph(self) -> Graph:
        """Return the body, whose constants are not inputs yet."""
        return self.padded.replace(
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            nodes=tuple(self._writer.nodes),
            types=self._writer.types,
            constants=self._writer.constants,
        )


__all__ = ["passed_on", "repeated"]
