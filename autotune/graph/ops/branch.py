"""The operator that runs one of two graphs.

If(condition, taken by the first..., taken by the second...) -> results, by the graph in attribute ``then_branch``
where the condition, a boolean, is true, and by that in ``else_branch`` where it is not. The first takes
``then_inputs`` values, the second all that follow. Both give results of the same types.

``then_branch`` and ``else_branch`` are texts of graphs without constants. An empty ``then_branch`` has no meaning at
the model's sizes: ``refusal`` says why, and choosing it is an error when the model runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from autotune.errors import GraphError, InputError
from autotune.graph.ir import Array, Attr, Attrs, Graph, Node, TensorType
from autotune.graph.ops.definition import Arrays, Attribute, Types
from autotune.graph.ops.loop import GRAPHS, body_of, body_text
from autotune.graph.ops.registry import define, get

BRANCH = "If"


@dataclass(frozen=True, eq=False)
class BranchParts:
    """The attributes of an If; a refused first branch is None. Results are in the operator's order."""

    then: Graph | None
    other: Graph
    then_inputs: int
    refusal: str

    @classmethod
    def of(cls, attrs: Attrs) -> BranchParts:
        """Read complete attributes; raises GraphError for a branch that is no graph's text."""
        then, other, refusal = (cast(str, attrs[key]) for key in (*GRAPHS[BRANCH], "refusal"))
        return cls(body_of(then) if then else None, body_of(other), cast(int, attrs["then_inputs"]), refusal)

    def graphs(self, node: Node) -> list[tuple[bool, Graph, tuple[str, ...]]]:
        """Return what each branch is chosen by, its graph and the values that the node gives to it."""
        given, first = node.inputs[1:], self.then_inputs
        chosen = [(True, self.then, given[:first]), (False, self.other, given[first:])]
        return [(wanted, graph, values) for wanted, graph, values in chosen if graph is not None]


def branch_node(
    condition: str,
    then: tuple[Graph, Sequence[str]] | None,
    other: tuple[Graph, Sequence[str]],
    outputs: Sequence[str],
    *,
    refusal: str = "",
    name: str = "",
) -> Node:
    """Return an If over branches without constants, each with the values that it takes; None: the first is refused."""
    attrs: dict[str, Attr] = {"then_branch": body_text(then[0]) if then else "", "refusal": refusal}
    attrs |= {"else_branch": body_text(other[0]), "then_inputs": len(then[1]) if then else 0}
    given = (condition, *(then[1] if then else ()), *other[1])
    return Node(BRANCH, given, tuple(outputs), attrs, name)


def is_branch(node: Node) -> bool:
    """Return whether a node runs one of two graphs."""
    return node.op == BRANCH


def _infer(types: Types, attrs: Attrs) -> list[TensorType]:
    parts = BranchParts.of(attrs)
    condition, given = types[0], types[1:]
    if condition is None or condition.dense != TensorType((), "bool"):
        raise GraphError(f"its condition is {condition}, it should be {TensorType((), 'bool')}")
    if (parts.then is None) != bool(parts.refusal):
        raise GraphError("a branch is refused without a reason, or with one not refused")
    taken = [("then_branch", parts.then, given[: parts.then_inputs])]
    taken += [("else_branch", parts.other, given[parts.then_inputs :])]
    results = [_results(key, graph, values) for key, graph, values in taken if graph is not None]
    if results[0] != results[-1]:
        raise GraphError(f"its branches give {_listed(results[0])} and {_listed(results[-1])}")
    return results[-1]


def _results(key: str, graph: Graph, given: Types) -> list[TensorType]:
    """Return the types that a branch gives; raises GraphError where it does not fit what it is given."""
    if graph.constants:
        raise GraphError(f"{key} has constants: they must be inputs")
    if len(given) != len(graph.inputs):
        raise GraphError(f"{key} takes {len(graph.inputs)} values, given are {len(given)}")
    for name, found in zip(graph.inputs, given, strict=True):
        if found is None or found.dense != graph.type_of(name).dense:
            raise GraphError(f"{key} is given {found}, its {name!r} needs {graph.type_of(name).dense}")
    return [graph.type_of(v).dense for v in graph.outputs]


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


def _reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    from autotune.graph.evaluate import run

    parts = BranchParts.of(attrs)
    chosen = bool(cast(Array, arrays[0]))
    graph, given = parts.other, arrays[1 + parts.then_inputs :]
    if chosen:
        if parts.then is None:
            raise InputError(parts.refusal)
        graph, given = parts.then, arrays[1 : 1 + parts.then_inputs]
    found = run(graph, dict(zip(graph.inputs, cast("Sequence[Array]", given), strict=True)))
    return [found[v] for v in graph.outputs]


def _flops(_types: Types, _results: Sequence[TensorType], attrs: Attrs) -> int:
    """Return the arithmetic of the larger branch."""
    parts = BranchParts.of(attrs)
    graphs = [graph for graph in (parts.then, parts.other) if graph is not None]
    return max(sum(get(n.op).flops(g.input_types(n), n.attrs) for n in g.nodes) for g in graphs)


define(
    BRANCH,
    "movement",
    (1, 1 << 16),
    _infer,
    _reference,
    attributes={
        "then_branch": Attribute("str", ""),
        "else_branch": Attribute("str", required=True),
        "then_inputs": Attribute("int", 0),
        "refusal": Attribute("str", ""),
    },
    flops_rule=_flops,
    in_onnx=False,
)

__all__ = ["BRANCH", "BranchParts", "branch_node", "is_branch"]
