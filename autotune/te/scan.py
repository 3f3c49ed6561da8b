"""``te.scan``: states that follow one another, each computed from those before.

A scan is a sequential kernel (:mod:`autotune.te.sequential`): along its first axis one step follows another, and stages
that read the state are computed within the step, element by element, or as sums over what the step before left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.te.expr import Binary, Const, Expr, IterVar, Read, Reduce, binary, cast
from autotune.te.operations import loop_over
from autotune.te.sequential import SequentialOp, results_of, sequential_op
from autotune.te.sizes import Closing
from autotune.te.statements import Steps
from autotune.te.tags import tagged
from autotune.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor, post_order
from autotune.te.traversal import reads, substitute, transform


@dataclass(frozen=True, eq=False)
class Recurrence:
    """First states, the states that follow, and what these read as the states before."""

    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    within: tuple[ComputeOp, ...]
    """Operations that depend on a state, in order; the updates are among them."""


class ScanOp(SequentialOp):
    """The operation of a scan; ``scan_axis`` runs over the steps that the update computes."""

    recurrence: Recurrence
    scan_axis: IterVar

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self.recurrence.update[0].shape if self.is_open else self.shape

    def renamed(self, name: str) -> ScanOp:
        names = tuple(name if n == 0 else f"{name}.v{n}" for n in range(len(self.names)))
        return scan_op(self.recurrence, names)

    def closed(self, closing: Closing) -> ScanOp:
        """Return the scan with numbers for its sizes."""
        made = Recurrence(
            tuple(map(closing.tensor, self.recurrence.init)),
            tuple(map(closing.tensor, self.recurrence.update)),
            tuple(map(closing.tensor, self.recurrence.state)),
            tuple(closing.tensor(op.output(0)).op for op in self.recurrence.within),  # type: ignore[misc]
        )
        _check(self.name, made)
        return scan_op(made, self.names)


def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Any = None,
    name: str = "scan",
    tag: str = "",
    attrs: Any = None,
) -> Any:
    """Return states along the first axis: ``init`` gives the first ones, ``update`` each of the others
    from those before.

    ``update`` and the stages that it reads know the states as ``state_placeholder``, at indices below the first axis of
    theirs. Lists of the same length make several states that depend on one another. ``inputs`` is accepted for TVM's
    sake: what is read is found. Returns a tensor of the shape of ``update``, or a list. Raises TypeError for tensors
    that do not go together.
    """
    several = isinstance(update, list | tuple)
    first, then, before = (
        tuple(v) if isinstance(v, list | tuple) else (v,) for v in (init, update, state_placeholder)
    )
    recurrence = Recurrence(first, then, before, within=())
    _check(name, recurrence)
    recurrence = replace(recurrence, within=_within(recurrence))
    _check_steps(name, recurrence)
    count = len(recurrence.update)
    names = tuple(f"{name}.v{n}" if count > 1 else name for n in range(count))
    op = scan_op(recurrence, names)
    op.tag, op.attrs = tagged(name, tag), dict(attrs or {})
    outputs = [op.output(n) for n in range(count)]
    return outputs if several else outputs[0]


def _check(name: str, r: Recurrence) -> None:
    if not len(r.init) == len(r.update) == len(r.state) or not r.init:
        raise TypeError(
            f"{name}: a state needs an init, an update and a placeholder; "
            f"got {len(r.init)}, {len(r.update)} and {len(r.state)}"
        )
    for init, update, state in zip(r.init, r.update, r.state, strict=True):
        if not isinstance(state.op, PlaceholderOp):
            raise TypeError(f"{name}: the state {state.name} must be a placeholder")
        if len({t.dtype for t in (init, update, state)}) > 1 or init.op.shape[1:] != update.op.shape[1:]:
            raise TypeError(f"{name}: {init.name}, {update.name} and {state.name} have other shapes or types")
        if update.op.shape != state.op.shape or update.op.shape != r.update[0].op.shape or not update.ndim:
            raise TypeError(f"{name}: all updates and states must have one shape, with the steps first")
        if init.op.shape[0] != r.init[0].op.shape[0]:
            raise TypeError(f"{name}: all states must start with equally many steps")
        if not 1 <= init.op.shape[0] <= update.op.shape[0]:
            raise TypeError(
                f"{name}: init has {init.op.shape[0]} steps; at least one, and at most {update.op.shape[0]}"
            )


def _within(r: Recurrence) -> tuple[ComputeOp, ...]:
    """Return operations that depend on a state, and the updates, producers first."""
    states = {t.op for t in r.state}
    found: dict[Operation, None] = {}
    for op in post_order(list(r.update)):
        if isinstance(op, ComputeOp) and any(t.op in states or t.op in found for t in op.input_tensors):
            if isinstance(op, SequentialOp) or op.epilogue is not None:
                raise TypeError(
                    f"{op.name} reads a state of a scan; a scan takes stages of te.compute without init="
                )
            found[op] = None
    for tensor in r.update:
        if not isinstance(tensor.op, ComputeOp):
            raise TypeError(f"the update {tensor.name} of a scan must be a stage of te.compute")
        found.setdefault(tensor.op)
    return tuple(found)  # type: ignore[arg-type]


def _check_steps(name: str, r: Recurrence) -> None:
    """Raise TypeError for reads of steps that are not computed yet, or lie before the first one."""
    states, first = {t.op for t in r.state}, r.init[0].op.shape[0]
    for op in r.within:
        for read in _reads(op):
            step, t = read.indices[0] if read.indices else None, op.axis[0] if op.axis else None
            if read.tensor.op in states and _steps_back(step, t) not in range(1, first + 1):
                raise TypeError(
                    f"{name}: {op.name} reads the state {read.tensor.name} at step {step}; it must be one to {first} "
                    f"before its first axis, {t}, as init gives {first}"
                )
            if read.tensor.op in r.within and step is not t:
                raise TypeError(
                    f"{name}: {op.name} reads {read.tensor.name}, which depends on a state, at step {step}; it must be "
                    f"its own first axis, {t}"
                )


def _steps_back(step: Expr | None, t: IterVar | None) -> int | None:
    """Return the number of steps from an index to ``t``; None where it is not such a step."""
    if isinstance(step, Binary) and step.a is t and isinstance(step.b, Const):
        distance = int(step.b.value)
        return {"-": distance, "+": -distance}.get(step.op)
    return None


def _reads(op: ComputeOp) -> list[Read]:
    return [read for e in op.body for read in reads(e)]


def scan_op(r: Recurrence, names: tuple[str, ...]) -> ScanOp:
    """Return the kernel of a recurrence."""
    shape = r.update[0].op.shape
    inputs = _inputs(r)

    def build(steps: Steps, points: Sequence[IterVar]) -> None:
        _Body(r, steps, points, shape).write()

    results = results_of(names, shape, [t.dtype for t in r.update])
    op = sequential_op(ScanOp, results, inputs, build, apart=_apart(r), length=shape[0])
    op.recurrence, op.absorbed = r, r.within
    size = r.update[0].shape[0] - r.init[0].shape[0]
    op.scan_axis = loop_over("scan", size, r.init[0].op.shape[0], "scan")
    op.is_open = any(t.op.is_open for t in (*r.init, *r.update, *r.state, *(o.output(0) for o in r.within)))
    return op


def _inputs(r: Recurrence) -> list[Tensor]:
    own = {*(t.op for t in r.state), *r.within}
    found: dict[Tensor, None] = dict.fromkeys(r.init)
    for op in r.within:
        found |= dict.fromkeys(t for t in op.input_tensors if t.op not in own)
    return list(found)


def _apart(r: Recurrence) -> dict[int, int]:
    """Return points along the dimensions where each element depends on itself only, with a few elements each."""
    shape = r.update[0].op.shape
    own = {*(t.op for t in r.state), *r.within}
    free = set(range(1, len(shape)))
    for op in r.within:
        if op.reduction is not None or op.shape != shape:
            return {}
        for read in (read for read in _reads(op) if read.tensor.op in own):
            free &= {d for d in free if read.indices[d] is op.axis[d]}
    return {d: _points(shape[d]) for d in free}


def _points(extent: int) -> int:
    """Return the largest divisor of an extent that leaves sixteen elements to each point; at most 64."""
    return max((p for p in range(1, 65) if extent % p == 0 and extent // p >= 16), default=1)


class _Body:
    """Writes the statements of a scan."""

    def __init__(
        self, r: Recurrence, steps: Steps, points: Sequence[IterVar], shape: tuple[int, ...]
    ) -> None:
        self.r = r
        self.steps = steps
        self.points = points
        self.shape = shape
        self.results = {t.op: result for t, result in zip(r.state, steps.results, strict=True)}
        self.kept: dict[tuple[Operation, int], Tensor] = {}
        self.first = r.init[0].op.shape[0]

    def write(self) -> None:
        """Write the initial states, then one step after another."""
        for init, result in zip(self.r.init, self.steps.results, strict=True):
            self._elements(
                self.first, lambda at, init=init, result=result: self.steps.store(result, at, init(*at))
            )
        for op in self._stored():
            for n, dtype in enumerate(op.dtypes):
                self.kept[op, n] = self.steps.scratch(op.shape[1:] or (1,), dtype, op.name)
        if self.shape[0] > self.first:
            with self.steps.loop(self.shape[0] - self.first, "t") as t:
                self._step(t + self.first)

    def _stored(self) -> list[ComputeOp]:
        """Return stages whose elements are kept within a step: sums, and what is read more than once."""
        reads = Counter(n.tensor.op for op in self.r.within for n in _reads(op))
        return [op for op in self.r.within if op.reduction is not None or reads[op] > 1]

    def _step(self, t: Expr) -> None:
        for op in self._stored():
            self._stage(op, t)
        for update, result in zip(self.r.update, self.steps.results, strict=True):
            self._update(update, result, t)

    def _update(self, update: Tensor, result: Tensor, t: Expr) -> None:
        whole = update.op.axis

        def store(at: tuple[Expr, ...]) -> None:
            read = Read(update, tuple(at))
            self.steps.store(result, at, self._value(read, dict(zip(whole, at, strict=True)), t))

        self._inner(self.shape[1:], lambda rest: store((t, *rest)), shared=True)

    def _stage(self, op: ComputeOp, t: Expr) -> None:
        """Compute all elements of a stage in one step."""

        def element(rest: tuple[Expr, ...]) -> None:
            at: dict[Expr, Expr] = dict(zip(op.axis, (t, *rest), strict=True))
            self._store_element(op, at, rest or (cast(t - t, t.dtype),), t)

        self._inner(op.shape[1:], element, shared=op.shape == self.shape)

    def _store_element(self, op: ComputeOp, at: dict[Expr, Expr], place: tuple[Expr, ...], t: Expr) -> None:
        reduction = op.reduction
        into = [self.kept[op, n] for n in range(len(op.dtypes))]
        if reduction is None:
            for target, expr in zip(into, op.body, strict=True):
                self.steps.store(target, place, self._value(expr, at, t))
            return
        starts = reduction.reducer.identity(tuple(s.dtype for s in reduction.sources))
        for target, start in zip(into, starts, strict=True):
            self.steps.store(target, place, start)
        self._accumulate(reduction, into, at, place, t, list(reduction.axis))

    def _accumulate(
        self,
        reduction: Reduce,
        into: list[Tensor],
        at: dict[Expr, Expr],
        place: tuple[Expr, ...],
        t: Expr,
        axes: list[IterVar],
    ) -> None:
        if axes:
            with self.steps.loop(axes[0].extent, axes[0].name) as k:
                self._accumulate(reduction, into, {**at, axes[0]: k + axes[0].start}, place, t, axes[1:])
            return
        new = tuple(self.steps.let(self._value(s, at, t)) for s in reduction.sources)
        old = tuple(self.steps.let(target(*place)) for target in into)
        for target, value in zip(into, reduction.reducer.combine(old, new), strict=True):
            self.steps.store(target, place, value)

    def _value(self, expr: Expr, at: dict[Expr, Expr], t: Expr) -> Expr:
        """Return an expression at a place; reads of states and of stages in the step become reads of
        what holds them."""
        placed = substitute(expr, at)

        def held(node: Expr) -> Expr | None:
            if not isinstance(node, Read):
                return None
            source = node.tensor.op
            if source in self.results:
                return Read(self.results[source], node.indices)
            if (source, node.tensor.value_index) in self.kept:
                return self.kept[source, node.tensor.value_index](*(node.indices[1:] or (0,)))
            if source in self.r.within:
                assert isinstance(source, ComputeOp)
                inner = source.body[node.tensor.value_index]
                indices = [cast(i, a.dtype) for i, a in zip(node.indices, source.axis, strict=True)]
                return self._value(inner, dict(zip(source.axis, indices, strict=True)), t)
            return None

        return transform(placed, held)

    def _elements(self, count: int, body: Any) -> None:
        if count:
            with self.steps.loop(count, "t") as t:
                self._inner(self.shape[1:], lambda rest: body((t, *rest)), shared=True)

    def _inner(self, shape: Sequence[int], body: Any, *, shared: bool, done: tuple[Expr, ...] = ()) -> None:
        """Loop over the elements of a step; where it is ``shared`` over those of this point."""
        if len(done) == len(shape):
            body(done)
            return
        point = self.points[len(done) + 1] if shared else None
        parts = point.extent if point is not None else 1
        extent = shape[len(done)] // parts
        if extent:
            with self.steps.loop(extent, f"i{len(done)}") as i:
                at = i if point is None or parts == 1 else binary("+", point * extent, i)
                self._inner(shape, body, shared=shared, done=(*done, at))


__all__ = ["Recurrence", "ScanOp", "scan", "scan_op"]
