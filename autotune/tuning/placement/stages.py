"""Stages of a pipeline: where to cut a sequence of units so that the slowest stage is as quick as possible.

The dynamic programme of linear partitioning, once for each order of the devices: the best that the first units can do
on the first devices is that of fewer units on one device less, and one stage more.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.hal.buffer import HOST_SPACE
from autotune.tuning.placement.costs import DeviceCosts, PlacementCosts, Placing

_MOST_ORDERS = 120
"""Orders of devices that are tried: all of up to five devices."""


def staged(costs: PlacementCosts) -> Placing:
    """Return a model in stages, one a device: its units as if they were a chain, in their order.

    What is read across a border is moved there, also where a branch passes by all units between.
    """
    seconds = np.array([unit.seconds for unit in costs.units], np.float64)
    seconds = seconds.reshape(len(costs.units), len(costs.devices))
    copies = np.array([[_copy_seconds(a, b) for b in costs.devices] for a in costs.devices])
    crossing = _crossing_bytes(costs)[:, None, None] * copies
    return chain_stages(seconds, [device.launch for device in costs.devices], crossing)


def _copy_seconds(source: DeviceCosts, target: DeviceCosts) -> float:
    """Return seconds of a byte from one device to another."""
    if source.space == target.space:
        return 0.0
    return (source if target.space == HOST_SPACE else target).rates.copy_seconds_per_byte


def _crossing_bytes(costs: PlacementCosts) -> NDArray[np.float64]:
    """Return bytes [units + 1] of values that are made before a unit, and read by it or later."""
    graph, units = costs.graph, len(costs.units)
    unit_of = {name: number for number, unit in enumerate(costs.units) for name in unit.nodes}
    made: dict[str, int] = {}
    read: dict[str, int] = {}
    for node in graph.nodes:
        operands = [value for value in node.present_inputs if value in made]
        own = [unit_of[origin] for origin in node.origins if origin in unit_of]
        # What is in no unit, such as a view, is where its operand is.
        at = own[0] if own else max((made[value] for value in operands), default=None)
        if at is None:
            continue
        made |= dict.fromkeys(node.present_outputs, at)
        read |= {value: max(at, read.get(value, 0)) for value in operands}
    changes = np.zeros(units + 2)
    for value, last in read.items():
        if last > made[value]:
            changes[made[value] + 1] += graph.type_of(value).nbytes
            changes[last + 1] -= graph.type_of(value).nbytes
    return np.cumsum(changes)[: units + 1]


def chain_stages(
    seconds: NDArray[np.float64], launches: Sequence[float], crossing: NDArray[np.float64]
) -> tuple[int, ...]:
    """Return the device of each unit: contiguous stages, at most one a device.

    ``seconds`` [units, devices] of units in their order; ``launches`` are seconds to begin and end a stage;
    ``crossing`` [units + 1, devices, devices] are those of what is moved, beside the work, where a stage of one device
    begins at a unit after one of another.

    >>> chain_stages(np.array([[2.0, 2], [2, 2], [1, 1], [3, 3]]), [0.0, 0.0], np.zeros((5, 2, 2)))
    (0, 0, 1, 1)
    """
    units, devices = seconds.shape
    if not units:
        return ()
    sums = np.vstack([np.zeros((1, devices)), np.cumsum(seconds, axis=0)])
    orders = [
        order
        for count in range(1, devices + 1)
        for order in itertools.islice(itertools.permutations(range(devices), count), _MOST_ORDERS)
    ]
    found = [_cuts(sums, launches, crossing, order) for order in orders]
    best = min(range(len(orders)), key=lambda number: found[number][0])
    lengths = np.diff([0, *found[best][1], units])
    return tuple(int(device) for device in np.repeat(orders[best], lengths))


def _cuts(
    sums: NDArray[np.float64], launches: Sequence[float], crossing: NDArray[np.float64], order: Sequence[int]
) -> tuple[float, list[int]]:
    """Return the slowest stage of devices in an order, none without a unit, and where each but the first begins."""
    units = len(sums) - 1
    begins, ends = np.arange(units + 1)[:, None], np.arange(units + 1)[None, :]
    reached = np.where(np.arange(units + 1) == 0, 0.0, np.inf)
    came_from: list[NDArray[np.intp]] = []
    for number, device in enumerate(order):
        stage = np.where(begins < ends, sums[None, :, device] - sums[:, None, device], np.inf)
        worst = np.maximum(reached[:, None], stage + launches[device])
        if number:
            worst = np.maximum(worst, crossing[:, order[number - 1], device][:, None])
        came_from.append(worst.argmin(axis=0))
        reached = worst.min(axis=0)
    cuts, at = list[int](), units
    for origin in reversed(came_from[1:]):
        at = int(origin[at])
        cuts.append(at)
    return float(reached[units]), cuts[::-1]


__all__ = ["chain_stages", "staged"]
