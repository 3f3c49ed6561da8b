"""If of a condition that is known only when the model runs: branches of which one runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import GraphError, ModelImportError, UnknownParameterError
from autotune.frontends.onnx.diverging import BranchPath, Fork, Rest, ShapesDifferError, Way
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.frontends.onnx.scope import Importing
from autotune.frontends.onnx.subgraphs import with_rest
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.graph.ops.branch import BRANCH, branch_node

_LOG = logging.getLogger("autotune.frontends")

_FEW = 8
"""So many elementwise nodes are computed whatever a condition says: they are a dispatch at most."""


@dataclass(frozen=True)
class _Side:
    """One branch: its nodes and those of its values that are results."""

    nodes: tuple[Node, ...]
    results: tuple[str, ...]


@dataclass
class Branches:
    """Adds the branches of a node to an import."""

    node: OnnxNode
    model: Importing

    def add(self, then: Any, other: Any) -> None:
        """Add both branches, or the one that has a meaning at these sizes.

        Raises:
            ShapesDifferError: they give other shapes.
            UnknownParameterError: what decides a shape in one depends on inputs.
            ModelImportError: neither can be imported.
        """
        yes, no = (self._way(graph, which) for graph, which in ((then, "then"), (other, "else")))
        if isinstance(yes, ModelImportError) and isinstance(no, ModelImportError):
            raise yes
        rest = Rest(self.model, Fork((), self, yes, no), self._unknown_shape(self._outputs[0]), ())
        if rest.differ:
            first = next(output for output in self._outputs if output in rest.differ)
            raise ShapesDifferError(rest.fork, self._unknown_shape(first))
        self.join(yes, no, self._outputs, self._outputs)

    def join(self, yes: Way, no: Way, results: Sequence[str], outputs: Sequence[str]) -> None:
        """Add branches that have values of one shape for each of ``results``; ``outputs`` are their names."""
        first, second = (self._side(way, results) for way in (yes, no))
        if isinstance(first, ModelImportError) or isinstance(second, ModelImportError):
            self._add_one(first, second, outputs)
        elif self._is_computed_both(first, second):
            self._add_both(first, second, outputs)
        else:
            self._add_choice(scalar(self.node.inputs[0], self.model), first, second, "", outputs)

    def _way(self, graph: Any, which: str) -> Way:
        """Import a branch apart; returns the error for one that has no meaning at the sizes at hand."""
        node, model, prefix = self.node, self.model, f"{self.node.name}.{which}."
        if len(graph.output) != len(node.outputs):
            raise node.fail(
                f"its branch {which} has {len(graph.output)} results for {len(node.outputs)} outputs"
            )
        try:
            with model.apart() as nodes:
                results, rest = with_rest(graph, prefix, [], model)
        except UnknownParameterError:
            raise
        except GraphError as error:
            return ModelImportError(str(error))
        except ModelImportError as error:
            return error
        names = {output: v for output, v in zip(node.outputs, results, strict=True) if output != ABSENT}
        return BranchPath(prefix, nodes, names) if rest is None else rest.named(nodes, names)

    def _side(self, way: Way, results: Sequence[str]) -> _Side | ModelImportError:
        """Return the nodes of a way, and its values for some results."""
        if isinstance(way, ModelImportError):
            return way
        if isinstance(way, BranchPath):
            return _Side(tuple(way.nodes), tuple(way.names[v] for v in results))
        inner = [self.model.fresh(f"{self.node.name}.{v}") for v in results]
        with self.model.apart() as nodes:
            self.model.extend(way.before)
            way.join(results, inner)
        return _Side(tuple(nodes), tuple(inner))

    @property
    def _outputs(self) -> list[str]:
        return [output for output in self.node.outputs if output != ABSENT]

    def _unknown_shape(self, output: str) -> UnknownParameterError:
        condition = self.node.inputs[0]
        return self.node.unknown(
            f"its condition {condition!r}, which decides the shape of {output!r},", condition
        )

    def _is_computed_both(self, yes: _Side, no: _Side) -> bool:
        """Return whether both branches run: they are small, or on devices, or their lengths are known only then."""
        nodes, model = (*yes.nodes, *no.nodes), self.model
        if model.both_branches or any(node.device for node in nodes):
            return True
        if any(v in model.counted for v in (*yes.results, *no.results)):
            return True
        return are_few(nodes)

    def _add_both(self, yes: _Side, no: _Side, outputs: Sequence[str]) -> None:
        model = self.model
        model.extend(yes.nodes)
        model.extend(no.nodes)
        chooses = scalar(self.node.inputs[0], model)
        for first, second, output in zip(yes.results, no.results, outputs, strict=True):
            model.append("Where", [chooses, first, second], [output], {}, self.node.name)

    def _add_one(
        self, yes: _Side | ModelImportError, no: _Side | ModelImportError, outputs: Sequence[str]
    ) -> None:
        """Add the branch that has a meaning, and refuse the other: it stands first, so that true chooses it."""
        model, condition = self.model, scalar(self.node.inputs[0], self.model)
        if isinstance(yes, ModelImportError):
            assert isinstance(no, _Side)
            refused, error, side = "then", yes, no
        else:
            assert isinstance(no, ModelImportError)
            refused, error, side = "else", no, yes
            negated = model.fresh(f"{condition}.not")
            model.append("Not", [condition], [negated], {}, negated)
            condition = negated
        if any(value in model.sequences for value in side.results):
            raise error
        where, given = f"node {self.node.name!r} (If)", self.node.inputs[0]
        if model.both_branches:
            side = self._before(side)
        reason = f"does not fit the sizes that the model is compiled for\n  {str(error).splitlines()[0]}"
        _LOG.warning(
            "%s: it is an error if %r chooses the branch %r, which %s", where, given, refused, reason
        )
        refusal = f"{where}: {given!r} chooses the branch {refused!r}, which {reason}"
        self._add_choice(condition, None, side, refusal, outputs)

    def _before(self, side: _Side) -> _Side:
        """Add the nodes of a branch; returns one that passes on their results."""
        model, names = self.model, [self.model.fresh(f"{value}.chosen") for value in side.results]
        model.extend(side.nodes)
        with model.apart() as nodes:
            for value, name in zip(side.results, names, strict=True):
                model.append("Identity", [value], [name], {}, name)
        return _Side(tuple(nodes), tuple(names))

    def _add_choice(
        self, condition: str, yes: _Side | None, no: _Side, refusal: str, outputs: Sequence[str]
    ) -> None:
        """Append the operator of which one branch runs."""
        model, node = self.model, self.node
        for value in no.results:
            if value in model.counted:
                raise node.fail(f"a branch gives {value!r}, whose extent is known only when it is computed")
        branch = branch_node(
            condition,
            None if yes is None else self._graph("then", yes),
            self._graph("else", no),
            outputs,
            refusal=refusal,
        )
        model.append(BRANCH, list(branch.inputs), list(outputs), branch.attrs, node.name)

    def _graph(self, which: str, side: _Side) -> tuple[Graph, Sequence[str]]:
        return branch_graph(f"{self.node.name}.{which}", side.nodes, side.results, self.model)


def branch_graph(
    name: str, nodes: Sequence[Node], results: Sequence[str], model: Importing
) -> tuple[Graph, Sequence[str]]:
    """Return nodes that were collected apart as a graph, which captures what it reads, and that."""
    read = {v for node in nodes for v in node.present_inputs} | set(results)
    made = {v for node in nodes for v in node.present_outputs}
    captured = tuple(sorted(read - made))
    types = {v: model.type_of(v) for v in (*captured, *made)}
    plain = tuple(node.replace(device="", origins=()) for node in nodes)
    graph = Graph(name, captured, tuple(results), plain, types).pruned()
    needed = {v for node in graph.nodes for v in node.present_inputs} | set(results)
    taken = tuple(v for v in captured if v in needed)
    return graph.replace(inputs=taken).pruned(), taken


def are_few(nodes: Sequence[Node]) -> bool:
    """Return whether nodes are as cheap as to choose whether they run."""
    return len(nodes) <= _FEW and all(ops.get(node.op).role == "elementwise" for node in nodes)


def scalar(value: str, model: Importing) -> str:
    """Return a value of one element without axes."""
    if not model.type_of(value).rank:
        return value
    name = model.fresh(f"{value}.scalar")
    model.append("Reshape", [value], [name], {"shape": ()}, name)
    return name


__all__ = ["Branches", "are_few", "branch_graph", "scalar"]
