"""Fusion: which nodes share a dispatch. Greedy and legal by construction.

An anchor (attention, contraction, convolution, pool, reduction, softmax, normalization, transform) takes in the
elementwise operations after it, and a convolution those before it that no anchor has taken: they are
computed where its input is copied anyway, or read once a block. So does a matrix product of patches (im2col): it
is a convolution, and packs them. What is left is fused in chains. Lookups by indices join the only group that reads
what they find (:mod:`autotune.passes.fusion.lookups`). A group grows from its first node by whole
diamonds: operations join only together with every other reader
of the values between them, so each group has one result and no cycle can arise. This is the
immediate post-dominator rule of Relay's fusion (TVM), without its building of the dominator tree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.graph.ops.definition import Role
from autotune.graph.region import anchors
from autotune.passes.fusion.chains import LONGEST, may_chain
from autotune.passes.fusion.lookups import may_look_up
from autotune.passes.layout.views import ViewAnalysis

PRODUCERS: Mapping[str, tuple[Role, ...]] = {
    "none": (),
    "transpose": ("rearrangement", "patches"),
    "elementwise": ("rearrangement", "patches", "blend", "elementwise"),
}
"""Choices of what a convolution takes in before it: roles of operators."""


@dataclass(frozen=True)
class FusionOptions:
    """Limits of a dispatch; the bounds keep regions small enough to schedule.

    ``epilogues`` false makes every node a dispatch; ``producers`` is a key of :data:`PRODUCERS`; the values that are
    ``stored`` lie between dispatches. Anchors share a dispatch where they may (:mod:`autotune.passes.fusion.chains`)
    and at least ``chained`` bytes lie between them; None: never. Where they are ``joined``, elementwise operations
    share the dispatch of their only reader whatever came before: steps of a loop are small, and each dispatch takes
    its time.
    """

    epilogues: bool = True
    producers: str = "elementwise"
    max_nodes: int = 24
    max_inputs: int = 12
    stored: frozenset[str] = frozenset()
    chained: int | None = None
    joined: bool = False

    def __post_init__(self) -> None:
        if self.producers not in PRODUCERS:
            raise UsageError(
                f"unknown choice of producers {self.producers!r}\n  one of {', '.join(PRODUCERS)}"
            )


@dataclass(frozen=True)
class FusionGroup:
    """Nodes of one dispatch, in graph order; ``anchor`` is the last one, None for elementwise groups."""

    nodes: tuple[Node, ...]
    anchor: Node | None


def fuse(graph: Graph, views: ViewAnalysis, options: FusionOptions | None = None) -> tuple[FusionGroup, ...]:
    """Divide all nodes that are not views into groups, in order of their last nodes."""
    return _Fusion(graph, views, options or FusionOptions()).run()


class _Fusion:
    def __init__(self, graph: Graph, views: ViewAnalysis, options: FusionOptions) -> None:
        self.graph = graph
        self.views = views
        self.options = options
        self.position = {node.outputs[0]: i for i, node in enumerate(graph.nodes)}
        self.producers = graph.producers()
        self.consumers = graph.consumers()
        self.taken: set[int] = set()

    def run(self) -> tuple[FusionGroup, ...]:
        groups = []
        # Last anchors first: of two branches that meet in an Add, the later one takes it in.
        for node in reversed(self.graph.nodes):
            if ops.get(node.op).role == "anchor":
                groups.append(FusionGroup(self._grow(node, anchored=True), node))
        # After all epilogues: an operation between two anchors rather ends the first one.
        groups = [self._with_widened(self._with_producers(group)) for group in groups]
        for index, node in enumerate(self.graph.nodes):
            if index not in self.taken and not self.views.is_view(node):
                groups.append(FusionGroup(self._grow(node, anchored=False), None))
        if self.options.epilogues:
            groups = self._with_lookups(groups)
        if self.options.joined:
            groups = self._joined(groups)
        if self.options.chained is not None:
            groups = self._chains(groups)
        return tuple(sorted(groups, key=self._end))

    def _end(self, group: FusionGroup) -> int:
        return self.position[group.nodes[-1].outputs[0]]

    def _joined(self, groups: Sequence[FusionGroup]) -> list[FusionGroup]:
        """Return the groups, elementwise ones in that group which alone reads their result, of the same shape.

        Nothing comes between two such groups, and so no cycle can arise.
        """
        kept = {self._end(group): group for group in groups}
        home = {self.position[node.outputs[0]]: end for end, group in kept.items() for node in group.nodes}
        for end in sorted(kept):
            value = kept[end].nodes[-1].outputs[0]
            readers = [home.get(self.position[reader.outputs[0]], end) for reader in self.consumers[value]]
            if len(set(readers)) != 1 or self._is_stored(value):
                continue
            reader = readers[0]
            if reader == end or not self._may_be_one(kept[end], kept[reader]):
                continue
            members = sorted(
                self.position[node.outputs[0]] for g in (kept[end], kept[reader]) for node in g.nodes
            )
            kept[reader] = FusionGroup(tuple(self.graph.nodes[i] for i in members), None)
            del kept[end]
            home |= dict.fromkeys(members, reader)
        return list(kept.values())

    def _may_be_one(self, first: FusionGroup, second: FusionGroup) -> bool:
        nodes = (*first.nodes, *second.nodes)
        if any(ops.get(node.op).role != "elementwise" or len(node.outputs) != 1 for node in nodes):
            return False
        if len({self.graph.type_of(node.outputs[0]).shape for node in nodes}) != 1:
            return False
        few = self._few_inputs([self.position[node.outputs[0]] for node in nodes])
        return few and len(nodes) <= self.options.max_nodes

    def _chains(self, groups: Sequence[FusionGroup]) -> list[FusionGroup]:
        """Return the groups, two as one where the second alone reads what the first makes, and may
        compute it itself."""
        ending = {group.nodes[-1].outputs[0]: group for group in groups}
        for second in sorted(groups, key=self._end):
            value = second.nodes[0].inputs[0] if second.nodes[0].inputs else ABSENT
            first = ending.get(value)
            if first is not None and self._makes_chain(first, value, second):
                del ending[value]
                members = sorted(self.position[node.outputs[0]] for node in (*first.nodes, *second.nodes))
                both = FusionGroup(tuple(self.graph.nodes[i] for i in members), second.anchor)
                ending[second.nodes[-1].outputs[0]] = both
        return list(ending.values())

    def _makes_chain(self, first: FusionGroup, value: str, second: FusionGroup) -> bool:
        assert self.options.chained is not None
        if first.anchor is None or second.anchor is not second.nodes[0]:
            return False
        if self._is_stored(value) or self.graph.type_of(value).nbytes < self.options.chained:
            return False
        nodes = (*first.nodes, *second.nodes)
        members = [self.position[node.outputs[0]] for node in nodes]
        if len(members) > self.options.max_nodes or not self._few_inputs(members):
            return False
        if len(anchors(nodes)) > LONGEST:
            return False
        return len(self.consumers[value]) == 1 and may_chain(self.graph, first.anchor, second.anchor)

    def _with_producers(self, group: FusionGroup) -> FusionGroup:
        """Return the group with the chain of operations that only prepares its anchor's first input.

        A reduction reads each element once, so it takes in elementwise operations whatever the options.
        """
        nodes, anchor = group.nodes, group.anchor
        if anchor is None or not self.options.epilogues:
            return group
        reduces = ops.get(anchor.op).kind == "reduction"
        allowed = ("elementwise",) if reduces else PRODUCERS[self.options.producers]
        roles = ops.get(anchor.op).prologue
        while roles:
            value = nodes[0].inputs[0] if nodes[0] is anchor else self._chained(nodes[0])
            producer = self.producers.get(value)
            if producer is None or not self._may_precede(producer, set(roles) & set(allowed)):
                break
            members = [self.position[node.outputs[0]] for node in (producer, *nodes)]
            if len(members) > self.options.max_nodes or not self._few_inputs(members):
                break
            nodes = (producer, *nodes)
            self.taken.add(members[0])
            # What is blended is read several times: it is computed before.
            roles = () if ops.get(producer.op).role == "blend" else ops.get(producer.op).prologue or roles
        return FusionGroup(nodes, anchor)

    def _with_widened(self, group: FusionGroup) -> FusionGroup:
        """Return the group with the chains of elementwise operations that widen an operand of its epilogue.

        Integers that stand for real numbers are fewer bytes as they lie: they are read and converted in registers.
        """
        if group.anchor is None or not self.options.epilogues:
            return group
        members = [self.position[node.outputs[0]] for node in group.nodes]
        after = group.nodes[group.nodes.index(group.anchor) + 1 :]
        for value in [v for node in after for v in node.present_inputs]:
            chain = self._widening(value)
            joined = sorted({*members, *chain})
            if chain and len(joined) <= self.options.max_nodes and self._few_inputs(joined):
                members = joined
                self.taken.update(chain)
        return FusionGroup(tuple(self.graph.nodes[i] for i in members), group.anchor)

    def _widening(self, value: str) -> list[int]:
        """Return a chain of nodes, last first, that makes a value of one of its shape that is fewer
        bytes; or nothing."""
        chain, made, roles = list[int](), self.graph.type_of(value), set[Role]({"elementwise"})
        while (producer := self.producers.get(value)) is not None and self._may_precede(producer, roles):
            value = self._chained(producer)
            if value == ABSENT or self.graph.type_of(value).shape != made.shape:
                return []
            chain.append(self.position[producer.outputs[0]])
        return chain if chain and self.graph.type_of(value).nbytes < made.nbytes else []

    def _with_lookups(self, groups: Sequence[FusionGroup]) -> list[FusionGroup]:
        """Return the groups, lookups in those that alone read what they find.

        Nobody outside reads what a group makes on its way, so a lookup cannot depend on it: no cycle can arise.
        """
        home = {node.outputs[0]: number for number, group in enumerate(groups) for node in group.nodes}
        found, gone = list(groups), set[int]()
        for number, group in enumerate(groups):
            lookup = group.nodes[0]
            value, readers = lookup.outputs[0], self.consumers[lookup.outputs[0]]
            if len(group.nodes) > 1 or len(readers) != 1 or self._is_stored(value):
                continue
            (reader,) = readers
            end = home.get(reader.outputs[0])
            if end is None or not may_look_up(self.graph, reader, found[end].anchor, lookup):
                continue
            members = sorted(self.position[node.outputs[0]] for node in (lookup, *found[end].nodes))
            if len(members) <= self.options.max_nodes and self._few_inputs(members):
                found[end] = FusionGroup(tuple(self.graph.nodes[i] for i in members), found[end].anchor)
                gone.add(number)
        return [group for number, group in enumerate(found) if number not in gone]

    def _chained(self, node: Node) -> str:
        """Return the operand that carries on a chain of producers: the one that is not a constant."""
        variable = [v for v in node.present_inputs if v not in self.graph.constants]
        return variable[0] if len(variable) == 1 else ABSENT

    def _may_precede(self, node: Node, roles: Collection[Role]) -> bool:
        (output, *others) = node.outputs
        if others or ops.get(node.op).role not in roles or self._is_stored(output):
            return False
        free = self.position[output] not in self.taken and not self.views.is_view(node)
        return free and len(self.consumers[output]) == 1

    def _grow(self, seed: Node, anchored: bool) -> tuple[Node, ...]:
        members = [self.position[seed.outputs[0]]]
        extensible = _is_chainable(seed) or (anchored and ops.get(seed.op).kind != "sequential")
        while self.options.epilogues and extensible:
            last = self.graph.nodes[members[-1]]
            added = self._closed_extension(last, len(members), anchored)
            if not added or not self._few_inputs(members + added):
                break
            members += added
        if anchored:
            members = members[: self._narrowest(members)]
        self.taken.update(members)
        return tuple(self.graph.nodes[i] for i in members)

    def _narrowest(self, members: Sequence[int]) -> int:
        """Return how many nodes of a group are left without those at its end that only widen its result, for an
        operation of a group that takes them in (:meth:`_with_widened`): what lies between is fewer bytes so."""
        kept, (*_, last) = len(members), [self.graph.nodes[i].outputs[0] for i in members]
        if self._is_stored(last) or not self._is_read_by_epilogue(last):
            return kept
        least = self.graph.type_of(last).nbytes
        for count in range(len(members) - 1, 0, -1):
            before, node = (self.graph.nodes[members[at]] for at in (count - 1, count))
            value = before.outputs[0]
            if self._chained(node) != value or not self._may_precede(node, set[Role]({"elementwise"})):
                break
            if len(self.consumers[value]) == 1 and self.graph.type_of(value).nbytes < least:
                kept, least = count, self.graph.type_of(value).nbytes
        return kept

    def _is_read_by_epilogue(self, value: str) -> bool:
        """Return whether an elementwise operation alone reads a value, of a group with an anchor."""
        readers = self.consumers[value]
        if len(readers) != 1 or ops.get(readers[0].op).role != "elementwise":
            return False
        return self.position[readers[0].outputs[0]] in self.taken

    def _closed_extension(self, last: Node, size: int, anchored: bool) -> list[int]:
        """Return the fewest nodes after ``last`` that hold all readers of all values but one."""
        if len(last.present_outputs) != 1:
            return []
        (value,) = last.present_outputs
        pending, added = [value], list[int]()
        while len(added) + size < self.options.max_nodes:
            if any(self._is_stored(v) for v in pending):
                return []
            readers = {self.position[r.outputs[0]] for v in pending for r in self.consumers[v]}
            readers -= set(added)
            if not readers:
                return []
            index = min(readers)
            node = self.graph.nodes[index]
            if not self._may_join(node, value, anchored):
                return []
            added.append(index)
            pending = [v for v in (*pending, node.outputs[0]) if self._is_open(v, added)]
            if pending == [node.outputs[0]]:
                return added
        return []

    def _is_stored(self, value: str) -> bool:
        return value in self.graph.outputs or value in self.options.stored

    def _is_open(self, value: str, added: list[int]) -> bool:
        """Return whether someone outside still reads the value (or nobody does: the last result)."""
        readers = {self.position[r.outputs[0]] for r in self.consumers[value]}
        return not readers or value in self.graph.outputs or not readers <= set(added)

    def _may_join(self, node: Node, value: str, anchored: bool) -> bool:
        index = self.position[node.outputs[0]]
        if index in self.taken or self.views.is_view(node) or len(node.outputs) != 1:
            return False
        role = ops.get(node.op).role
        if role == "elementwise":
            return self.graph.type_of(node.outputs[0]).shape == self.graph.type_of(value).shape
        return not anchored and role == "rearrangement"

    def _few_inputs(self, members: Sequence[int]) -> bool:
        nodes = [self.graph.nodes[i] for i in members]
        made = {v for node in nodes for v in node.present_outputs}
        read = {v for node in nodes for v in node.present_inputs}
        return len(read - made) <= self.options.max_inputs


def _is_chainable(node: Node) -> bool:
    return ops.get(node.op).role in ("elementwise", "rearrangement", "blend")


__all__ = ["PRODUCERS", "FusionGroup", "FusionOptions", "fuse"]
