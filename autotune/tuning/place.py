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
from autotune.tuning.paired import PLAN_MARGIN, Series, fastest, ratio
from autotune.tuning.placement_aim import PlacementAim, aim_of
from autotune.tuning.placement_costs import PlacementCosts, Placing, measured_costs
from autotune.tuning.placement_search import SearchedPlacement, search_placements
from autotune.tuning.placing import known_devices, target_of
from autotune.tuning.turns import Rounds, Turns

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model, Shapes
    from autotune.compiler.throughput import Throughput
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
    """A placement: what it was expected to take and took, in seconds, and its ratio to the incumbent.

    For throughput that is from one answer to the next; ``alone_seconds`` is then what a request takes when they follow
    each other, None for the incumbent.
    """

    placement: dict[str, str]
    devices: tuple[str, ...]
    expected_seconds: float
    measured_seconds: float | None
    ratio: Ratio | None
    alone_seconds: float | None = None

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
    aim: str = "latency"
    in_flight: int = 0

    @property
    def placement(self) -> dict[str, str]:
        """What to compile with, as patterns and devices."""
        return self.measured[self.accepted].placement

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return asdict(self) | {"placement": self.placement}


@dataclass(frozen=True, eq=False)
class Proposal:
    """The placement on several devices that is expected to be the best, compiled and not measured as a whole."""

    placement: dict[str, str]
    program: DeviceProgram
    expected: Throughput


def propose(
    model: Model,
    devices: Sequence[str],
    in_flight: int,
    *,
    database: DatabaseLike | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Proposal | None:
    """The stages of a pipeline, for so many requests in flight; None where all on one device is expected to be better.

    Raises as :func:`place` does.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.tuning.api import with_database

    _check(devices)
    aim, graph = aim_of("throughput", in_flight, len(devices)), on_one_device(imported(model, None))

    def run(store: Database | None) -> Proposal | None:
        return _Job(graph, tuple(devices), aim, store, tolerance, seed, lambda text: None).propose()

    return with_database(database, run)[0]


def place(
    model: Model,
    devices: Sequence[str],
    *,
    database: DatabaseLike | None = None,
    tolerance: float = TOLERANCE,
    shapes: Shapes | None = None,
    aim: str = "latency",
    in_flight: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> PlacementReport:
    """Search a placement of a model on devices, of which the first is what it runs on without one.

    What the search finds is used only if whole runs in turns show it to be faster than all of it on the first device,
    by the test of :mod:`autotune.tuning.paired`. With the ``aim`` "throughput" as many requests as possible are to be
    answered in a second, ``in_flight`` at a time (by default one more than there are devices), there and on the first
    device. Raises UsageError for devices that are not there, fewer than two, or one twice, for another aim; and what
    compiling and the devices raise.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.tuning.api import with_database

    wanted = aim_of(aim, in_flight, len(devices))
    _check(devices)
    graph = on_one_device(imported(model, shapes))

    def run(store: Database | None) -> PlacementReport:
        return _Job(graph, tuple(devices), wanted, store, tolerance, seed, progress).run()

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
        aim: PlacementAim,
        database: Database | None,
        tolerance: float,
        seed: int,
        progress: Callable[[str], None],
    ) -> None:
        self.graph = graph
        self.devices = devices
        self.aim = aim
        self.database = database
        self.tolerance = tolerance
        self.seed = seed
        self.progress = progress

    def propose(self) -> Proposal | None:
        _, costs, found = self._searched()
        best = found[0].placing
        expected = costs.throughput(best, self.aim.in_flight)
        if len({*best}) < 2 or expected is None:
            return None
        placement = self._placement(best, costs)
        return Proposal(placement, self._compiled(placement), expected)

    def _searched(self) -> tuple[list[DeviceProgram], PlacementCosts, list[SearchedPlacement]]:
        """All of the model on each device, what its parts cost there, and placements, the best first."""
        self.progress(f"measuring {self.graph.name} on {', '.join(self.devices)}")
        alone = [self._compiled({"*": device}) for device in self.devices]
        costs = measured_costs(self.graph, alone, {name: open_device(name) for name in self.devices})
        self.progress(f"searching where {len(costs.units)} parts run")
        ops = tuple(unit.op for unit in costs.units)
        aim, starts = self.aim, self.aim.starts(costs)
        found = search_placements(
            lambda placing: aim.score(costs, placing), ops, len(self.devices), starts=starts, seed=self.seed
        )
        return alone, costs, found

    def run(self) -> PlacementReport:
        aim, (alone, costs, found) = self.aim, self._searched()
        chosen = self._chosen(found, costs)
        placements = [self._placement(placing, costs) for placing, _ in chosen]
        programs = [alone[0], *(self._compiled(placement) for placement in placements[1:])]
        measured, accepted = self._measured(chosen, placements, programs)
        by_device = {name: aim.seconds(costs, self._on(n, costs)) for n, name in enumerate(self.devices)}
        return PlacementReport(
            self.graph.name,
            self.devices,
            len(costs.units),
            len(found),
            by_device,
            measured,
            accepted,
            aim.name,
            aim.in_flight,
        )

    def _chosen(
        self, found: Sequence[SearchedPlacement], costs: PlacementCosts
    ) -> list[tuple[Placing, float]]:
        """The incumbent and the best that promise to be faster, with the seconds that are expected of each."""
        first = self._on(0, costs)
        scores = {each.placing: each.seconds for each in found}
        expected = {first: self.aim.seconds(costs, first)}
        for each in found:
            if len(expected) > CANDIDATES:
                break
            seconds = self.aim.seconds(costs, each.placing)
            if seconds < _PROMISE * expected[first]:
                expected[each.placing] = seconds
            elif each.seconds > scores[first]:
                break
        return [*expected.items()]

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
        chosen: Sequence[tuple[Placing, float]],
        placements: Sequence[dict[str, str]],
        programs: Sequence[DeviceProgram],
    ) -> tuple[tuple[MeasuredPlacement, ...], int]:
        """Whole runs of all in turns, and which is used."""
        series, alone = self._series(programs) if len(chosen) > 1 else ([None], [None])
        accepted = fastest(series, _EACH, PLAN_MARGIN)
        incumbent = series[0]
        found = [
            MeasuredPlacement(
                placement,
                program.devices,
                expected,
                _seconds(mine),
                None
                if mine is None or incumbent is None or mine is incumbent
                else ratio(mine, incumbent, _EACH),
                _seconds(by_itself),
            )
            for (_, expected), placement, program, mine, by_itself in zip(
                chosen, placements, programs, series, alone, strict=True
            )
        ]
        return tuple(found), accepted

    def _series(
        self, programs: Sequence[DeviceProgram]
    ) -> tuple[list[Series | None], Sequence[Series | None]]:
        """What each takes with as many requests in flight as is asked for; and, of several, one after another."""
        self.progress(f"measuring {len(programs) - 1} against all on {self.devices[0]}, in turns")
        alone = programs[1:] if self.aim.in_flight else ()
        with Turns(self.seed) as turns:
            for number, program in enumerate(programs):
                version = program if number or self.devices[0] != WITHOUT else program.images[0]
                turns.add(version, self.aim.in_flight)
            for program in alone:
                turns.add(program)
            read = turns.time(_ROUNDS, lambda: False)
        series = [None if readings is None else np.median(readings, axis=1) for readings in read]
        together, after = series[: len(programs)], series[len(programs) :]
        return together, [None, *after] if alone else [None] * len(programs)


def _seconds(series: Series | None) -> float | None:
    return None if series is None else 1e-9 * float(np.median(series))


__all__ = ["CANDIDATES", "MeasuredPlacement", "PlacementReport", "Proposal", "place", "propose"]
