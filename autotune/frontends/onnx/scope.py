"""The importer's interface for subgraphs and sequences: values known so far, and the addition of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from autotune.frontends.onnx.budget import Expansion
from autotune.graph.ir import Array, Attr, Node, TensorType


class Append(Protocol):
    """Adds a node of the graph; one of constants becomes a constant."""

    def __call__(
        self, op: str, inputs: list[str], outputs: list[str], attrs: Mapping[str, Attr], name: str
    ) -> None: ...


@dataclass(frozen=True)
class Importing:
    """An import under way. ``sequences`` are values that are lists of others, None for an optional that is empty."""

    opset: int
    types: dict[str, TensorType]
    constants: dict[str, Array]
    sequences: dict[str, list[str] | None]
    counted: Mapping[str, object]
    """Values whose extent is known only when they are computed."""
    part: Callable[[str, int, str, str], None]
    """Defines the part of a value that another one counts along an axis: value, axis, count, and the part."""
    read: set[str]
    import_node: Callable[[Any], None]
    append: Append
    define: Callable[[str, Array], None]
    fresh: Callable[[str], str]
    type_of: Callable[[str], TensorType]
    read_tensor: Callable[[Any, str], Array]
    extend: Callable[[Sequence[Node]], None]
    """Adds nodes that were collected apart."""
    both_branches: bool
    """True where no branch may be left out: both are computed, and each result is chosen."""
    apart: Callable[[], AbstractContextManager[list[Node]]]
    """A context in which nodes are added to a list of their own."""
    expansion: Expansion
    on_device: Callable[[str], AbstractContextManager[None]]
    """A context in which nodes are put on a device; for "" on that of the node that is imported."""

    def alias(self, value: str, name: str) -> None:
        """Give a value another name."""
        if value in self.sequences:
            self.sequences[name] = self.sequences[value]
        elif value in self.constants:
            self.define(name, self.constants[value])
        else:
            self.append("Identity", [value], [name], {}, name)


def names_of(node: Any) -> set[str]:
    """Return the names that a node and its subgraphs read."""
    found = set(node.input)
    for graph in graphs_of(node):
        found.update(value.name for value in graph.output)
        found.update(*(names_of(inner) for inner in graph.node))
    return found


def graphs_of(node: Any) -> list[Any]:
    """Return the subgraphs of a node."""
    return [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def renamed(node: Any, names: Mapping[str, str], prefix: str) -> Any:
    """Return a copy of a node under another name, with values renamed in it and in its subgraphs."""
    import onnx

    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.name = f"{prefix}{node.name}" if node.name else ""
    _rename_all(made.input, names)
    _rename_all(made.output, names)
    for graph in graphs_of(made):
        inner = [renamed(each, names, prefix) for each in graph.node]
        del graph.node[:]
        graph.node.extend(inner)
        for value in graph.output:
            value.name = names.get(value.name, value.name)
    return made


def _rename_all(values: Any, names: Mapping[str, str]) -> None:
    new = [names.get(value, value) for value in values]
    del values[:]
    values.extend(new)


@dataclass
class NodeLists:
    """The list that nodes are added to, and those around it."""

    current: list[Node] = field(default_factory=list)
    around: list[list[Node]] = field(default_factory=list)

    def extend(self, nodes: Sequence[Node]) -> None:
        """Add nodes that were collected apart."""
        self.current += nodes

    @contextmanager
    def apart(self) -> Iterator[list[Node]]:
        """Collect what is added within the block in a list of its own."""
        self.around.append(self.current)
        self.current = []
        try:
            yield self.current
        finally:
            self.current = self.around.pop()

    def all(self) -> Iterator[Node]:
        """Yield the nodes of all lists."""
        for nodes in (*self.around, self.current):
            yield from nodes


__all__ = ["Importing", "NodeLists", "graphs_of", "names_of", "renamed"]
