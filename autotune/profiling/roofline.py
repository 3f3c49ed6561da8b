"""The least time that a machine needs for a dispatch: its arithmetic at the peak, or its bytes at their level's rate.

The roofline model of Williams, Waterman and Patterson (CACM 2009), with a roof for each level of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from autotune.profiling.traffic import MemoryTraffic
from autotune.target import Target
from cost_models import calibrated
from cost_models.machine import Machine
from cost_models.peak import peak


class Roof(NamedTuple):
    """The bound of a dispatch, and the least nanoseconds that it takes."""

    bound: str
    least_ns: float


@dataclass(frozen=True)
class Roofs:
    """Rates of a CPU with all the workers of a target, as its machine was measured, else by the table of processors."""

    target: Target

    @cached_property
    def machine(self) -> Machine:
        """Return the cost model's assumptions about it."""
        return Machine.of(self.target)

    @cached_property
    def calibrated(self) -> bool:
        """Return whether its clock and its memory were measured."""
        found = calibrated.find(self.target)
        return found is not None and {"hertz", "all_streams"} <= found.trusted.keys()

    def flops(self, dtype: str) -> float:
        """Return operations a second on elements of a dtype, a multiply-add as two."""
        return peak(self.machine, self.target, dtype)

    @property
    def l2(self) -> float:
        """Bytes a second from the second-level caches."""
        return self.machine.l2_bytes_per_cycle * self.machine.hertz * self.machine.threads

    @property
    def l3(self) -> float:
        """Bytes a second from the last cache."""
        return self.machine.l3_bytes_per_cycle * self.machine.hertz * self.machine.threads

    @property
    def memory(self) -> float:
        """Bytes a second from memory."""
        machine = self.machine
        return min(machine.core_stream * machine.threads, machine.all_streams) * machine.hertz

    @property
    def capacities(self) -> tuple[float, float]:
        """Bytes that the second-level caches keep together, and the last cache."""
        machine = self.machine
        return machine.l2_whole * machine.threads, max(machine.l3, machine.l3_whole)

    def of(self, flops: int, dtype: str, moved: MemoryTraffic) -> Roof:
        """Return the highest of the roofs' times."""
        times = {
            "arithmetic": flops / self.flops(dtype),
            "L2": moved.nbytes / self.l2,
            "L3": moved.beyond_l2 / self.l3,
            "memory": moved.beyond_l3 / self.memory,
        }
        bound = max(times, key=times.__getitem__)
        return Roof(bound, 1e9 * times[bound])

    def to_json(self) -> dict[str, Any]:
        """Return the rates a second, as plain values."""
        return {
            "threads": self.target.threads,
            "calibrated": self.calibrated,
            "float32_flops": self.flops("float32"),
            "l2_bytes": self.l2,
            "l3_bytes": self.l3,
            "memory_bytes": self.memory,
        }


def roofs_of(target: Target | None) -> Roofs | None:
    """Return those of a CPU; None of a device whose rates nobody knows."""
    return None if target is None or target.group_items else Roofs(target)


__all__ = ["Roof", "Roofs", "roofs_of"]
