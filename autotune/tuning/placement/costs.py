"""Expected costs of placements of a model, by the times of its dispatches on each device.

A unit is what one dispatch computes: it is not torn apart, so that what is fused stays fused. A placement gives each
unit a device. The graph is then cut as it would be to be compiled, and the makespan of its segments is the estimate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.compiler.devices.makespan import LaneTask, makespan
from autotune.compiler.devices.memory import IN_FLIGHT, DeviceMemory, MemoryNeed, needs_of, short_of
from autotune.compiler.devices.tasks import TaskFlow, tasks_of
from autotune.compiler.devices.throughput import Throughput, throughput
from autotune.graph.devices import floating_values
from autotune.graph.ir import Graph
from autotune.graph.region import anchors
from autotune.passes.placement.affinity import PlaceOnDevices
from autotune.passes.placement.device_rules import DeviceRules, gathered
from autotune.passes.placement.propagate import propagate
from autotune.passes.segments import GraphDivision, GraphSegment, divide_by_device
from autotune.runtime.hal.buffer import HOST_SPACE
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.rates import DeviceRates
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.tuning.placement.device_times import around, image_times, rates_of, touched_bytes


@dataclass(frozen=True)
class Unit:
    """Nodes of the model, by their names, that run on one device; ``op`` is what decides how they are computed.

    ``seconds`` are those on each device.
    """

    nodes: tuple[str, ...]
    op: str
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class DeviceCosts:
    """A device: seconds to begin and end a segment on it, its rates, its memory space, what may be used of its memory
    in bytes, the cores that it runs on, which several may share, and what it shares its memory with."""

    name: str
    launch: float
    rates: DeviceRates
    space: str
    memory_bytes: int
    cores: tuple[int, ...] = ()
    pool: str = HOST_SPACE


Placing = tuple[int, ...]
"""The number of the device of each unit."""


@dataclass(frozen=True, eq=False)
class PlacementCosts:
    """A model's units in the order in which they run, on some devices."""

    graph: Graph
    units: tuple[Unit, ...]
    devices: tuple[DeviceCosts, ...]

    def seconds(self, placing: Placing) -> float:
        """Return the makespan of a placement as a caller sees it; infinite where a device has too little memory."""
        division = self._divided(placing)
        if short_of(needs_of(division), self.memory):
            return math.inf
        used = {step.device for step in division.segments}
        rates = {device.name: device.rates for device in self.devices if device.name in used}
        return makespan(self._tasks(placing, division)).total + around(rates)

    def throughput(self, placing: Placing, depth: int) -> Throughput | None:
        """Return the same with so many requests in flight; None where a device has too little memory for them."""
        division = self._divided(placing)
        if short_of(needs_of(division, depth), self.memory):
            return None
        return throughput(self._tasks(placing, division), depth)

    def _tasks(self, placing: Placing, division: GraphDivision) -> list[LaneTask]:
        """Return the tasks that a request submits."""
        numbers = {device.name: number for number, device in enumerate(self.devices)}
        unit_of = self._unit_of()
        floating, counted, durations = floating_values(division.graph), set[int](), list[float]()
        for step in division.steps:
            if not isinstance(step, GraphSegment):
                if step.value not in division.graph.inputs:
                    durations.append(0.0)
                continue
            found = {
                unit_of[origin]
                for node in step.graph.nodes
                if not floating.issuperset(node.present_outputs)
                for origin in node.origins
                if origin in unit_of
            }
            device = numbers[step.device]
            # A unit whose nodes lie in several segments, such as a view at the end of another, counts once.
            own = [self.units[unit].seconds[device] for unit in found - counted if placing[unit] == device]
            counted |= {unit for unit in found if placing[unit] == device}
            durations.append(self.devices[device].launch + sum(own))
        rates = {device.name: device.rates for device in self.devices}
        spaces = {device.name: device.space for device in self.devices}
        cores = {device.name: device.cores for device in self.devices}
        return tasks_of(TaskFlow.of_division(division), durations, rates, spaces, cores)

    def rules(self, placing: Placing) -> dict[str, str]:
        """Return the placement in patterns: operators with the device of most of theirs, and names of the others."""
        device_of = {
            name: self.devices[number].name
            for unit, number in zip(self.units, placing, strict=True)
            for name in unit.nodes
        }
        by_op: dict[str, dict[str, str]] = {}
        for node in self.graph.nodes:
            by_op.setdefault(node.op, {}).update({o: device_of[o] for o in node.origins if o in device_of})
        found: dict[str, str] = {}
        for op, named in by_op.items():
            if named:
                homes = list(named.values())
                usual = max(dict.fromkeys(homes), key=homes.count)
                found[op] = usual
                found |= {name: device for name, device in named.items() if device != usual}
        return found

    def placing(self, placement: Mapping[str, str]) -> Placing | None:
        """Return the devices that a placement in patterns gives the units; None where it names a device that is not
        here, or tears a unit apart."""
        names = [device.name for device in self.devices]
        if not {*placement.values()} <= {*names}:
            return None
        homes = propagate(self.graph, gathered(self.graph, DeviceRules(placement, tuple(names)))).nodes
        device_of: dict[str, set[str]] = {}
        for node in self.graph.nodes:
            for origin in node.origins if node.present_outputs[0] in homes else ():
                device_of.setdefault(origin, set()).add(homes[node.present_outputs[0]].device)
        found = [set().union(*(device_of[name] for name in unit.nodes)) for unit in self.units]
        return (
            tuple(names.index(min(each)) for each in found) if all(len(each) == 1 for each in found) else None
        )

    def _divided(self, placing: Placing) -> GraphDivision:
        unit_of = self._unit_of()
        nodes = tuple(
            node.replace(device=self.devices[placing[unit_of[own[0]]]].name)
            if (own := [origin for origin in node.origins if origin in unit_of])
            else node
            for node in self.graph.nodes
        )
        rules = DeviceRules({}, tuple(device.name for device in self.devices))
        return divide_by_device(PlaceOnDevices(rules).apply(self.graph.replace(nodes=nodes)))

    def _unit_of(self) -> dict[str, int]:
        return {name: number for number, unit in enumerate(self.units) for name in unit.nodes}

    @property
    def memory(self) -> dict[str, DeviceMemory]:
        """Return the memory of each device that may be used."""
        return {device.name: DeviceMemory(device.memory_bytes, device.pool) for device in self.devices}

    def needs(self, placing: Placing, requests: int = IN_FLIGHT) -> dict[str, MemoryNeed]:
        """Return the memory that a placement needs on each device, at least, with so many requests in flight."""
        return needs_of(self._divided(placing), requests)


def measured_costs(
    graph: Graph, programs: Sequence[DeviceProgram], devices: Mapping[str, Device]
) -> PlacementCosts:
    """Measure a model on devices; each program is all of it on one of them."""
    times, costs = list[dict[tuple[str, ...], float]](), list[DeviceCosts]()
    parts: list[tuple[str, ...]] = []
    rates = rates_of(devices, touched_bytes(programs[0].images))
    for program in programs:
        (name,), (image,) = program.devices, program.images
        device = devices[name]
        found = image_times(device, image)
        own: dict[tuple[str, ...], float] = {}
        groups = _bound([dispatch.nodes for dispatch in image.dispatches])
        for nodes, seconds in zip(groups, found.dispatches, strict=True):
            if nodes:
                own[nodes] = own.get(nodes, 0.0) + seconds
        times.append(own)
        parts += list(own)
        memory, info = device.allocator.admitted, device.info
        pool = HOST_SPACE if info.kind == "cpu" else device.space
        costs.append(DeviceCosts(name, found.launch, rates[name], device.space, memory, info.core_ids, pool))
    units = list[Unit]()
    for nodes in _merged(graph, parts):
        inside = set(nodes)
        taken = tuple(sum(s for names, s in each.items() if names[0] in inside) for each in times)
        units.append(Unit(nodes, _op(graph, inside), taken))
    return PlacementCosts(graph, tuple(units), tuple(costs))


def _bound(parts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the parts without what several of them name beside something else, such as a Concat of their results in
    place: it goes where its operands are."""
    times = Counter(name for part in dict.fromkeys(parts) for name in part)
    return [tuple(name for name in part if times[name] == 1) or part for part in parts]


def _merged(graph: Graph, parts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return names in the order of the graph, together where any part has both."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for part in parts:
        for name in part:
            root[find(name)] = find(part[0])
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(origin for node in graph.nodes for origin in node.origins):
        if name in root:
            found.setdefault(find(name), []).append(name)
    return [tuple(names) for names in found.values()]


def _op(graph: Graph, names: set[str]) -> str:
    nodes = [node for node in graph.nodes if names.intersection(node.origins)]
    return (anchors(nodes) or tuple(nodes))[0].op


__all__ = ["DeviceCosts", "PlacementCosts", "Placing", "Unit", "measured_costs"]
