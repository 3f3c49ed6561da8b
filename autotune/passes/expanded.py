"""Nodes of whole graphs, loops and branches, as the dispatches of these graphs: what both ways have in common.

A graph inside is divided by itself. Its dispatches then stand among those around, on values that lie there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from autotune.errors import InternalError
from autotune.graph.ir import Array, Graph, Node, TensorType, fresh_name
from autotune.graph.region import Region, Workload
from autotune.passes.layout.views import Placement, is_dense
from autotune.passes.partition import Dispatch, Partition
from autotune.passes.repetition import Condition, LoopVersion, Moving, Repetition
from autotune.strides import dense_strides

Divide = Callable[[Graph], Partition]


def instance(
    dispatch: Dispatch, named: Callable[[str], str], prefix: str, origins: tuple[str, ...]
) -> Dispatch:
    """Return a dispatch of a graph inside among those around, where ``named`` gives the names of its values."""

    def renamed(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return tuple(replace(each, value=named(each.value)) for each in conditions)

    repeats = (
        replace(each, name=f"{prefix}/{each.name}", conditions=renamed(each.conditions))
        for each in dispatch.repeats
    )
    return replace(
        dispatch,
        name=f"{prefix}/{dispatch.name}",
        inputs=tuple(map(named, dispatch.inputs)),
        outputs=tuple(map(named, dispatch.outputs)),
        origins=tuple(dict.fromkeys((*dispatch.origins, *origins))),
        conditions=renamed(dispatch.conditions),
        repeats=tuple(repeats),
    )


class Expanded:
    """A partition while dispatches of graphs inside are put in the places of their nodes."""

    def __init__(self, parts: Partition) -> None:
        self.parts = parts
        self.dispatches: list[Dispatch] = []
        self.placements = dict(parts.placements)
        self.types = dict(parts.types)
        self.versions: dict[str, LoopVersion] = {}
        self.moving: dict[str, tuple[Moving, ...]] = {}
        self.in_place = list(parts.in_place)

    def finish(self) -> Partition:
        """Return the new partition, without the constants that nothing reads any more."""
        read = {self.placements[v].root for dispatch in self.dispatches for v in dispatch.reads}
        return replace(
            self.parts,
            dispatches=tuple(self.dispatches),
            placements=self.placements,
            types=self.types,
            constants={v: array for v, array in self.parts.constants.items() if v in read},
            in_place=tuple(self.in_place),
            versions=self.versions,
            moving=self.moving,
        )

    def append(self, dispatch: Dispatch, around: tuple[Repetition, ...]) -> None:
        """Append a dispatch that is in these repeats besides its own."""
        self.dispatches.append(replace(dispatch, repeats=(*around, *dispatch.repeats)))

    def constants(self, node: Node) -> Mapping[str, Array]:
        """Return the constants that a node reads."""
        return {v: self.parts.constants[v] for v in node.present_inputs if v in self.parts.constants}

    def captured(self, value: str, dispatch: Dispatch) -> str:
        """Return a captured value, dense: the graph inside was divided for one that is."""
        if is_dense(self.types[value].shape, self.placements[value].strides):
            return value
        return self._copied(value, dispatch)

    def dense(self, value: str, dispatch: Dispatch, inner: int = 0) -> Placement:
        """Return the memory of a value, copied where its dimensions from ``inner`` on are not dense."""
        placed = self.placements[value]
        if is_dense(self.types[value].shape[inner:], placed.strides[inner:]):
            return placed
        return self.placements[self._copied(value, dispatch)]

    def _copied(self, value: str, dispatch: Dispatch) -> str:
        name = fresh_name(f"{value}.dense", self.types)
        self.define(name, self.types[value].dense, None)
        self.copy(value, name, dispatch.origins)
        return name

    def copy(
        self, source: str, target: str, origins: tuple[str, ...], repeats: tuple[Repetition, ...] = ()
    ) -> None:
        """Append a dispatch that copies a value."""
        types = {v: self._placed_type(v) for v in (source, target)}
        graph = Graph("copy", (source,), (target,), (Node("Identity", (source,), (target,)),), types)
        region = Region(graph)
        name = f"{len(self.dispatches):03d}_copy/{target}"
        self.dispatches.append(
            Dispatch(
                name,
                region,
                (source,),
                (target,),
                Workload.from_region(region),
                origins,
                repeats=repeats,
            )
        )

    def _placed_type(self, value: str) -> TensorType:
        dense, strides = self.types[value].dense, self.placements[value].strides
        if is_dense(dense.shape, strides):
            return dense
        return TensorType(dense.shape, dense.dtype, strides)

    def define(self, name: str, found: TensorType, placement: Placement | None) -> None:
        """Add a value; without a placement it has memory of its own."""
        if name in self.types:
            raise InternalError(f"value {name!r} of a graph inside is defined twice")
        self.types[name] = found
        self.placements[name] = placement or Placement(name, 0, dense_strides(found.shape))


__all__ = ["Divide", "Expanded", "instance"]
