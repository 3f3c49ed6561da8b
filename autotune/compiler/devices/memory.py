"""The memory that programs of several devices need on each, and what devices have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.graph.ir import Graph
from autotune.passes.segments import GraphDivision

IN_FLIGHT = 1
"""Requests that have to have values of their own at once: without memory for more they wait for each other."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of a model's part on a device: its constants, and values of all requests in flight."""

    constants: int = 0
    values: int = 0

    def __add__(self, other: MemoryNeed) -> MemoryNeed:
        return MemoryNeed(self.constants + other.constants, self.values + other.values)

    @property
    def total(self) -> int:
        """All of it."""
        return self.constants + self.values


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device: its capacity, or its high watermark if that is less; devices of a ``pool``
    share theirs."""

    nbytes: int
    pool: str


def needs_of(division: GraphDivision, requests: int = IN_FLIGHT) -> dict[str, MemoryNeed]:
    """Return the least needs of a divided graph on each device: constants, and of each of so many requests in flight
    values between steps, and of each segment the operation with the largest values, whose memory segments do not
    share."""
    found: dict[str, MemoryNeed] = {}
    for segment in division.segments:
        graph = segment.graph
        between = sum(graph.type_of(value).nbytes for value in graph.outputs)
        inside = max(_of_nodes(graph), default=0)
        need = MemoryNeed(
            sum(graph.type_of(value).nbytes for value in graph.constants),
            requests * (between + inside),
        )
        found[segment.device] = found.get(segment.device, MemoryNeed()) + need
    return found


def _of_nodes(graph: Graph) -> Iterator[int]:
    """Yield the bytes that each node reads and writes in the memory of its segment."""
    outside = {*graph.inputs, *graph.outputs, *graph.constants}
    for node in graph.nodes:
        values = dict.fromkeys((*node.present_inputs, *node.present_outputs))
        yield sum(graph.type_of(value).nbytes for value in values if value not in outside)


def short_of(needs: Mapping[str, MemoryNeed], memory: Mapping[str, DeviceMemory]) -> list[str]:
    """Return the devices that have less than is needed there, or less together than a pool has; none where all fits."""
    pools = {
        memory[name].pool: max(m.nbytes for m in memory.values() if m.pool == memory[name].pool)
        for name in needs
    }
    left = dict(pools)
    for name, need in needs.items():
        left[memory[name].pool] -= need.total
    return [
        name
        for name, need in needs.items()
        if need.total > memory[name].nbytes or left[memory[name].pool] < 0
    ]


def shortage(
    model: str,
    tried: Sequence[Mapping[str, MemoryNeed]],
    memory: Mapping[str, DeviceMemory],
    requests: int = IN_FLIGHT,
) -> str:
    """Return the needs of each part, in words, of placements of which none fits."""
    of_requests = "" if requests == 1 else f" of {requests} requests"
    lines = [f"no placement of {model!r} on {', '.join(memory)} fits into their memory"]
    for needs in tried:
        for name in short_of(needs, memory):
            need = needs[name]
            lines.append(
                f"  {name} has {_size(memory[name].nbytes)}; {'all' if len(needs) == 1 else 'a part'} of the model "
                f"needs {_size(need.total)} there: {_size(need.constants)} of constants, "
                f"{_size(need.values)} of values{of_requests}"
            )
    return "\n".join(lines)


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 1 << 20 else f"{nbytes} bytes"


__all__ = ["IN_FLIGHT", "DeviceMemory", "MemoryNeed", "needs_of", "short_of", "shortage"]
