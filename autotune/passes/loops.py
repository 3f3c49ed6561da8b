"""Loops as dispatches: the body is divided once, and its dispatches are repeated for each step.

Every step runs the same code on other memory, and no dispatch moves data for the loop: a step reads its element of
what is scanned where that lies and writes its element of what is collected where that belongs; what is carried goes
to and fro between two places, of which the last step takes the result's own; what only lives within a step has one
place for all steps. The dispatches are in the order of the steps. Which of them may run beside each other follows from
the memory that they touch, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from autotune.errors import GraphError
from autotune.graph.ir import ABSENT, Node, TensorType, fresh_name
from autotune.graph.ops.loop import LoopParts
from autotune.passes.expanded import Divide, Expanded
from autotune.passes.graphs_inside import bound_body
from autotune.passes.layout.views import Placement, is_dense
from autotune.passes.memory.plan_memory import plan_memory, value_lifetimes
from autotune.passes.partition import Dispatch, Partition
from autotune.suggest import counted

MOST_DISPATCHES = 1 << 16
"""Of all steps of a loop: each is a command of its own, and takes about a millisecond to compile."""


def _check_steps(node: Node, trips: int, dispatches: int) -> None:
    if trips * max(dispatches, 1) > MOST_DISPATCHES:
        raise GraphError(
            f"node {node.name!r} ({node.op}): {trips} steps of {counted(dispatches, 'dispatch')}\n"
            f"  a loop has at most {MOST_DISPATCHES} dispatches in all its steps"
        )


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
    scanned: tuple[Placement, ...]
    stored: Mapping[str, tuple[_Place, ...]]
    """For each root of the body's results where each step puts it."""
    within: Mapping[str, Placement]
    """Roots of what lives within a step."""


@dataclass(frozen=True)
class _Place:
    """The memory of a value and the version in it; "" is the last version, or the only one."""

    placement: Placement
    version: str = ""


@dataclass(frozen=True)
class _Copy:
    """A result that is wanted in a second place, or in one that no step can write to."""

    type: TensorType
    source: Placement
    target: Placement


def expand_loop(into: Expanded, dispatch: Dispatch, node: Node, divide: Divide) -> None:
    """Append the dispatches of all steps of a node."""
    _Steps(into).repeat(dispatch, node, divide)


@dataclass
class _Steps:
    into: Expanded

    def repeat(self, dispatch: Dispatch, node: Node, divide: Divide) -> None:
        """Append the dispatches of all steps, and copies for what cannot lie where it should."""
        parts = LoopParts.of(node.attrs)
        graph, outer = bound_body(node, self.into.constants(node))
        results = graph.outputs
        body = divide(graph.replace(outputs=tuple(dict.fromkeys(results))))
        _check_steps(node, parts.trips, len(body.dispatches))
        prefix = fresh_name(f"{node.present_outputs[0]}.loop", self.into.types)
        names = dict(zip(dict.fromkeys(results), body.outputs, strict=True))
        outputs = tuple(names[v] for v in results)
        given = node.inputs[: parts.carried + parts.scanned]
        states = tuple(self.into.dense(v, dispatch) for v in given[: parts.carried])
        scanned = tuple(self.into.dense(v, dispatch, inner=1) for v in given[parts.carried :])
        copies = list[_Copy]()
        stored = {
            body.placements[v].root: self._places(v, parts, outputs, body, node, prefix, copies)
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
            scanned,
            stored,
            self._within(prefix, body),
        )
        self.into.in_place += body.in_place
        for step in range(parts.trips):
            self._append_step(loop, step)
        for number, copy in enumerate(copies):
            source, target = f"{prefix}.copy{number}.from", f"{prefix}.copy{number}"
            self.into.define(source, copy.type, copy.source)
            self.into.define(target, copy.type, copy.target)
            self.into.copy(source, target, dispatch.origins)

    # what is outside of the steps ---------------------------------------------------------------

    def _places(
        self,
        value: str,
        parts: LoopParts,
        outputs: tuple[str, ...],
        body: Partition,
        node: Node,
        prefix: str,
        copies: list[_Copy],
    ) -> tuple[_Place, ...]:
        """Return the memory of a result of the body in each step; its further copies are added to ``copies``."""
        found = body.types[value].dense
        wanted = [(i, v) for i, v in enumerate(node.outputs) if outputs[i] == value and v != ABSENT]
        finals = [self.into.placements[v] for i, v in wanted if i < parts.carried]
        collected = [(i - parts.carried, v) for i, v in wanted if i >= parts.carried]
        if not collected:
            return self._alternating(found, finals, parts.trips, f"{prefix}.{value}", copies)
        index, first = collected[0]
        target = self.into.placements[first]
        if not is_dense(found.shape, target.strides[1:]):
            name = f"{prefix}.{value}.collected"
            self.into.define(name, self.into.types[first].dense, None)
            copies.append(_Copy(self.into.types[name], self.into.placements[name], target))
            target = self.into.placements[name]
        steps = range(parts.trips)
        places = tuple(_element(target, parts.collected_at(index, step)) for step in steps)
        for other, name in collected[1:]:
            whole = self.into.placements[name]
            copies += [_Copy(found, places[t], _element(whole, parts.collected_at(other, t))) for t in steps]
        copies += [_Copy(found, places[-1], final) for final in finals]
        return tuple(map(_Place, places))

    def _alternating(
        self, found: TensorType, finals: list[Placement], trips: int, name: str, copies: list[_Copy]
    ) -> tuple[_Place, ...]:
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
        turns = (final if (trips - 1 - step) % 2 == 0 else spare for step in range(trips - 1))
        return (*(_Place(place, f"{name}@{step}") for step, place in enumerate(turns)), _Place(final))

    def _within(self, prefix: str, body: Partition) -> Mapping[str, Placement]:
        """Return the memory of values that live within a step, packed by lifetimes: memory of its own for
        each dtype."""
        given = set(body.inputs) | set(body.constants)
        lifetimes = [each for each in value_lifetimes(body) if each.name not in given]
        places = dict[str, Placement]()
        for dtype in sorted({body.types[each.name].dtype for each in lifetimes}):
            own = [each for each in lifetimes if body.types[each.name].dtype == dtype]
            plan, width = plan_memory(own), np.dtype(dtype).itemsize
            root = f"{prefix}.{dtype}"
            self.into.define(root, TensorType((plan.arena_bytes // width,), dtype), None)
            places |= {v: Placement(root, offset // width, ()) for v, offset in plan.offsets.items()}
        return places

    # steps --------------------------------------------------------------------------------------

    def _append_step(self, loop: _LaidOutLoop, step: int) -> None:
        roots = {v: _Place(place, f"{loop.prefix}.{v}@{step}") for v, place in loop.within.items()}
        parts, inputs = loop.parts, loop.body.inputs
        for index, name in enumerate(inputs[: parts.carried]):
            before = loop.stored[loop.body.placements[loop.outputs[index]].root]
            roots[name] = before[step - 1] if step else _Place(loop.initial[index])
        for index, name in enumerate(inputs[parts.carried : parts.carried + parts.scanned]):
            roots[name] = _Place(_element(loop.scanned[index], parts.scanned_at(index, step)))
        roots |= {root: places[step] for root, places in loop.stored.items()}
        names = dict[str, str]()

        def named(value: str) -> str:
            if value not in names:
                names[value] = self._instance(loop, roots, value, step)
            return names[value]

        for dispatch in loop.body.dispatches:
            takes, gives = (tuple(map(named, values)) for values in (dispatch.inputs, dispatch.outputs))
            name = f"{loop.prefix}.{step}/{dispatch.name}"
            origins = tuple(dict.fromkeys((*dispatch.origins, *loop.origins)))
            conditions = tuple(replace(c, value=named(c.value)) for c in dispatch.conditions)
            self.into.dispatches.append(
                replace(
                    dispatch, name=name, inputs=takes, outputs=gives, origins=origins, conditions=conditions
                )
            )

    def _instance(self, loop: _LaidOutLoop, roots: Mapping[str, _Place], value: str, step: int) -> str:
        """Return the name of a value of the body in a step; it is placed there."""
        if value in loop.outer:
            return loop.outer[value]
        own = loop.body.placements[value]
        if own.root in loop.outer:
            name, place = f"{loop.prefix}.{value}", _Place(self.into.placements[loop.outer[own.root]])
            if name in self.into.types:
                return name
        else:
            name, place = f"{loop.prefix}.{step}.{value}", roots[own.root]
        outer = place.placement
        self.into.define(
            name, loop.body.types[value], Placement(outer.root, outer.offset + own.offset, own.strides)
        )
        inner = loop.body.versions.get(value)
        version = place.version if inner is None else f"{loop.prefix}.{step}/{inner}"
        if version:
            self.into.versions[name] = version
        return name


def _element(placed: Placement, index: int) -> Placement:
    """Return the memory of an element of the first axis."""
    return Placement(placed.root, placed.offset + index * placed.strides[0], placed.strides[1:])


__all__ = ["expand_loop"]
