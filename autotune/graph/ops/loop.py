"""The operator that runs a graph again and again.

Loop(carried..., scanned..., captured...) -> (carried..., collected...), each step by the graph in attribute ``body``:

- what is *carried* goes from step to step: the body takes ``carried`` values first, and gives as many first;
- what is *scanned* has an axis of ``trips`` elements in front, of which each step takes one;
- what is *captured* is the same in every step;
- the body's other results are *collected* along a new axis in front.

A loop may be over before all its steps: with ``going``, the number of a carried boolean. From where that is false the
body gives back what it takes, so that its steps need not run. For such a loop ``trips`` is a bound, and of what it
collects the steps that did not run may be anything.

``from_end`` has a 1 for each scanned input, then each collected result, that goes from the last element to the first.
``body`` is the text of a graph without constants, whose inputs are in the order above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Attrs, Graph, Node, TensorType
from autotune.graph.ops.common import at
from autotune.graph.ops.definition import Arrays, Attribute, Types
from autotune.graph.ops.registry import define, get

NAME = "Loop"
ANY_NUMBER = 1 << 40
"""The bound of steps of a loop that only its condition ends."""
_EXPECTED = 32
"""Steps that a loop is taken to have which may be over before."""
GRAPHS = {NAME: ("body",), "If": ("then_branch", "else_branch")}
"""Attributes that are texts of graphs, by operator; an empty one is no graph."""


@dataclass(frozen=True, eq=False)
class LoopParts:
    """The attributes of a loop; ``body`` has the inputs and outputs in the operator's order."""

    body: Graph
    carried: int
    scanned: int
    trips: int
    from_end: tuple[int, ...]
    going: int = -1

    @classmethod
    def of(cls, attrs: Attrs) -> LoopParts:
        """Read complete attributes; raises GraphError for a body that is no graph's text."""
        carried, scanned, trips, going = (
            cast(int, attrs[key]) for key in ("carried", "scanned", "trips", "going")
        )
        from_end = cast(tuple[int, ...], attrs["from_end"])
        return cls(body_of(cast(str, attrs["body"])), carried, scanned, trips, from_end, going)

    @property
    def expected(self) -> int:
        """Return the number of steps that costs are counted for."""
        return self.trips if self.going < 0 else min(self.trips, _EXPECTED)

    @property
    def captured(self) -> tuple[str, ...]:
        """The body's names of what it captures."""
        return self.body.inputs[self.carried + self.scanned :]

    def scanned_at(self, index: int, step: int) -> int:
        """Return the element of a scanned input that a step takes."""
        return self.trips - 1 - step if self.from_end[index] else step

    def collected_at(self, index: int, step: int) -> int:
        """Return the element of a collected result that a step gives."""
        return self.trips - 1 - step if self.from_end[self.scanned + index] else step


@lru_cache(maxsize=256)
def body_of(text: str) -> Graph:
    """Return the graph of a body's text; raises GraphError."""
    from autotune.graph.text import parse_graph

    return parse_graph(text)


def body_text(body: Graph) -> str:
    """Return the value of attribute ``body`` for a graph. Raises GraphError if it has constants."""
    if body.constants:
        raise GraphError(f"the body {body.name!r} of a loop has constants: they must be inputs")
    return str(body)


def lifted(body: Graph) -> tuple[Graph, Mapping[str, Array]]:
    """Return a body whose constants are inputs, its last ones, and their values."""
    inputs = (*body.inputs, *body.constants)
    return body.replace(inputs=inputs, constants={}), body.constants


def loop_node(
    inputs: Sequence[str],
    outputs: Sequence[str],
    body: Graph,
    *,
    carried: int,
    scanned: int,
    trips: int,
    from_end: Sequence[int] = (),
    going: int = -1,
) -> Node:
    """Return a loop over a body without constants; ``from_end`` empty: nothing goes from the end."""
    attrs: dict[str, Attr] = {"body": body_text(body), "from_end": tuple(from_end)}
    attrs |= {"carried": carried, "going": going, "scanned": scanned, "trips": trips}
    return Node(NAME, tuple(inputs), tuple(outputs), attrs)


def side_by_side(loops: Sequence[Node]) -> Node:
    """Return one loop whose steps are those of several, of as many steps each and none of which reads another's."""
    parts = [LoopParts.of(loop.attrs) for loop in loops]
    bodies = [
        each.body.renamed({v: f"{v}.{number}" for v in each.body.types}) for number, each in enumerate(parts)
    ]

    def sorted_by_use(values: Sequence[Sequence[str]]) -> list[str]:
        """Return what each loop carries, then what it scans, then what it captures."""
        cuts = [(0, p.carried, p.carried + p.scanned, len(v)) for p, v in zip(parts, values, strict=True)]
        return [
            v
            for n in range(3)
            for each, cut in zip(values, cuts, strict=True)
            for v in each[cut[n] : cut[n + 1]]
        ]

    def results(values: Sequence[Sequence[str]]) -> list[str]:
        """Return what each loop carries, then what it collects."""
        carried = [v for each, p in zip(values, parts, strict=True) for v in each[: p.carried]]
        return carried + [v for each, p in zip(values, parts, strict=True) for v in each[p.carried :]]

    types = {name: found for body in bodies for name, found in body.types.items()}
    body = Graph(
        " and ".join(dict.fromkeys(body.name for body in bodies)),
        tuple(sorted_by_use([body.inputs for body in bodies])),
        tuple(results([body.outputs for body in bodies])),
        tuple(node for body in bodies for node in body.nodes),
        types,
    )
    scanned = [end for p in parts for end in p.from_end[: p.scanned]]
    return loop_node(
        sorted_by_use([loop.inputs for loop in loops]),
        results([loop.outputs for loop in loops]),
        body,
        carried=sum(p.carried for p in parts),
        scanned=len(scanned),
        trips=parts[0].trips,
        from_end=[*scanned, *(end for p in parts for end in p.from_end[p.scanned :])],
    )


MAX_EVALUATED_STEPS = 1 << 12
"""Nodes, over all steps, that a loop may have which is evaluated when a model is compiled."""


def is_evaluable(op: str, attrs: Attrs) -> bool:
    """Return whether evaluating an operator of constants takes no longer than its operands and results explain."""
    return _steps_inside(op, attrs) <= MAX_EVALUATED_STEPS


def steps_of(body: Graph) -> int:
    """Return the number of nodes that run in a step of a loop, with those of graphs inside."""
    return max(len(body.nodes), 1) + sum(_steps_inside(node.op, node.attrs) for node in body.nodes)


def _steps_inside(op: str, attrs: Attrs) -> int:
    """Return how many nodes the graphs in an operator's attributes run, all branches among them."""
    texts = [cast(str, attrs[key]) for key in GRAPHS.get(op, ()) if attrs[key]]
    return cast(int, attrs.get("trips", 1)) * sum(steps_of(body_of(text)) for text in texts)


def is_loop(node: Node) -> bool:
    """Return whether a node runs a body again and again."""
    return node.op == NAME


def _complete(_types: Types, attrs: dict[str, Attr]) -> None:
    if not attrs["from_end"]:
        body = body_of(cast(str, attrs["body"]))
        collected = len(body.outputs) - cast(int, attrs["carried"])
        attrs["from_end"] = (0,) * (cast(int, attrs["scanned"]) + max(collected, 0))


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    parts = LoopParts.of(attrs)
    body, carried = parts.body, parts.carried
    collected = len(body.outputs) - carried
    if parts.trips < 1:
        raise GraphError(f"trips = {parts.trips}: a loop has at least one step")
    if min(carried, parts.scanned, collected) < 0 or carried + parts.scanned > len(body.inputs):
        raise GraphError(
            f"the body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, "
            f"of which {carried} are carried and {parts.scanned} scanned"
        )
    if len(parts.from_end) != parts.scanned + collected:
        raise GraphError(f"from_end has {len(parts.from_end)} entries for {parts.scanned + collected} values")
    if len(types) != len(body.inputs):
        raise GraphError(f"the body takes {len(body.inputs)} values, given are {len(types)}")
    if body.constants:
        raise GraphError("the body has constants: they must be inputs")
    for index, name in enumerate(body.inputs):
        given, wanted = at(types, index).dense, body.type_of(name).dense
        if carried <= index < carried + parts.scanned:
            wanted = TensorType((parts.trips, *wanted.shape), wanted.dtype)
        if given != wanted:
            raise GraphError(f"input {index} is {given}, the body's {name!r} needs {wanted}")
    if parts.going >= 0:
        _check_going(parts)
    results = [body.type_of(v).dense for v in body.outputs]
    for index, (name, found) in enumerate(zip(body.inputs[:carried], results[:carried], strict=True)):
        if found != body.type_of(name).dense:
            raise GraphError(f"carried value {index} is {body.type_of(name).dense}, each step gives {found}")
    return results[:carried] + [TensorType((parts.trips, *t.shape), t.dtype) for t in results[carried:]]


def _check_going(parts: LoopParts) -> None:
    if parts.going >= parts.carried:
        raise GraphError(f"going = {parts.going}: it should be one of the {parts.carried} carried values")
    found = parts.body.type_of(parts.body.inputs[parts.going])
    if found.dtype != "bool" or found.size != 1:
        raise GraphError(f"going = {parts.going}, which is {found} and should be one boolean")


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    from autotune.graph.evaluate import run

    parts = LoopParts.of(attrs)
    body, carried, given = parts.body, parts.carried, list(arrays)
    state = [cast(Array, a) for a in given[:carried]]
    scanned = [cast(Array, a) for a in given[carried : carried + parts.scanned]]
    rest = [cast(Array, a) for a in given[carried + parts.scanned :]]
    collected = [body.type_of(v) for v in body.outputs[carried:]]
    results = [np.zeros((parts.trips, *t.shape), t.dtype) for t in collected]
    for step in range(parts.trips):
        if parts.going >= 0 and not state[parts.going].all():
            break
        taken = [array[parts.scanned_at(i, step)] for i, array in enumerate(scanned)]
        found = run(body, dict(zip(body.inputs, [*state, *taken, *rest], strict=True)))
        state = [found[v] for v in body.outputs[:carried]]
        for i, (name, result) in enumerate(zip(body.outputs[carried:], results, strict=True)):
            result[parts.collected_at(i, step)] = found[name]
    return [*state, *results]


def _flops(_types: Types, _results: Sequence[TensorType], attrs: Attrs) -> int:
    parts = LoopParts.of(attrs)
    body = parts.body
    return parts.expected * sum(get(n.op).flops(body.input_types(n), n.attrs) for n in body.nodes)


define(
    NAME,
    "movement",
    (0, 1 << 16),
    _infer,
    _reference,
    attributes={
        "body": Attribute("str", required=True),
        "carried": Attribute("int", required=True),
        "scanned": Attribute("int", required=True),
        "trips": Attribute("int", required=True),
        "from_end": Attribute("ints", ()),
        "going": Attribute("int", -1),
    },
    complete=_complete,
    flops_rule=_flops,
    in_onnx=False,
)

__all__ = [
    "GRAPHS",
    "LoopParts",
    "body_of",
    "body_text",
    "is_evaluable",
    "is_loop",
    "lifted",
    "loop_node",
    "side_by_side",
]
