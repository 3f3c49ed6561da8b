"""The graph IR: values named by strings, nodes in topological order, constants beside them.

A value is a graph input, a constant or the output of exactly one node; `Graph.types` has the type
of every one of them. Everything is immutable: passes build new graphs, mostly with `Graph.replace`
and `Graph.with_nodes`.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autotune.errors import GraphError
from autotune.te.dtypes import STORAGE_DTYPES

Array: TypeAlias = npt.NDArray[Any]
Attr: TypeAlias = bool | int | float | str | tuple[int, ...]
Attrs: TypeAlias = Mapping[str, Attr]

ABSENT = ""  # the name that stands for an optional input or output that is not there


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype of a value.

    `strides` are in elements; None means dense row-major. Only values whose placement was decided
    (a concatenation written in place, a padded buffer) carry strides.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(d) for d in self.shape))
        if self.strides is not None:
            object.__setattr__(self, "strides", tuple(int(s) for s in self.strides))
            if len(self.strides) != len(self.shape):
                raise GraphError(
                    f"strides {self.strides} do not fit shape {self.shape}: one stride a dimension"
                )
        if any(d < 0 for d in self.shape):
            raise GraphError(f"negative dimension in shape {self.shape}")
        if self.dtype not in STORAGE_DTYPES:
            raise GraphError(f"unknown dtype {self.dtype!r}; known: {', '.join(STORAGE_DTYPES)}")

    @classmethod
    def of(cls, array: Array) -> TensorType:
        """Return the dense type of an array."""
        return cls(array.shape, str(array.dtype))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, holes between strided rows not counted."""
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def dense(self) -> TensorType:
        """The same type without strides."""
        return self if self.strides is None else TensorType(self.shape, self.dtype)

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        if self.strides is not None:
            text += f" strides=({', '.join(map(str, self.strides))})"
        return text


def _frozen_attr(node: str, key: str, value: object) -> Attr:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return _frozen_attr(node, key, value.item())
    if isinstance(value, (list, tuple, np.ndarray)):
        items = tuple(v.item() if isinstance(v, np.generic) else v for v in value)
        if all(isinstance(v, int) and not isinstance(v, bool) for v in items):
            return items
    raise GraphError(
        f"node {node!r}: attribute {key!r} = {value!r} is not a bool, int, float, str or tuple of ints"
    )


@dataclass(frozen=True)
class Node:
    """One operation. An input or output named "" is an optional one that is absent.

    `attrs` is kept sorted by name and read-only; lists and arrays of ints become tuples. An empty
    `name` becomes the first output's name. `origins` are the names of the model's nodes that it comes
    from: passes carry them along, and nodes that differ in nothing else are equal. `device` is the one that
    the model names for it, if any: it is gone once the graph is placed (`autotune.graph.devices`).
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attrs = field(default_factory=dict)
    name: str = ""
    origins: tuple[str, ...] = field(default=(), compare=False)
    device: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "outputs", tuple(self.outputs))
        name = self.name or next((o for o in self.outputs if o), self.op)
        object.__setattr__(self, "name", name)
        attrs = {k: _frozen_attr(name, k, self.attrs[k]) for k in sorted(self.attrs)}
        object.__setattr__(self, "attrs", MappingProxyType(attrs))

    def __hash__(self) -> int:
        attrs = tuple(self.attrs.items())
        return hash((self.op, self.inputs, self.outputs, attrs, self.name))

    def replace(self, **changes: Any) -> Node:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_origins(self, origins: tuple[str, ...]) -> Node:
        """Return a copy that comes from other nodes of the model; cheaper than `replace`, as the rest is checked."""
        copy = object.__new__(Node)
        copy.__dict__.update(self.__dict__, origins=origins)
        return copy

    def renamed(self, names: Mapping[str, str]) -> Node:
        """Return a copy that reads and defines values by their new names; the others keep theirs."""
        return dataclasses.replace(
            self,
            inputs=tuple(names.get(v, v) for v in self.inputs),
            outputs=tuple(names.get(v, v) for v in self.outputs),
        )

    @property
    def present_inputs(self) -> tuple[str, ...]:
        """The inputs that are there."""
        return tuple(v for v in self.inputs if v != ABSENT)

    @property
    def present_outputs(self) -> tuple[str, ...]:
        """The outputs that are there."""
        return tuple(v for v in self.outputs if v != ABSENT)


@dataclass(frozen=True)
class Affinity:
    """Devices that a graph names beside those of its nodes: for all that names none, for inputs, for outputs.

    In a placed graph, where transfers are nodes, it has the device of every input and nothing else.
    """

    default: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("inputs", "outputs"):
            object.__setattr__(self, key, MappingProxyType(dict(getattr(self, key))))

    def __bool__(self) -> bool:
        return bool(self.default or self.inputs or self.outputs)

    def renamed(self, names: Mapping[str, str]) -> Affinity:
        """Return the same for values under new names; those not in `names` keep theirs."""
        inputs, outputs = (
            {names.get(v, v): d for v, d in devices.items()} for devices in (self.inputs, self.outputs)
        )
        return Affinity(self.default, inputs, outputs)


@dataclass(frozen=True, eq=False)
class Graph:
    """A whole model or a part of one. `nodes` are in topological order.

    Graphs compare by identity (constants are arrays); compare `text.print_graph` for structure.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array] = field(default_factory=dict)
    affinity: Affinity = Affinity()
    counted: tuple[tuple[int, int, int], ...] = ()
    """Outputs of which a part is there: number of the output, axis, number of the output that says how much."""

    def __post_init__(self) -> None:
        for key in ("inputs", "outputs", "nodes"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        for key in ("types", "constants"):
            object.__setattr__(self, key, MappingProxyType(dict(getattr(self, key))))

    def replace(self, **changes: Any) -> Graph:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_nodes(
        self,
        nodes: Iterable[Node],
        types: Mapping[str, TensorType] | None = None,
        constants: Mapping[str, Array] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> Graph:
        """Return a copy with other nodes: sorted, pruned to what the outputs need.

        `types` and `constants` are added to the graph's own (types of new constants are derived);
        what no value needs any more is dropped. Graph inputs always stay.
        """
        merged_constants = {**self.constants, **(constants or {})}
        derived = {k: TensorType.of(v) for k, v in (constants or {}).items()}
        merged_types = {**self.types, **derived, **(types or {})}
        new = dataclasses.replace(
            self,
            nodes=tuple(nodes),
            types=merged_types,
            constants=merged_constants,
            outputs=self.outputs if outputs is None else tuple(outputs),
        )
        return new.sorted().pruned()

    def producers(self) -> dict[str, Node]:
        """Return the node that defines each value; inputs and constants are not in it."""
        return {v: n for n in self.nodes for v in n.present_outputs}

    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """Return the nodes that read each value, each once, in order; every known value has an entry."""
        users: dict[str, list[Node]] = {v: [] for v in self.types}
        for node in self.nodes:
            for value in dict.fromkeys(node.present_inputs):
                users.setdefault(value, []).append(node)
        return {v: tuple(ns) for v, ns in users.items()}

    def values(self) -> Iterator[str]:
        """Yield every value: inputs, constants, then the nodes' outputs in order."""
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.present_outputs

    def type_of(self, value: str) -> TensorType:
        """Return the type of a value. Raises GraphError for an unknown one."""
        found = self.types.get(value)
        if found is None:
            raise GraphError(f"graph {self.name!r} has no value {value!r}")
        return found

    def input_types(self, node: Node) -> list[TensorType | None]:
        """Return the types that a node reads; None for an absent input."""
        return [None if v == ABSENT else self.type_of(v) for v in node.inputs]

    def sorted(self) -> Graph:
        """Return the same graph with its nodes in topological order (stable: kept if already sorted)."""
        order = topological(self.nodes, {*self.inputs, *self.constants}, self.name)
        return self if order == self.nodes else dataclasses.replace(self, nodes=order)

    def pruned(self) -> Graph:
        """Return the same graph without nodes, constants and types that no output needs."""
        needed = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.present_outputs):
                kept.append(node)
                needed.update(node.present_inputs)
        alive = needed.union(self.inputs, *(n.present_outputs for n in kept))
        return dataclasses.replace(
            self,
            nodes=tuple(reversed(kept)),
            types={k: t for k, t in self.types.items() if k in alive},
            constants={k: a for k, a in self.constants.items() if k in needed},
        )

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """Return the same graph with values renamed; values not in `names` keep theirs."""
        return dataclasses.replace(
            self,
            inputs=tuple(names.get(v, v) for v in self.inputs),
            outputs=tuple(names.get(v, v) for v in self.outputs),
            nodes=tuple(n.renamed(names) for n in self.nodes),
            types={names.get(k, k): t for k, t in self.types.items()},
            constants={names.get(k, k): a for k, a in self.constants.items()},
            affinity=self.affinity.renamed(names),
        )

    def __str__(self) -> str:
        from autotune.graph.text import print_graph

        return print_graph(self)


def topological(nodes: Sequence[Node], available: Iterable[str], graph_name: str = "") -> tuple[Node, ...]:
    """Return nodes in an order where each value is defined before it is read.

    Stable: among the nodes that are ready, the one that came first goes first, so a sorted sequence
    comes back unchanged. Raises GraphError on a cycle or an unknown value, naming the node.
    """
    defined = set(available)
    producer = {v: i for i, n in enumerate(nodes) for v in n.present_outputs}
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ready: list[int] = []
    for i, node in enumerate(nodes):
        sources = {producer[v] for v in node.present_inputs if v not in defined and v in producer}
        for value in node.present_inputs:
            if value not in defined and value not in producer:
                raise GraphError(
                    f"graph {graph_name!r}, node {node.name!r} ({node.op}): input {value!r} is not "
                    "a graph input, a constant or an output of a node"
                )
        waiting[i] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(i)
        if not sources:
            ready.append(i)
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers.get(i, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) != len(nodes):
        stuck = next(nodes[i] for i in range(len(nodes)) if waiting[i] > 0)
        raise GraphError(f"graph {graph_name!r} has a cycle through node {stuck.name!r} ({stuck.op})")
    return tuple(nodes[i] for i in order)


def fresh_name(base: str, taken: Iterable[str]) -> str:
    """Return `base`, or `base_1`, `base_2`, ...: the first name that is not taken."""
    used = taken if isinstance(taken, (set, frozenset, Mapping)) else set(taken)
    if base not in used:
        return base
    n = 1
    while f"{base}_{n}" in used:
        n += 1
    return f"{base}_{n}"
