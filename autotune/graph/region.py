"""Dispatch regions and workloads.

A region is the part of a graph that becomes one dispatch: an anchor (a contraction, convolution, pool,
reduction, softmax or normalisation), or a chain of anchors each of which reads what the one before makes, with
elementwise operators and data movement around it. A workload is a region in canonical form; its text is what the
database stores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from autotune import te
from autotune.errors import GraphError, InputError
from autotune.graph import evaluate, ops
from autotune.graph.build import complete_node
from autotune.graph.canonical import canonical_graph
from autotune.graph.ir import ABSENT, Array, Graph, Node
from autotune.graph.ops.definition import WorkloadKind
from autotune.graph.text import parse, print_graph
from autotune.graph.verify import verify


def anchors(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return those that decide how a region is scheduled, in order."""
    return tuple(node for node in nodes if ops.get(node.op).role == "anchor")


@dataclass(frozen=True)
class Region:
    """A graph without constants; `constant_inputs` are the inputs known at compile time.

    Raises GraphError if it has constants, no nodes, unused inputs, outputs that no node computes, or
    anchors that do not follow one another.
    """

    graph: Graph
    constant_inputs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        graph = self.graph
        where = f"region {graph.name!r}"
        if graph.constants:
            raise GraphError(f"{where} has constants: they must be inputs")
        if not graph.nodes or not graph.outputs:
            raise GraphError(f"{where} computes nothing")
        unknown = sorted(self.constant_inputs - set(graph.inputs))
        if unknown:
            raise GraphError(f"{where}: constant input {unknown[0]!r} is not an input")
        read = {v for n in graph.nodes for v in n.inputs}
        unused = [v for v in graph.inputs if v not in read]
        if unused:
            raise GraphError(f"{where}: input {unused[0]!r} is not used")
        made = {v for n in graph.nodes for v in n.outputs}
        passed = [v for v in graph.outputs if v not in made]
        if passed:
            raise GraphError(f"{where}: output {passed[0]!r} is not computed in it")
        for first, second in pairwise(self.anchors):
            if not self._reads(second, first):
                named = ", ".join(f"{n.name!r} ({n.op})" for n in self.anchors)
                raise GraphError(
                    f"{where} has {len(self.anchors)} anchors, of which each must read what the one before makes: "
                    f"{named}"
                )

    @cached_property
    def anchors(self) -> tuple[Node, ...]:
        """The nodes that decide how the region is scheduled, in order: none, one, or a chain."""
        return anchors(self.graph.nodes)

    @property
    def anchor(self) -> Node | None:
        """The last of them."""
        return self.anchors[-1] if self.anchors else None

    @property
    def kind(self) -> WorkloadKind:
        """Return the kind that decides how it is scheduled; "elementwise" without an anchor."""
        if len(self.anchors) > 1:
            return "chain"
        if not self.anchors:
            return "elementwise"
        (anchor,) = self.anchors
        return ops.get(anchor.op).workload_kind(self.graph.input_types(anchor), anchor.attrs)

    def _reads(self, node: Node, other: Node) -> bool:
        """Return whether a node reads what another one makes, directly or through others."""
        producers, waiting, seen = self.graph.producers(), list(node.present_inputs), set[str]()
        while waiting:
            value = waiting.pop()
            if value in other.outputs:
                return True
            if value in producers and value not in seen:
                seen.add(value)
                waiting += producers[value].present_inputs
        return False

    @cached_property
    def canonical(self) -> tuple[Graph, dict[str, str]]:
        """The canonical graph, and the new name of each value."""
        return canonical_graph(self.graph)

    def arguments(self) -> tuple[str, ...]:
        """Return this region's value names in the order of the workload's arguments: inputs, outputs."""
        canonical, names = self.canonical
        old = {new: name for name, new in names.items()}
        return tuple(old[v] for v in (*canonical.inputs, *canonical.outputs))


@dataclass(frozen=True)
class RegionProgram:
    """A region as tensor expressions.

    `anchor` is the last anchor's reduction for contractions, convolutions, pools and reductions, and its output for
    softmax and normalisation. `constants` and `strides` are by tensor name.
    """

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    anchor: te.Tensor | None
    constants: frozenset[str]
    strides: Mapping[str, tuple[int, ...]]

    @property
    def args(self) -> tuple[te.Tensor, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)


@dataclass(frozen=True, repr=False)
class Workload:
    """A region in canonical form: inputs i0, i1, ..., other values v0, v1, ...

    `key` is the SHA-256 of `text`; workloads are equal if their keys are. `flops` counts a
    multiply-add as two; `bytes` are those of inputs and outputs.
    """

    region: Region = field(compare=False)
    text: str = field(compare=False)
    key: str
    kind: str = field(compare=False)
    flops: int = field(compare=False)
    bytes: int = field(compare=False)

    @classmethod
    def from_region(cls, region: Region) -> Workload:
        """Return the workload of a region; `region.arguments()` tells which value is which argument."""
        graph, names = region.canonical
        fixed = frozenset(names[v] for v in region.constant_inputs)
        canonical = Region(graph, fixed)
        text = print_graph(graph, fixed, keyword="region")
        return cls(
            region=canonical,
            text=text,
            key=hashlib.sha256(text.encode()).hexdigest(),
            kind=canonical.kind,
            flops=sum(ops.get(n.op).flops(graph.input_types(n), n.attrs) for n in graph.nodes),
            bytes=sum(graph.type_of(v).nbytes for v in (*graph.inputs, *graph.outputs)),
        )

    @property
    def symbol(self) -> str:
        """Return the name of its kernels in machine code: alike wherever it is built."""
        return f"w{self.key[:16]}"

    @classmethod
    def parse(cls, text: str) -> Workload:
        """Return the workload of a text, made canonical if it is not; defaults need not be written.
        Raises GraphError."""
        parsed = parse(text, "region")
        nodes = tuple(complete_node(node, parsed.types)[0] for node in parsed.nodes)
        inputs = tuple(name for _, name in parsed.sources)
        fixed = frozenset(name for role, name in parsed.sources if role == "const")
        graph = Graph(parsed.name, inputs, parsed.outputs, nodes, parsed.types)
        verify(graph)
        return cls.from_region(Region(graph, fixed))

    @property
    def dtype(self) -> str:
        """Of the elements that it does arithmetic on: what its last anchor, else its first node reads first."""
        graph = self.region.graph
        node = self.region.anchor or graph.nodes[0]
        return graph.type_of((*node.present_inputs, *node.present_outputs)[0]).dtype

    @cached_property
    def expressions(self) -> RegionProgram:
        """The tensor expressions: made once, as schedules of a program leave it as it is."""
        return self.program()

    def program(self) -> RegionProgram:
        """Return the fresh tensor expressions; every tensor has the name of its value."""
        graph = self.region.graph
        tensors: dict[str, te.Tensor] = {}
        for value in graph.inputs:
            found = graph.type_of(value)
            tensors[value] = te.placeholder(found.shape, found.dtype, name=value)
        for node in graph.nodes:
            operands = [None if v == ABSENT else tensors[v] for v in node.inputs]
            results = ops.get(node.op).compute(operands, node.attrs, node.outputs)
            tensors.update({t.name: t for t in results})
        anchor = self.region.anchor
        return RegionProgram(
            inputs=tuple(tensors[v] for v in graph.inputs),
            outputs=tuple(tensors[v] for v in graph.outputs),
            anchor=None if anchor is None else _anchor_tensor(anchor, tensors),
            constants=self.region.constant_inputs,
            strides={v: t.strides for v, t in graph.types.items() if t.strides is not None},
        )

    def reference(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs in NumPy, for the inputs in order. Raises InputError if they do not fit."""
        graph = self.region.graph
        if len(arrays) != len(graph.inputs):
            raise InputError(f"the workload has {len(graph.inputs)} inputs, got {len(arrays)}")
        results = evaluate.run(graph, dict(zip(graph.inputs, arrays, strict=True)))
        return [results[v] for v in graph.outputs]

    def random_inputs(self, seed: int, *, same_sign: bool = False) -> list[Array]:
        """Return inputs that keep the outputs finite and near 1: see `random_inputs.random_inputs`."""
        from autotune.graph.random_inputs import random_inputs

        return random_inputs(self.region, seed, same_sign=same_sign)

    @property
    def signature(self) -> str:
        """Dtypes and shapes of inputs and outputs: ``(float32[64, 9], float32[9]) -> (float32[64])``."""
        graph = self.region.graph
        takes, gives = (
            ", ".join(f"{t.dtype}[{', '.join(map(str, t.shape))}]" for t in map(graph.type_of, values))
            for values in (graph.inputs, graph.outputs)
        )
        return f"({takes}) -> ({gives})"

    def __repr__(self) -> str:
        return f"<Workload {self.key[:12]} {self.kind} {self.signature}>"

    def __str__(self) -> str:
        return self.text


def _anchor_tensor(anchor: Node, tensors: Mapping[str, te.Tensor]) -> te.Tensor:
    output = tensors[anchor.present_outputs[0]]
    if ops.get(anchor.op).kind in ("softmax", "normalization"):
        return output
    stage = output
    while not _reduces(stage):
        inner = [t for t in stage.op.input_tensors if t.name.startswith(f"{output.name}.")]
        if not inner:
            return output
        stage = inner[0]
    return stage


def _reduces(tensor: te.Tensor) -> bool:
    return isinstance(tensor.op, te.ComputeOp) and bool(tensor.op.reduce_axis)
