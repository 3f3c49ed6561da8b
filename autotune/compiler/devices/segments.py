"""A model in segments, each for one device: all of it is one where no device is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.compiler.devices.known import known_devices, target_of
from autotune.compiler.devices.steps import program_of
from autotune.compiler.dividing import divide, imported
from autotune.compiler.request import CompileRequest
from autotune.errors import PlacementError
from autotune.graph.devices import is_annotated, without_devices
from autotune.graph.ir import Graph
from autotune.passes.partition import OF_A_MODEL, Partition, partition
from autotune.passes.pipeline import placed_passes, run_passes
from autotune.passes.placement.affinity import Affinities, affinities
from autotune.passes.placement.both_branches import without_choices
from autotune.passes.placement.device_rules import DeviceRules
from autotune.passes.segments import GraphDivision, divide_by_device
from autotune.runtime.counted import CountedOutput, to_metadata
from autotune.runtime.hal.device import DeviceInfo
from autotune.runtime.image import ModuleImage
from autotune.runtime.programs.device_program import HERE, DeviceProgram, of_image
from autotune.target import Target


@dataclass(frozen=True, eq=False)
class DeviceSegment:
    """Work of one device, in parts that are compiled; ``device`` is empty where none is named."""

    device: str
    target: Target
    parts: Partition


@dataclass(frozen=True, eq=False)
class Segments:
    """The segments of a model, and, where devices are named, why they are where they are."""

    each: tuple[DeviceSegment, ...]
    placed: tuple[Graph, GraphDivision, Affinities] | None = None

    @property
    def affinities(self) -> Affinities | None:
        """The devices of parts and the reasons; None where no device is named."""
        return None if self.placed is None else self.placed[2]

    def of_target(self, target: Target) -> list[int]:
        """Return the numbers of the segments of a target."""
        return [number for number, segment in enumerate(self.each) if segment.target == target]

    def program(self, images: Sequence[ModuleImage], metadata: Mapping[str, str]) -> DeviceProgram:
        """Return the program that runs ``images``, one a segment."""
        if self.placed is None:
            return of_image(images[0])
        graph, division, _ = self.placed
        counted = to_metadata(CountedOutput(*each) for each in graph.counted)
        return program_of(graph, division, images, {**metadata, **counted})


def segments_of(
    request: CompileRequest, graph: Graph | None, devices: Mapping[str, DeviceInfo] | None
) -> Segments:
    """Return the segments of a model; see :func:`autotune.compiler.compile_in_detail`.

    Raises PlacementError for devices that contradict one another, are not there, or are named for nothing.
    """
    graph = imported(request.model, request.shapes) if graph is None else graph
    if request.lock is not None:
        graph = without_devices(graph)
    if not request.placement and not is_annotated(graph):
        return _on_one(request, graph)
    graph = without_choices(graph)
    if request.lock is None:
        request.checked(on_devices=True)
    infos = known_devices() if devices is None else devices
    rules = DeviceRules(dict(request.placement or {}), tuple(infos))
    found = affinities(graph, rules)
    if found is None:
        raise PlacementError(f"nothing of {graph.name!r} is put on any device")
    used = {home.device for home in (*found.homes.nodes.values(), *found.homes.inputs.values())}
    # Types of activations are those that every device takes.
    activations = min(target_of(infos[device]).activations for device in used)
    byte_dots = all(target_of(infos[device]).has_byte_dots for device in used)
    passes = placed_passes(rules, request.layout, activations, request.without, byte_dots)
    division = divide_by_device(run_passes(graph, passes, request.observer))
    options = request.partition or OF_A_MODEL
    each = tuple(
        DeviceSegment(one.device, target_of(infos[one.device]), partition(one.graph, options))
        for one in division.segments
    )
    return Segments(each, (graph, division, found))


def part_of(request: CompileRequest, target: Target, graph: Graph | None) -> Partition:
    """Return a model of one device in parts; ``graph`` is what was imported of it already."""

    def divided() -> Partition:
        return divide(
            request.model if graph is None else graph,
            layout=request.layout,
            target=target,
            shapes=request.shapes if graph is None else None,
            options=request.partition,
            observer=request.observer,
            without=request.without,
        )

    if request.shared is None or request.observer is not None:
        return divided()
    shapes = repr(sorted((request.shapes or {}).items()))
    numbers = (target.activations, target.has_byte_dots)
    options = (request.layout, numbers, request.partition, shapes, *request.without)
    return request.shared.parts(request.model, options, divided)


def _on_one(request: CompileRequest, graph: Graph) -> Segments:
    target = request.one_target()
    return Segments((DeviceSegment(HERE, target, part_of(request, target, graph)),))


__all__ = ["DeviceSegment", "Segments", "part_of", "segments_of"]
