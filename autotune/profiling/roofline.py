"""The least time that a machine needs for a dispatch: its arithmetic at the peak, or its bytes at their level's rate.

The roofline model of Williams, Waterman and Patterson (CACM 2009), with a roof for each level of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from autotune.profiling.traffic import MemoryTraffic
from autotune.target import ITEM_BYTES, Target
from autotune.te.dot_products import DOT_PRODUCTS
from cost_models import calibrated
from cost_models.machine import Machine

_HALVES = ("float16", "bfloat16")
"""Stored so; arithmetic is float32, unless there is an instruction for sums of their products."""


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
        machine, kind = self.machine, dtype or "float32"
        vectors = machine.arithmetic_ports * _products(self.target, kind, tiles=False)
        products = max(vectors, _products(self.target, kind, tiles=True) / machine.tile_cycles)
        return 2.0 * products * machine.hertz * machine.threads

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


def _products(target: Target, dtype: str, *, tiles: bool) -> int:
    """Return products that one instruction on vectors, or on tiles, makes and adds; 0 without one on tiles."""
    fitting: Sequence[int] = [
        each.rows * each.lanes * each.group * each.depth
        for each in DOT_PRODUCTS
        if each.arch == target.arch
        and (each.rows > 1) is tiles
        and set(each.requires) <= set(target.features)
        and dtype in (each.left, each.right)
    ]
    plain = "float32" if dtype in _HALVES or dtype not in ITEM_BYTES else dtype
    return max([0 if tiles else target.lanes(plain), *fitting])


__all__ = ["Roof", "Roofs", "roofs_of"]
