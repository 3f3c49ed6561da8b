"""Computations of stages, with inlined stages in place of reads of them.

An element of an inlined stage that is read several times is one node: expressions are graphs, whose size is that of the
stages and not of all paths through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.errors import LoweringError
from autotune.schedule.stage import Stage
from autotune.te.expr import Binary, Const, Expr, Read, Reduce, Var, binary, cast, const
from autotune.te.tensor import ComputeOp
from autotune.te.traversal import children, ordered, rebuild, transform

Inlined = tuple[tuple[Expr, ...], Expr | None]
"""The body of a stage, and its epilogue."""

MOST_ELEMENTS = 8192
"""Elements of inlined stages that one stage may compute for one of its own."""


def as_written(op: ComputeOp) -> Inlined:
    """Return the body and the epilogue of an operation."""
    return op.body, None if op.epilogue is None else op.epilogue.body


def inlined_bodies(
    order: Sequence[Stage],
    known: dict[tuple[object, ...], Inlined] | None = None,
    source: Callable[[ComputeOp], Inlined] = as_written,
) -> tuple[dict[Stage, tuple[Expr, ...]], dict[Stage, Expr]]:
    """Return bodies and epilogues of all compute stages that are not inlined, with inlined stages substituted.

    ``known`` are those of other schedules of the program, which gets these in addition; ``source`` gives what an
    operation computes by itself. Raises LoweringError for stages that read inlined ones at too many places.
    """
    known = {} if known is None else known
    bodies: dict[Stage, tuple[Expr, ...]] = {}
    epilogues: dict[Stage, Expr] = {}
    for stage in order:
        if not isinstance(stage.op, ComputeOp) or stage.attach_type == "inline":
            continue
        inlined = _inlined_into(stage)
        key = (stage.op, *(producer.op for producer in inlined))
        if key not in known:
            known[key] = _Inliner(stage, source).result() if inlined else source(stage.op)
        bodies[stage], epilogue = known[key]
        if epilogue is not None:
            epilogues[stage] = epilogue
    return bodies, epilogues


def _inlined_into(stage: Stage) -> list[Stage]:
    """Return the inlined stages that a stage reads, directly or through one another."""

    def below(reader: Stage) -> list[Stage]:
        producers = [reader.schedule[tensor] for tensor in reader.op.input_tensors]
        return [p for p in producers if p.attach_type == "inline" and isinstance(p.op, ComputeOp)]

    return [found for found in ordered([stage], below) if found is not stage]


class _Inliner:
    """Puts inlined stages in place of reads of them, each element of one once."""

    def __init__(self, stage: Stage, source: Callable[[ComputeOp], Inlined]) -> None:
        self.stage = stage
        self.source = source
        self.indices = _Indices()
        self.elements: dict[tuple[object, ...], Expr] = {}

    def result(self) -> Inlined:
        assert isinstance(self.stage.op, ComputeOp)
        body, last = self.source(self.stage.op)
        first, memo = body[0], dict[int, Expr]()
        if isinstance(first, Reduce):
            sources = tuple(transform(s, self._element, memo) for s in first.sources)
            body = tuple(Reduce(first.reducer, sources, first.axis, n) for n in range(len(body)))
        else:
            body = tuple(transform(e, self._element, memo) for e in body)
        return body, None if last is None else transform(last, self._element)

    def _element(self, node: Expr) -> Expr | None:
        """Return the computation of an element of an inlined stage; None for other nodes."""
        if not isinstance(node, Read):
            return None
        producer = self.stage.schedule[node.tensor]
        op = producer.op
        if producer.attach_type != "inline" or not isinstance(op, ComputeOp):
            return None
        # An index may be of a narrower type than the loop variable that it stands for.
        pairs = zip(op.axis, node.indices, strict=True)
        indices = [self.indices.unique(cast(index, axis.dtype)) for axis, index in pairs]
        key = (op, node.tensor.value_index, *map(id, indices))
        if key not in self.elements:
            if len(self.elements) >= MOST_ELEMENTS:
                raise LoweringError(
                    f"stage {self.stage.op.name} computes more than {MOST_ELEMENTS} elements of inlined stages for "
                    f"each of its own, of {op.name} among others; compute some of the stages on the way at the root, "
                    f"or at a loop of their reader"
                )
            value = self.source(op)[0][node.tensor.value_index]
            self.elements[key] = self._computed(value, dict(zip(op.axis, indices, strict=True)))
        return self.elements[key]

    def _computed(self, value: Expr, indices: Mapping[Expr, Expr]) -> Expr:
        return transform(value, lambda n: indices.get(n) if isinstance(n, Var) else self._element(n))


class _Indices:
    """Makes equal indices one object; constants that are added one after another become one."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Expr] = {}
        self._unique: dict[int, Expr] = {}
        self._seen: list[Expr] = []  # an id is not reused while its node lives

    def unique(self, index: Expr) -> Expr:
        """Return the one object for an index and those equal to it."""
        for node in ordered([index], lambda n: () if id(n) in self._unique else children(n)):
            if id(node) not in self._unique:
                self._seen.append(node)
                self._unique[id(node)] = self._found(node)
        return self._unique[id(index)]

    def _found(self, node: Expr) -> Expr:
        made = rebuild(node, tuple(self._unique[id(part)] for part in children(node)))
        first, offset = _shift(made)
        if offset and isinstance(made, Binary):
            base, more = _shift(first)
            made = binary("+", base, self._first(const(offset + more, made.dtype))) if more else made
        return self._first(made)

    def _first(self, node: Expr) -> Expr:
        return self._nodes.setdefault(_key(node), node)


def _shift(node: Expr) -> tuple[Expr, int]:
    """Return an index as another one and the constant that is added to it."""
    if not isinstance(node, Binary) or node.op not in ("+", "-") or not isinstance(node.b, Const):
        return node, 0
    return node.a, int(node.b.value) if node.op == "+" else -int(node.b.value)


def _key(node: Expr) -> tuple[object, ...]:
    """Return the part that two nodes over the same operands have in common if they are equal."""
    if isinstance(node, Const):
        return "constant", node.value, node.dtype
    if not children(node) or isinstance(node, Reduce):
        return "itself", id(node)
    name = getattr(node, "op", None) or getattr(node, "name", None) or getattr(node, "tensor", None)
    return type(node), name, node.dtype, *(id(part) for part in children(node))


__all__ = ["MOST_ELEMENTS", "Inlined", "as_written", "inlined_bodies"]
