"""A graph divided into dispatches: what the compiler looks up, builds and places in memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from autotune.errors import InternalError
from autotune.graph.ir import ABSENT, Array, Graph, Node, TensorType, fresh_name
from autotune.graph.region import Region, Workload
from autotune.passes.fusion.chains import LEAST_BYTES
from autotune.passes.fusion.fuse import FusionGroup, FusionOptions, fuse
from autotune.passes.layout.views import Placement, ViewAnalysis, is_dense, separate_outputs, view_kind
from autotune.passes.origins import union
from autotune.passes.repetition import Condition, LoopVersion, Moving, Repetition, runs_of
from autotune.strides import periodic_runs


@dataclass(frozen=True)
class Dispatch:
    """One unit of work. ``inputs`` and ``outputs`` are value names in the workload's order.

    It runs under all its ``conditions``, and as often as its ``repeats`` say, the outermost first.

    ``origins`` are the names of the model's nodes that it computes, or whose results lie in its memory.
    """

    name: str
    region: Region
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    workload: Workload
    origins: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    repeats: tuple[Repetition, ...] = ()

    @property
    def runs(self) -> int:
        """Return how many times a run of the model is expected to run it."""
        return runs_of(self.repeats)

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the values that must be there: its inputs and its conditions."""
        return (*self.inputs, *(condition.value for condition in self.conditions))


@dataclass(frozen=True)
class InPlace:
    """A node that joins, slices or transposes without a dispatch; ``nbytes`` are not moved for it.

    ``copied`` are the operands of a join that are copied into it after all.
    """

    node: Node
    copied: tuple[str, ...]
    nbytes: int

    def __str__(self) -> str:
        """Return a line such as ``y = Concat(a, b) in place, copies b; 1024 bytes not moved``."""
        results, operands = (", ".join(v) for v in (self.node.present_outputs, self.node.present_inputs))
        copies = f", copies {', '.join(self.copied)}" if self.copied else ""
        return f"{results} = {self.node.op}({operands}) in place{copies}; {self.nbytes} bytes not moved"


@dataclass(frozen=True)
class ElementRange:
    """Elements of a root from ``begin`` to ``end``; of each ``period`` the first ``run`` only, if there is one."""

    root: str
    begin: int
    end: int
    period: int = 0
    run: int = 0

    def meets(self, other: ElementRange) -> bool:
        """Return whether both may have an element."""
        if self.root != other.root or self.begin >= other.end or other.begin >= self.end:
            return False
        if not self.period or self.period != other.period:
            return True
        ahead = (other.begin - self.begin) % self.period
        return ahead < self.run or self.period - ahead < other.run


@dataclass(frozen=True, eq=False)
class Partition:
    """Dispatches in an order they can run in, and where every value lies.

    ``output_names`` are what the model calls its outputs, where the values are copies.

    ``placements`` has each value that a dispatch reads or writes and each graph output. Its root is
    a graph input, a constant, a graph output or a value in the arena.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dispatches: tuple[Dispatch, ...]
    placements: Mapping[str, Placement]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    output_names: tuple[str, ...]
    in_place: tuple[InPlace, ...] = ()
    counted: tuple[tuple[int, int, int], ...] = ()
    """As of :class:`~autotune.graph.ir.Graph`."""
    order: Literal["given", "memory", "concurrency"] = "given"
    """The objective of the order of the dispatches; "given" while nothing was chosen."""
    versions: Mapping[str, LoopVersion] = field(default_factory=dict)
    """Of values in memory that several steps of a loop write to: what they are a part of. Of others that is their
    root."""
    moving: Mapping[str, tuple[Moving, ...]] = field(default_factory=dict)
    """Of values that lie elsewhere each time that repeats go on, the outermost first: ``placements`` has the first
    place."""
    overwriting: bool = True
    """As of :class:`PartitionOptions`."""
    _reaches: dict[str, ElementRange] = field(default_factory=dict, init=False, repr=False)

    def root_nbytes(self, root: str) -> int:
        """Return bytes of a root's memory, which is dense."""
        return self.types[root].nbytes

    def version(self, value: str, times: Sequence[int] = ()) -> object:
        """Return what a value is a part of while it lies in its root, when the repeats around have gone on so many
        times: the root itself but for steps of a loop."""
        version = self.versions.get(value)
        return self.placements[value].root if version is None else version.at(times)

    def reach(self, value: str) -> ElementRange:
        """Return the elements of its root that a value is in; all of a flat root that was made for strides."""
        if value not in self._reaches:
            self._reaches[value] = self._reach(value)
        return self._reaches[value]

    def swept(self, value: str) -> ElementRange:
        """Return the elements of its root that a value is in at any time."""
        reach, moving = self.reach(value), self.moving.get(value, ())
        if not any(each.last for each in moving):
            return reach
        begin = reach.begin + sum(min(each.last, 0) for each in moving)
        return ElementRange(reach.root, begin, reach.end + sum(max(each.last, 0) for each in moving))

    def _reach(self, value: str) -> ElementRange:
        placed, shape = self.placements[value], self.types[value].shape
        if len(placed.strides) != len(shape):
            return ElementRange(placed.root, 0, self.types[placed.root].size)
        last = sum((extent - 1) * step for extent, step in zip(shape, placed.strides, strict=True))
        runs = periodic_runs(shape, placed.strides)
        return ElementRange(placed.root, placed.offset, placed.offset + last + 1, *runs)

    def __str__(self) -> str:
        lines = [f"partition {self.name} {{"]
        for dispatch in self.dispatches:
            results = ", ".join(f"{v}: {self._place_text(v)}" for v in dispatch.outputs)
            lines.append(f"  {dispatch.name}({', '.join(dispatch.inputs)}) -> {results}")
            lines += [f"    from {', '.join(dispatch.origins)}"] if dispatch.origins else []
            lines += [f"    {each}" for each in (*dispatch.repeats, *dispatch.conditions)]
        lines += [f"  {item}" for item in self.in_place]
        return "\n".join([*lines, "}"])

    def _place_text(self, value: str) -> str:
        placement, text = self.placements[value], str(self.types[value].dense)
        if placement.root == value:
            return text
        return f"{text} in {placement.root} at {placement.offset}"


@dataclass(frozen=True)
class PartitionOptions:
    """Options of the division of a graph. All but ``overwriting`` change which workloads there are.

    Where ``overwriting`` is allowed results may lie in the memory of operands that nobody reads any more.
    """

    fusion: FusionOptions = field(default_factory=FusionOptions)
    views: bool = True
    in_place_concat: bool = True
    overwriting: bool = True


OF_A_MODEL = PartitionOptions(FusionOptions(chained=LEAST_BYTES))
"""The division of a model: whatever may be one dispatch is; the options of its workload divide it again."""


def partition(graph: Graph, options: PartitionOptions | None = None) -> Partition:
    """Divide a graph into dispatches.

    Every node is in exactly one dispatch or is a view, or a loop, whose dispatches are there for each step
    (:mod:`autotune.passes.loops`), or a branch (:mod:`autotune.passes.branches`); the dispatches are in topological
    order.
    """
    from autotune.passes.expand import with_graphs_inside  # divides these by this function

    options = options or PartitionOptions()
    names = graph.outputs
    graph = separate_outputs(graph)
    views = ViewAnalysis(graph, options.in_place_concat, options.views)
    groups = fuse(graph, views, options.fusion)
    parts = replace(
        _Assembly(graph, views).run(groups),
        output_names=names,
        counted=graph.counted,
        overwriting=options.overwriting,
    )
    inner = replace(options, fusion=replace(options.fusion, joined=options.fusion.epilogues))
    return with_graphs_inside(
        parts, lambda body: partition(body, inner), lambda branch: partition(branch, options)
    )


@dataclass(frozen=True)
class _Draft:
    """A dispatch before it has its name: its nodes, types that differ from the graph's, position."""

    nodes: tuple[Node, ...]
    position: int


class _Assembly:
    def __init__(self, graph: Graph, views: ViewAnalysis) -> None:
        self.graph = graph
        self.views = views
        self.types = dict(graph.types)
        self.placements: dict[str, Placement] = {}
        self.copied: dict[str, list[str]] = {}  # in-place Concat -> its copied operands' new names
        self.position = {node.outputs[0]: i for i, node in enumerate(graph.nodes)}

    def run(self, groups: Sequence[FusionGroup]) -> Partition:
        drafts = [_Draft(group.nodes, self.position[group.nodes[-1].outputs[0]]) for group in groups]
        drafts += self._concat_copies()
        ordered = self._ordered(drafts)
        viewed = self._viewed(ordered)
        dispatches = [self._dispatch(number, draft, viewed[number]) for number, draft in enumerate(ordered)]
        for output in self.graph.outputs:
            self._placement(output)
        used = {self._placement(v).root for d in dispatches for v in d.inputs}
        return Partition(
            self.graph.name,
            self.graph.inputs,
            self.graph.outputs,
            tuple(dispatches),
            self.placements,
            {v: self.types[v] for v in {*self.placements, *self._roots()}},
            {v: self.graph.constants[v] for v in self.graph.constants if v in used},
            self.graph.outputs,
            tuple(self._in_place(n) for n in self.views.views.values() if view_kind(n) != "reshape"),
        )

    def _in_place(self, node: Node) -> InPlace:
        copied = self.views.copies.get(node.outputs[0], ())
        moved = node.present_outputs
        if view_kind(node) == "join":
            moved = tuple(v for index, v in enumerate(node.inputs) if index not in copied)
        nbytes = sum(self.types[v].nbytes for v in moved)
        return InPlace(node, tuple(node.inputs[index] for index in copied), nbytes)

    def _roots(self) -> set[str]:
        return {placement.root for placement in self.placements.values()} | set(self.graph.inputs)

    def _concat_copies(self) -> list[_Draft]:
        """Return the identity dispatches for the operands that an in-place Concat must copy."""
        drafts = []
        for output, operands in self.views.copies.items():
            node = self.views.views[output]
            for index in operands:
                source = node.inputs[index]
                name = fresh_name(f"{output}.part{index}", self.types)
                self.types[name] = self.types[source]
                self.placements[name] = self.views.copy_placement(node, index)
                self.copied.setdefault(output, []).append(name)
                copy = Node("Identity", (source,), (name,), origins=node.origins)
                drafts.append(_Draft((copy,), self.position[output]))
        return drafts

    def _placement(self, value: str) -> Placement:
        if value not in self.placements:
            self.placements[value] = self.views.placement(value)
        return self.placements[value]

    def _viewed(self, drafts: Sequence[_Draft]) -> list[tuple[str, ...]]:
        """Return for each draft the origins that have views only: of what it writes, or reads of inputs
        and constants."""
        computed = {origin for draft in drafts for node in draft.nodes for origin in node.origins}
        writer = {v: i for i, d in enumerate(drafts) for v in d.nodes[-1].present_outputs}
        found: list[tuple[str, ...]] = [()] * len(drafts)
        pending: dict[str, tuple[str, ...]] = {}  # views of inputs and constants, by their results
        for node in self.views.views.values():
            own = (origin for origin in node.origins if origin not in computed)
            waiting = union(*(pending.get(v, ()) for v in node.present_inputs), own)
            writers = self._writers(node.present_inputs, writer)
            for index in writers:
                found[index] = union(found[index], waiting)
            if not writers:
                pending.update(dict.fromkeys(node.present_outputs, waiting))
        for index, draft in enumerate(drafts):
            read = (v for node in draft.nodes for v in node.present_inputs)
            found[index] = union(*(pending.get(v, ()) for v in read), found[index])
        return found

    def _dispatch(self, number: int, draft: _Draft, viewed: tuple[str, ...]) -> Dispatch:
        made = {v for node in draft.nodes for v in node.present_outputs}
        read = [v for node in draft.nodes for v in node.present_inputs if v not in made]
        inputs = tuple(dict.fromkeys(read))
        outputs = draft.nodes[-1].present_outputs
        types = {v: self.types[v].dense for v in made}
        types |= {v: self._placed_type(v) for v in (*inputs, *outputs)}
        name = _dispatch_name(number, draft.nodes)
        region = Region(
            Graph(name, inputs, outputs, draft.nodes, types),
            frozenset(v for v in inputs if v in self.graph.constants),
        )
        arguments = region.arguments()
        ordered = arguments[: len(inputs)], arguments[len(inputs) :]
        origins = union(*(node.origins for node in draft.nodes), viewed)
        return Dispatch(name, region, *ordered, Workload.from_region(region), origins)

    def _placed_type(self, value: str) -> TensorType:
        dense, strides = self.types[value].dense, self._placement(value).strides
        if is_dense(dense.shape, strides):
            return dense
        return TensorType(dense.shape, dense.dtype, strides)

    def _ordered(self, drafts: Sequence[_Draft]) -> list[_Draft]:
        """Return the topological order; among those that are ready, the order of the graph."""
        writer = {v: i for i, d in enumerate(drafts) for v in d.nodes[-1].present_outputs}
        depends = [self._writers_of(draft, writer) for draft in drafts]
        readers: dict[int, list[int]] = {}
        for i, sources in enumerate(depends):
            for source in sources:
                readers.setdefault(source, []).append(i)
        waiting = [len(sources) for sources in depends]
        ready = [(drafts[i].position, i) for i in range(len(drafts)) if not waiting[i]]
        heapq.heapify(ready)
        order = []
        while ready:
            _, i = heapq.heappop(ready)
            order.append(drafts[i])
            for reader in readers.get(i, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, (drafts[reader].position, reader))
        if len(order) != len(drafts):
            raise InternalError(f"the dispatches of graph {self.graph.name!r} have a cycle")
        return order

    def _writers_of(self, draft: _Draft, writer: Mapping[str, int]) -> set[int]:
        """Return the drafts whose results a draft reads, directly or through views."""
        made = {v for node in draft.nodes for v in node.present_outputs}
        return self._writers((v for n in draft.nodes for v in n.present_inputs if v not in made), writer)

    def _writers(self, values: Iterable[str], writer: Mapping[str, int]) -> set[int]:
        """Return the drafts that write values, or what is in their memory."""
        open_values = list(values)
        found: set[int] = set()
        seen: set[str] = set()
        while open_values:
            value = open_values.pop()
            if value in seen or value == ABSENT:
                continue
            seen.add(value)
            if value in writer:
                found.add(writer[value])
            elif value in self.views.producers:
                open_values += self.views.producers[value].present_inputs
                open_values += self.copied.get(value, [])
        return found


def _dispatch_name(number: int, nodes: Sequence[Node]) -> str:
    """Return the number and the distinct operators in order, e.g. ``003_conv_add_relu``."""
    parts = list(dict.fromkeys(node.op.lower() for node in nodes))
    shown = parts if len(parts) <= 4 else [*parts[:3], f"{len(parts) - 3}more"]
    return f"{number:03d}_{'_'.join(shown)}"


__all__ = ["OF_A_MODEL", "Condition", "Dispatch", "InPlace", "Partition", "PartitionOptions", "partition"]
