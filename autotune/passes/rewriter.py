"""Rebuilding a graph node by node: what most passes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from autotune.graph.build import complete_node
from autotune.graph.ir import ABSENT, Array, Attr, Graph, Node, TensorType, fresh_name
from autotune.passes.origins import carry_origins


class Rewriter:
    """Walks over a graph in order and collects the nodes of the new one.

    A pass calls :meth:`keep`, :meth:`emit` and :meth:`replace` for each old node of :meth:`walk`, then
    :meth:`finish`. Values of the new graph are read through :meth:`current`, which follows the
    replacements made so far.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types: dict[str, TensorType] = {
            name: graph.types[name] for name in (*graph.inputs, *graph.constants)
        }
        self.constants: dict[str, Array] = dict(graph.constants)
        self.producers: dict[str, Node] = {}
        self._nodes: list[Node] = []
        self._replaced: dict[str, str] = {}
        self._taken = set(graph.types)
        self._at: Node | None = None
        self.changed = False

    def walk(self) -> Iterator[Node]:
        """Yield the old nodes in order; what is added meanwhile comes from the one at hand."""
        for node in self.graph.nodes:
            self._at = node
            yield node
        self._at = None

    def current(self, value: str) -> str:
        """Return the new graph's value that stands for an old one."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def type_of(self, value: str) -> TensorType:
        """Return the type of a value of the new graph."""
        return self.types[value]

    def constant_of(self, value: str) -> Array | None:
        """Return the array of a value if it is a constant."""
        return self.constants.get(value)

    def producer(self, value: str) -> Node | None:
        """Return the new node that defines a value."""
        return self.producers.get(value)

    def keep(self, node: Node) -> None:
        """Take an old node over, reading current values."""
        inputs = tuple(v if v == ABSENT else self.current(v) for v in node.inputs)
        if inputs == node.inputs:
            known = {output: self.graph.types[output] for output in node.present_outputs}
            self._append(node, known)
        else:
            self._append(node.replace(inputs=inputs))

    def emit(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None, *, name: str
    ) -> str:
        """Add a node with one output, named ``name`` or a fresh name like it; returns the name."""
        output = self.fresh(name)
        self._append(Node(op, tuple(inputs), (output,), attrs or {}))
        self.changed = True
        return output

    def reshape(self, value: str, *shape: int) -> str:
        """Return a value of the new graph in another shape, under a name like its own."""
        return self.emit("Reshape", [value], {"shape": shape}, name=f"{value}.reshaped")

    def become(
        self, output: str, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None
    ) -> None:
        """Define an old node's output by another operation; it keeps its name."""
        self.add(Node(op, tuple(inputs), (output,), attrs or {}))

    def add(self, node: Node) -> None:
        """Add a node whose outputs carry names of the old graph or fresh ones."""
        self._append(node)
        self.changed = True

    def constant(self, name: str, array: Array) -> str:
        """Add a constant under a fresh name like ``name``; returns the name."""
        fresh = self.fresh(name)
        self.constants[fresh] = array
        self.types[fresh] = TensorType.of(array)
        return fresh

    def replace(self, old: str, new: str) -> None:
        """Read ``new`` (of the new graph) from now on where the old graph read ``old``."""
        if self.current(new) != old:
            self._replaced[old] = new
            self.changed = True

    def fresh(self, name: str) -> str:
        """Return ``name`` or a name like it that no value has."""
        fresh = fresh_name(name, self._taken)
        self._taken.add(fresh)
        return fresh

    def finish(self) -> Graph:
        """Return the new graph, pruned; the very same object if nothing was changed.

        Outputs keep their names: what stands for an output is renamed to it, or copied by an
        Identity where it has another role too. Those that are inputs or constants stay so.
        """
        if not self.changed:
            return self.graph
        renames: dict[str, str] = {}
        given = {*self.graph.inputs, *self.graph.constants}
        for output in dict.fromkeys(self.graph.outputs):
            value = self.current(output)
            if value == output or output in given:
                continue
            if value in self.producers and value not in (*self.graph.outputs, *renames):
                renames[value] = output
            else:
                self.add(Node("Identity", (value,), (output,), {}))
        nodes = [node.renamed(renames) for node in self._nodes]
        types = {renames.get(name, name): t for name, t in self.types.items()}
        after = self.graph.replace(types=types, constants=self.constants).with_nodes(nodes)

        def renamed(value: str) -> str:
            found = self.current(value)
            return renames.get(found, found)

        return carry_origins(self.graph, after, renamed)

    def _append(self, node: Node, known: Mapping[str, TensorType] | None = None) -> None:
        if self._at is not None and not node.origins:
            node = node.with_origins(self._at.origins)
        if known is None:
            node, known = complete_node(node, self.types)
        self.types.update(known)
        self.producers.update(dict.fromkeys(node.present_outputs, node))
        self._nodes.append(node)


def rewrite(graph: Graph, rule: Callable[[Rewriter, Node], bool]) -> Graph:
    """Apply ``rule`` to each node in order; where it returns False the node is kept as it is."""
    rewriter = Rewriter(graph)
    for node in rewriter.walk():
        if not rule(rewriter, node):
            rewriter.keep(node)
    return rewriter.finish()


__all__ = ["Rewriter", "rewrite"]
