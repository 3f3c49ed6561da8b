"""Type inference of nodes, and a builder that infers as it goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from autotune.errors import GraphError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node, TensorType, fresh_name


def complete_node(node: Node, types: Mapping[str, TensorType]) -> tuple[Node, dict[str, TensorType]]:
    """Return the node with complete attributes (`OpDef.canonical`), and the types of its outputs.

    Raises GraphError that names the node.
    """
    inputs: list[TensorType | None] = []
    for value in node.inputs:
        if value != ABSENT and value not in types:
            raise GraphError(f"node {node.name!r} ({node.op}): input {value!r} is not defined")
        inputs.append(None if value == ABSENT else types[value])
    try:
        attrs, found = ops.get(node.op).complete_and_infer(inputs, node.attrs)
    except GraphError as error:
        raise GraphError(f"node {node.name!r} ({node.op}): {error}") from error
    if len(node.outputs) != len(found):
        raise GraphError(
            f"node {node.name!r} ({node.op}): has {len(node.outputs)} outputs, "
            f"the operator gives {len(found)}"
        )
    complete = node if attrs == node.attrs else node.replace(attrs=attrs)
    return complete, {v: t for v, t in zip(node.outputs, found, strict=True) if v != ABSENT}


class GraphBuilder:
    """Builds a graph node by node.

    >>> b = GraphBuilder("small")
    >>> x = b.input("x", (2, 3))
    >>> y = b.node("Relu", x)
    >>> print(b.graph(y))
    graph small {
      input x: float32[2, 3]
      relu = Relu(x) : float32[2, 3]
      output relu
    }
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._inputs: list[str] = []
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Array] = {}

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> str:
        """Declare a graph input; returns its name."""
        self._define(name, TensorType(tuple(shape), dtype))
        self._inputs.append(name)
        return name

    def constant(self, name: str, array: Array) -> str:
        """Declare a constant; returns its name."""
        array = np.asarray(array)
        self._define(name, TensorType.of(array))
        self._constants[name] = array
        return name

    def node(self, op: str, *inputs: str, name: str = "", **attrs: Attr | Sequence[int]) -> str:
        """Append a node with one output; returns the output's name (`name`, or made from `op`)."""
        return self.nodes(op, inputs, [name or fresh_name(op.lower(), self._types)], **attrs)[0]

    def nodes(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Attr | Sequence[int]
    ) -> tuple[str, ...]:
        """Append a node with any number of named outputs; returns their names."""
        given = Node(op, tuple(inputs), tuple(outputs), attrs)  # type: ignore[arg-type]  # Node makes tuples of lists
        node, types = complete_node(given, self._types)
        for value, inferred in types.items():
            self._define(value, inferred)
        self._nodes.append(node)
        return node.outputs

    @property
    def known(self) -> Collection[str]:
        """The values declared so far."""
        return self._types.keys()

    def type_of(self, value: str) -> TensorType:
        """Return the type of a value declared so far."""
        return self._types[value]

    def graph(self, *outputs: str) -> Graph:
        """Return the finished graph."""
        for value in outputs:
            if value not in self._types:
                raise GraphError(f"graph {self.name!r}: output {value!r} is not defined")
        return Graph(
            self.name,
            tuple(self._inputs),
            outputs,
            tuple(self._nodes),
            self._types,
            self._constants,
        )

    def _define(self, name: str, tensor_type: TensorType) -> None:
        if name in self._types:
            raise GraphError(f"graph {self.name!r}: value {name!r} is defined twice")
        self._types[name] = tensor_type
