"""Put the dispatches of an option in the place of a dispatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.graph.canonical import canonical_graph
from autotune.graph.ir import Array, TensorType, fresh_name
from autotune.passes.layout.views import Placement
from autotune.passes.options import Option
from autotune.passes.origins import union
from autotune.passes.partition import Dispatch, Partition
from autotune.passes.repetition import LoopVersion, Moving


def substitute(parts: Partition, options: Mapping[str, Option]) -> Partition:
    """Return ``parts`` with every dispatch computed by the option that ``options`` has for its workload's key.

    Dispatches without one stay; the very same partition comes back where all do.
    """
    divided = {key: option for key, option in options.items() if option.steps is not None}
    if all(dispatch.workload.key not in divided for dispatch in parts.dispatches):
        return parts
    work = _Substitution(parts)
    for dispatch in parts.dispatches:
        if dispatch.workload.key in divided:
            work.expand(dispatch, divided[dispatch.workload.key])
        else:
            work.dispatches.append(dispatch)
    return work.finish()


@dataclass
class _Substitution:
    parts: Partition
    dispatches: list[Dispatch] = field(default_factory=list)
    placements: dict[str, Placement] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    versions: dict[str, LoopVersion] = field(default_factory=dict)
    moving: dict[str, tuple[Moving, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.placements.update(self.parts.placements)
        self.types.update(self.parts.types)
        self.constants.update(self.parts.constants)
        self.versions.update(self.parts.versions)
        self.moving.update(self.parts.moving)

    def expand(self, dispatch: Dispatch, option: Option) -> None:
        """Append the option's dispatches, their values under fresh names."""
        steps = option.steps
        assert steps is not None
        region = dispatch.workload.region.graph
        names = dict(zip(region.inputs, dispatch.inputs, strict=True))
        names |= dict(zip(region.outputs, dispatch.outputs, strict=True))
        arguments = dict(names)
        inner = {*steps.types, *steps.placements, *steps.constants}
        for value in sorted(inner - names.keys()):
            names[value] = fresh_name(f"{dispatch.outputs[0]}.{value}", self.types)
            self.types[names[value]] = steps.types[value]
        roots = {steps.placements[v].root: self.placements[names[v]] for v in region.outputs}
        roots |= {v: self.placements[names[v]] for v in region.inputs}
        placed = {steps.placements[v].root: names[v] for v in region.outputs}
        placed |= {v: names[v] for v in region.inputs}
        for value, placement in steps.placements.items():
            if value not in arguments:
                self.placements[names[value]] = _composed(placement, names, roots)
                self._place_in_time(names[value], names[placement.root], placed.get(placement.root), dispatch)
        given = {v: self.constants[names[v]] for v in region.inputs if names[v] in self.constants}
        computed = option.constants(given)
        self.constants.update({names[v]: array for v, array in computed.items() if v not in arguments})
        for step, origins in zip(steps.dispatches, _origins(dispatch, steps.dispatches), strict=True):
            inputs, outputs = (tuple(names[v] for v in vs) for vs in (step.inputs, step.outputs))
            name = f"{dispatch.name}/{step.name}"
            self.dispatches.append(
                replace(
                    step,
                    name=name,
                    inputs=inputs,
                    outputs=outputs,
                    origins=origins,
                    conditions=dispatch.conditions,
                    repeats=dispatch.repeats,
                )
            )

    def _place_in_time(self, value: str, root: str, argument: str | None, dispatch: Dispatch) -> None:
        """Let a value of the steps be written again and again as the argument is in whose memory it lies; or, in memory
        of its own, as its dispatch is."""
        if argument is None and dispatch.repeats:
            levels = range(len(dispatch.repeats))
            self.versions[value] = LoopVersion(tuple((root, 0) for _ in levels), tuple(levels))
        if argument in self.versions:
            self.versions[value] = self.versions[argument]
        if argument in self.moving:
            self.moving[value] = self.moving[argument]

    def finish(self) -> Partition:
        """Return the new partition, without what nothing reads any more."""
        read = {v for dispatch in self.dispatches for v in dispatch.reads}
        read |= {
            self.placements[v].root for v in read
        }  # steps of a loop begin with constants under names of theirs
        constants = {v: array for v, array in self.constants.items() if v in read}
        return replace(
            self.parts,
            dispatches=tuple(self.dispatches),
            placements=self.placements,
            types=self.types,
            constants=constants,
            versions=self.versions,
            moving=self.moving,
        )


def _origins(dispatch: Dispatch, steps: Sequence[Dispatch]) -> list[tuple[str, ...]]:
    """Return the model's nodes behind each step: those of the values that it makes, or all where it
    makes other ones."""
    graph = dispatch.region.graph
    _, names = canonical_graph(graph)
    known = {names[v]: node.origins for node in graph.nodes for v in node.present_outputs}
    computed = union(*known.values())
    viewed = tuple(origin for origin in dispatch.origins if origin not in computed)
    found = []
    for step in steps:
        made = [known.get(v, ()) for node in step.region.graph.nodes for v in node.present_outputs]
        mine = union(*made)
        found.append(union(mine, viewed) if mine else dispatch.origins)
    return found


def _composed(placement: Placement, names: Mapping[str, str], roots: Mapping[str, Placement]) -> Placement:
    """Return the place in the model's memory of a value of the steps."""
    outer = roots.get(placement.root)
    if outer is None:
        return Placement(names[placement.root], placement.offset, placement.strides)
    return Placement(outer.root, outer.offset + placement.offset, placement.strides)


__all__ = ["substitute"]
