"""``place``: search where the parts of a model run, and measure what the search promises against one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.database.records import Ratio
from autotune.errors import UsageError
from autotune.passes.device_rules import DeviceRules
from autotune.passes.preference import TOLERANCE
from autotune.runtime.hal.driver import open_device
from autotune.tuning.paired import PLAN_MARGIN, Readings, fastest, ratio
from autotune.tuning.placement_costs import PlacementCosts, Placing, measured_costs
from autotune.tuning.placement_search import SearchedPlacement, search_placements
from autotune.tuning.placing import known_devices, target_of
from autotune.tuning.turns import Rounds, Turns

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model, Shapes
    from autotune.database.opening import DatabaseLike
    from autotune.database.store import Database
    from autotune.graph.ir import Graph
    from autotune.runtime.device_program import DeviceProgram

CANDIDATES = 2
"""Placements that are measured beside the incumbent; they share the error rate."""
WITHOUT = "cpu"
"""The device that a model runs on which names none: by a module of one device, without submissions."""
_PROCESSES = 8
_EACH = 3
_ROUNDS = Rounds(most=_PROCESSES * _EACH, least=_PROCESSES * _EACH, processes=_PROCESSES, turn_ns=60e6)
_PROMISE = 0.99
"""What is expected to take more than this part of the incumbent's time is not measured."""


@dataclass(frozen=True)
class MeasuredPlacement:
    """A placement: what it was expected to take and took, in seconds, and its ratio to the incumbent."""

    placement: dict[str, str]
    devices: tuple[str, ...]
    expected_seconds: float
    measured_seconds: float | None
    ratio: Ratio | None

    @property
    def off(self) -> float | None:
        """How much more than expected it took, as a part of what it took."""
        if self.measured_seconds is None:
            return None
        return 1.0 - self.expected_seconds / self.measured_seconds


@dataclass(frozen=True)
class PlacementReport:
    """What a search found. ``accepted`` is the number of the measured placement that is used; 0 is the incumbent."""

    model: str
    devices: tuple[str, ...]
    units: int
    evaluated: int
    alone_seconds: dict[str, float]
    measured: tuple[MeasuredPlacement, ...]
    accepted: int

    @property
    def placement(self) -> dict[str, str]:
        """What to compile with, as patterns and devices."""
        return self.measured[self.accepted].placement

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return asdict(self) | {"placement": self.placement}


def place(
    model: Model,
    devices: Sequence[str],
    *,
    database: DatabaseLike | None = None,
    tolerance: float = TOLERANCE,
    shapes: Shapes | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> PlacementReport:
    """Search a placement of a model on devices, of which the first is what it runs on without one.

    What the search finds is used only if whole runs in turns show it to be faster than all of it on the first device,
    by the test of :mod:`autotune.tuning.paired`. Raises UsageError for devices that are not there, fewer than two,
    or one twice; and what compiling and the devices raise.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.tuning.api import with_database

    _check(devices)
    graph = on_one_device(imported(model, shapes))

    def run(store: Database | None) -> PlacementReport:
        return _Job(graph, tuple(devices), store, tolerance, seed, progress).run()

    return with_database(database, run)[0]


def _check(devices: Sequence[str]) -> None:
    known = known_devices()
    for name in devices:
        if name not in known:
            raise UsageError(f"there is no device {name!r}\n  devices here: {', '.join(known)}")
        target_of(known[name])
    if len({*devices}) < len(devices) or len(devices) < 2:
        raise UsageError(
            f"a placement is searched on two devices or more, each named once: got {', '.join(devices) or 'none'}\n"
            "  name the one first that the model runs on otherwise, such as cpu,cpu:0,cpu:1"
        )


class _Job:
    def __init__(
        self,
        graph: Graph,
        devices: tuple[str, ...],
        database: Database | None,
        tolerance: float,
        seed: int,
        progress: Callable[[str], None],
    ) -> None:
        self.graph = graph
        self.devices = devices
        self.database = database
        self.tolerance = tolerance
        self.seed = seed
        self.progress = progress

    def run(self) -> PlacementReport:
        self.progress(f"measuring {self.graph.name} on {', '.join(self.devices)}")
        alone = [self._compiled({"*": device}) for device in self.devices]
        costs = measured_costs(self.graph, alone, {name: open_device(name) for name in self.devices})
        self.progress(f"searching where {len(costs.units)} parts run")
        ops = tuple(unit.op for unit in costs.units)
        found = search_placements(costs.seconds, ops, len(self.devices), seed=self.seed)
        seconds = {placement.placing: placement.seconds for placement in found}
        first = self._on(0, costs)
        promising = [each for each in found if each.seconds < _PROMISE * seconds[first]][:CANDIDATES]
        chosen = [SearchedPlacement(first, seconds[first]), *promising]
        placements = [self._placement(each.placing, costs) for each in chosen]
        programs = [alone[0], *(self._compiled(placement) for placement in placements[1:])]
        measured, accepted = self._measured(chosen, placements, programs)
        by_device = {name: seconds[self._on(n, costs)] for n, name in enumerate(self.devices)}
        return PlacementReport(
            self.graph.name, self.devices, len(costs.units), len(found), by_device, measured, accepted
        )

    @staticmethod
    def _on(device: int, costs: PlacementCosts) -> Placing:
        return (device,) * len(costs.units)

    def _placement(self, placing: Placing, costs: PlacementCosts) -> dict[str, str]:
        if len({*placing}) == 1:
            return {"*": self.devices[placing[0]]}
        return costs.rules(placing)

    def _compiled(self, placement: dict[str, str]) -> DeviceProgram:
        from autotune.compiler.placed import compile_placed

        infos = known_devices()
        done = compile_placed(
            self.graph,
            DeviceRules(placement, tuple(infos)),
            lambda name: target_of(infos[name]),
            database=self.database,
            tolerance=self.tolerance,
        )
        return done.program

    def _measured(
        self,
        chosen: Sequence[SearchedPlacement],
        placements: Sequence[dict[str, str]],
        programs: Sequence[DeviceProgram],
    ) -> tuple[tuple[MeasuredPlacement, ...], int]:
        """Whole runs of all in turns, and which is used."""
        read: list[Readings | None] = [None] * len(chosen)
        if len(chosen) > 1:
            self.progress(f"measuring {len(chosen) - 1} against all on {self.devices[0]}, in turns")
            with Turns(self.seed) as turns:
                for number, program in enumerate(programs):
                    turns.add(program if number or self.devices[0] != WITHOUT else program.images[0])
                read = turns.time(_ROUNDS, lambda: False)
        series = [None if readings is None else np.median(readings, axis=1) for readings in read]
        accepted = fastest(series, _EACH, PLAN_MARGIN)
        incumbent = series[0]
        found = [
            MeasuredPlacement(
                placement,
                program.devices,
                each.seconds,
                None if mine is None else 1e-9 * float(np.median(mine)),
                None
                if mine is None or incumbent is None or mine is incumbent
                else ratio(mine, incumbent, _EACH),
            )
            for each, placement, program, mine in zip(chosen, placements, programs, series, strict=True)
        ]
        return tuple(found), accepted


__all__ = ["CANDIDATES", "MeasuredPlacement", "PlacementReport", "place"]
