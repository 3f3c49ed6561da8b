"""Loops as dispatches: the body is divided once, and its dispatches are repeated for each step.

Every step runs the same code on other memory, and no dispatch moves data for the loop: a step reads its element of
what is scanned where that lies and writes its element of what is collected where that belongs; what is carried goes
to and fro between two places, of which the last step takes the result's own; what only lives within a step has one
place for all steps.

Of a loop of many steps the dispatches of a few are there: of the first, which reads what the loop begins with; of the
last, which writes what it gives; and of two between them, a :class:`Repetition`: so what is carried is
back in its place when they begin again, and all else goes on by the same distance each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import ABSENT, Node, TensorType, fresh_name
from autotune.graph.ops.loop import LoopParts
from autotune.passes.expanded import Divide, Expanded, instance
from autotune.passes.graphs_inside import bound_body
from autotune.passes.layout.views import Placement, is_dense
from autotune.passes.memory.dispatch_order import extended, in_order
from autotune.passes.memory.plan_memory import plan_memory, value_lifetimes
from autotune.passes.partition import Dispatch, Partition
from autotune.passes.repetition import STEPS, Condition, LoopVersion, Moving, Repetition

STANDING = 8
"""Steps of a loop that is not worth to be repeated: the dispatches of each are there."""


@dataclass(frozen=True)
class _LoopStep:
    """A step of a loop; with a ``repeat`` the first of those that its dispatches run for."""

    number: int
    repeat: Repetition | None = None

    def moving(self, elements: int, inner: tuple[Moving, ...] = ()) -> tuple[Moving, ...]:
        """Return the motion of what is so many elements further a step."""
        if self.repeat is None:
            return inner
        return (Moving(STEPS * elements, self.repeat.count), *inner)

    def version(self, name: str, step: int) -> LoopVersion:
        """Return the version of what another step writes, as it is for this one."""
        return LoopVersion(((name, step),), () if self.repeat is None else (0,))


def _steps(trips: int, prefix: str, going: str) -> Iterator[_LoopStep]:
    """Yield the steps whose dispatches are there; of a loop that may be over before with the value that says so."""
    if trips <= STANDING:
        yield from map(_LoopStep, range(trips))
        return
    first = 1 + trips % STEPS
    goes_on = (Condition(_in_step(prefix, first + STEPS - 1, going), True),) if going else ()
    repeat = Repetition(prefix, (trips - 1 - first) // STEPS, goes_on)
    yield from map(_LoopStep, range(first))
    yield from (_LoopStep(first + n, repeat) for n in range(STEPS))
    yield _LoopStep(trips - 1)


def _in_step(prefix: str, step: int, value: str) -> str:
    """Return the name of a value of a step."""
    return f"{prefix}.{step}.{value}"


@dataclass(frozen=True)
class _Place:
    """The memory of a value in a step, which is ``elements`` further in the next; without a version, the only one."""

    placement: Placement
    version: LoopVersion | None = None
    elements: int = 0


@dataclass(frozen=True)
class _Elements:
    """A value with an element for each step along its first axis."""

    whole: Placement
    trips: int
    from_end: bool

    def at(self, step: int) -> Placement:
        """Return the memory of a step's element."""
        index = self.trips - 1 - step if self.from_end else step
        whole = self.whole
        return Placement(whole.root, whole.offset + index * whole.strides[0], whole.strides[1:])

    @property
    def stride(self) -> int:
        """Return how much further each step's element is."""
        return -self.whole.strides[0] if self.from_end else self.whole.strides[0]

    def place(self, step: int, _reader: _LoopStep) -> _Place:
        """Return the same as a place."""
        return _Place(self.at(step), None, self.stride)


@dataclass(frozen=True)
class _Alternating:
    """A value that is only carried: two places in turn, of which the last step has the final one."""

    name: str
    final: Placement
    spare: Placement
    trips: int

    def place(self, step: int, reader: _LoopStep) -> _Place:
        """Return the memory of what a step writes, for one that writes or reads it."""
        left = self.trips - 1 - step
        version = reader.version(self.name, step) if left else None
        return _Place(self.final if left % 2 == 0 else self.spare, version)


_Stored = _Elements | _Alternating


@dataclass(frozen=True)
class _LaidOutLoop:
    """One loop: its body divided, and where everything lies that is in no step's own memory."""

    prefix: str
    origins: tuple[str, ...]
    parts: LoopParts
    body: Partition
    outputs: tuple[str, ...]
    """The body's results in the operator's order; one may stand there several times."""
    outer: Mapping[str, str]
    """The captured values: name in the body -> name here."""
    initial: tuple[Placement, ...]
    scanned: tuple[_Elements, ...]
    stored: Mapping[str, _Stored]
    """For each root of the body's results where each step puts it."""
    within: Mapping[str, Placement]
    """Roots of what lives within a step."""

    @property
    def going(self) -> str:
        """Return the result of the body that says whether it goes on; nothing where it always does."""
        return "" if self.parts.going < 0 else self.outputs[self.parts.going]

    def roots(self, step: _LoopStep) -> Mapping[str, _Place]:
        """Return the memory of what a step reads and writes, but for what is captured."""
        number, parts, inputs = step.number, self.parts, self.body.inputs
        found = {
            v: _Place(place, step.version(f"{self.prefix}.{v}", number)) for v, place in self.within.items()
        }
        for index, name in enumerate(inputs[: parts.carried]):
            before = self.stored[self.body.placements[self.outputs[index]].root]
            found[name] = before.place(number - 1, step) if number else _Place(self.initial[index])
        for name, elements in zip(inputs[parts.carried :], self.scanned, strict=False):
            found[name] = elements.place(number, step)
        return found | {root: stored.place(number, step) for root, stored in self.stored.items()}


@dataclass(frozen=True)
class _Copy:
    """A result that is wanted in a second place, or in one that no step can write to."""

    type: TensorType
    source: Placement
    target: Placement
    repeat: Repetition | None = None
    strides: tuple[int, int] = (0, 0)
    """The distances of source and target from one time to the next."""


def expand_loop(into: Expanded, dispatch: Dispatch, node: Node, divide: Divide) -> None:
    """Append the dispatches of a node's steps."""
    _Steps(into).repeat(dispatch, node, divide)


@dataclass
class _Steps:
    into: Expanded

    def repeat(self, dispatch: Dispatch, node: Node, divide: Divide) -> None:
        """Append the dispatches of the steps, and copies for what cannot lie where it should."""
        parts = LoopParts.of(node.attrs)
        graph, outer = bound_body(node, self.into.constants(node))
        results = graph.outputs
        body = in_order(divide(graph.replace(outputs=tuple(dict.fromkeys(results)))), threads=2)
        prefix = fresh_name(f"{node.present_outputs[0]}.loop", self.into.types)
        names = dict(zip(dict.fromkeys(results), body.outputs, strict=True))
        outputs = tuple(names[v] for v in results)
        given = node.inputs[: parts.carried + parts.scanned]
        states = tuple(self.into.dense(v, dispatch) for v in given[: parts.carried])
        scanned = (self.into.dense(v, dispatch, inner=1) for v in given[parts.carried :])
        copies = list[_Copy]()
        stored = {
            body.placements[v].root: self._stored(v, parts, outputs, body, node, prefix, copies)
            for v in names.values()
        }
        loop = _LaidOutLoop(
            prefix,
            dispatch.origins,
            parts,
            body,
            outputs,
            {inner: self.into.captured(v, dispatch) for inner, v in outer.items()},
            states,
            tuple(
                _Elements(v, parts.trips, bool(end)) for v, end in zip(scanned, parts.from_end, strict=False)
            ),
            stored,
            self._within(prefix, body),
        )
        self.into.in_place += body.in_place
        for step in _steps(parts.trips, prefix, loop.going):
            self._append_step(loop, step)
        for number, copy in enumerate(copies):
            self._append_copy(copy, f"{prefix}.copy{number}", dispatch.origins)

    # what is outside of the steps ---------------------------------------------------------------

    def _stored(
        self,
        value: str,
        parts: LoopParts,
        outputs: tuple[str, ...],
        body: Partition,
        node: Node,
        prefix: str,
        copies: list[_Copy],
    ) -> _Stored:
        """Return the memory of a result of the body in each step; its further copies are added to ``copies``."""
        found, trips = body.types[value].dense, parts.trips
        wanted = [(i, v) for i, v in enumerate(node.outputs) if outputs[i] == value and v != ABSENT]
        finals = [self.into.placements[v] for i, v in wanted if i < parts.carried]
        collected = [(i - parts.carried, v) for i, v in wanted if i >= parts.carried]
        if not collected:
            return self._alternating(found, finals, trips, f"{prefix}.{value}", copies)
        ends = parts.from_end[parts.scanned :]
        index, first = collected[0]
        target = self.into.placements[first]
        if not is_dense(found.shape, target.strides[1:]):
            name = f"{prefix}.{value}.collected"
            self.into.define(name, self.into.types[first].dense, None)
            copies.append(_Copy(self.into.types[name], self.into.placements[name], target))
            target = self.into.placements[name]
        stored = _Elements(target, trips, bool(ends[index]))
        for other, name in collected[1:]:
            another = _Elements(self.into.placements[name], trips, bool(ends[other]))
            repeat = Repetition(f"{prefix}.{name}", trips)
            strides = (stored.stride, another.stride)
            copies.append(_Copy(found, stored.at(0), another.at(0), repeat, strides))
        copies += [_Copy(found, stored.at(trips - 1), final) for final in finals]
        return stored

    def _alternating(
        self, found: TensorType, finals: list[Placement], trips: int, name: str, copies: list[_Copy]
    ) -> _Alternating:
        """Return two places in turn; the last step's is that of a final value, where there is one that is dense."""
        last = next((place for place in finals if is_dense(found.shape, place.strides)), None)
        if last is None:
            self.into.define(f"{name}.last", found, None)
        final = last or self.into.placements[f"{name}.last"]
        spare = final
        if trips > 1:
            self.into.define(f"{name}.spare", found, None)
            spare = self.into.placements[f"{name}.spare"]
        copies += [_Copy(found, final, place) for place in finals if place is not last]
        return _Alternating(name, final, spare, trips)

    def _within(self, prefix: str, body: Partition) -> Mapping[str, Placement]:
        """Return the memory of values that live within a step, packed by lifetimes: memory of its own for
        each dtype."""
        given = set(body.inputs) | set(body.constants)
        lifetimes = [each for each in extended(body, value_lifetimes(body)) if each.name not in given]
        places = dict[str, Placement]()
        for dtype in sorted({body.types[each.name].dtype for each in lifetimes}):
            own = [each for each in lifetimes if body.types[each.name].dtype == dtype]
            plan, width = plan_memory(own), np.dtype(dtype).itemsize
            root = f"{prefix}.{dtype}"
            self.into.define(root, TensorType((plan.arena_bytes // width,), dtype), None)
            places |= {v: Placement(root, offset // width, ()) for v, offset in plan.offsets.items()}
        return places

    # steps --------------------------------------------------------------------------------------

    def _append_step(self, loop: _LaidOutLoop, step: _LoopStep) -> None:
        roots, names = loop.roots(step), dict[str, str]()

        def named(value: str) -> str:
            if value not in names:
                names[value] = self._instance(loop, roots, value, step)
            return names[value]

        around = () if step.repeat is None else (step.repeat,)
        for dispatch in loop.body.dispatches:
            each = instance(dispatch, named, f"{loop.prefix}.{step.number}", loop.origins)
            self.into.append(each, around)
        if step.repeat is not None and loop.going:
            named(loop.going)

    def _instance(self, loop: _LaidOutLoop, roots: Mapping[str, _Place], value: str, step: _LoopStep) -> str:
        """Return the name of a value of the body in a step; it is placed there."""
        if value in loop.outer:
            return loop.outer[value]
        own, inner = loop.body.placements[value], loop.body.moving.get(value, ())
        name = _in_step(loop.prefix, step.number, value)
        if own.root in loop.outer:
            place = _Place(self.into.placements[loop.outer[own.root]])
        else:
            place = roots[own.root]
        outer = place.placement
        self.into.define(
            name, loop.body.types[value], Placement(outer.root, outer.offset + own.offset, own.strides)
        )
        if place.elements or inner:
            self.into.moving[name] = step.moving(place.elements, inner)
        version = loop.body.versions.get(value)
        if version is not None:
            repeated = step.repeat is not None
            self.into.versions[name] = version.within(loop.prefix, step.number, repeated=repeated)
        elif place.version is not None:
            self.into.versions[name] = place.version
        return name

    def _append_copy(self, copy: _Copy, name: str, origins: tuple[str, ...]) -> None:
        source = f"{name}.from"
        self.into.define(source, copy.type, copy.source)
        self.into.define(name, copy.type, copy.target)
        repeats = () if copy.repeat is None else (copy.repeat,)
        if copy.repeat is not None:
            for value, elements in zip((source, name), copy.strides, strict=True):
                self.into.moving[value] = (Moving(elements, copy.repeat.count),)
        self.into.copy(source, name, origins, repeats)


__all__ = ["expand_loop"]
