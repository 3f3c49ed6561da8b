"""``place``: search where the parts of a model run, and measure what the search promises against one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from autotune.compiler.devices.memory import IN_FLIGHT, shortage
from autotune.compiler.request import CompileRequest, MachineOptions, keywords_of
from autotune.compiler.sites.decision import model_row
from autotune.database.records import DEVICES, Comparison, Ratio
from autotune.errors import PlacementError
from autotune.machine_lock import Measuring
from autotune.runtime.hal.driver import open_device
from autotune.suggest import counted
from autotune.tuning.compare.decide import PROCESSES, CompiledVersions
from autotune.tuning.compare.interleaved import Interleaved
from autotune.tuning.compare.questions import Choice, Question
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Profile, Version
from autotune.tuning.placement.aim import PlacementAim, aim_of
from autotune.tuning.placement.answer import (
    WITHOUT,
    PlacementReading,
    checked_devices,
    code_of,
    placement_key,
    used_of,
)
from autotune.tuning.placement.costs import PlacementCosts, Placing, measured_costs
from autotune.tuning.placement.placing import known_devices, target_of
from autotune.tuning.placement.search import SearchedPlacement, search_placements
from autotune.tuning.requested import open_database, with_database

if TYPE_CHECKING:
    from autotune.compiler.devices.throughput import Throughput
    from autotune.compiler.dividing import Model
    from autotune.database.store import Database
    from autotune.runtime.hal.device import DeviceInfo
    from autotune.runtime.image import ModuleImage
    from autotune.runtime.programs.device_program import DeviceProgram

CANDIDATES = 2
"""Placements that are measured beside the incumbent; they share the error rate."""
_ALONE = Rounds(most=6, least=2, processes=2)
"""Of placements for throughput, one request after another: to be shown, not to decide."""
_PROMISE = 0.99
"""The share of the incumbent's time above which, by expectation, a placement is not measured."""


@dataclass(frozen=True)
class MeasuredPlacement:
    """A placement: what it was expected to take and took, in seconds, its ratio to the incumbent, and the SHA-256 (hex)
    of its code.

    For throughput that is from one answer to the next; ``alone_seconds`` is then what a request takes when they follow
    each other, None for the incumbent.
    """

    placement: dict[str, str]
    devices: tuple[str, ...]
    expected_seconds: float
    measured_seconds: float | None
    ratio: Ratio | None
    alone_seconds: float | None = None
    code: str = ""

    @property
    def off(self) -> float | None:
        """Return the excess over the expected time, as a part of what it took."""
        if self.measured_seconds is None:
            return None
        return 1.0 - self.expected_seconds / self.measured_seconds

    @staticmethod
    def from_json(made: Mapping[str, Any]) -> MeasuredPlacement:
        """Return the placement in a report's JSON values."""
        ratio = (
            None if (told := made["ratio"]) is None else Ratio(told["median"], _interval(told["interval"]))
        )
        return MeasuredPlacement(**{**made, "devices": tuple(made["devices"]), "ratio": ratio})


def _interval(told: Sequence[float] | None) -> tuple[float, float] | None:
    return None if told is None else (told[0], told[1])


@dataclass(frozen=True)
class PlacementReport:
    """The result of a search. ``accepted`` is the number of the measured placement that is used; 0 is the incumbent."""

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
        """Return the patterns and devices to compile with."""
        return self.measured[self.accepted].placement

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        return asdict(self) | {"placement": self.placement}

    @staticmethod
    def from_json(made: Mapping[str, Any]) -> PlacementReport:
        """Return what :meth:`to_json` has described."""
        measured = tuple(map(MeasuredPlacement.from_json, made["measured"]))
        fields = {name: value for name, value in made.items() if name != "placement"}
        return PlacementReport(**{**fields, "devices": tuple(made["devices"]), "measured": measured})


@dataclass(frozen=True, eq=False)
class PlacementProposal:
    """The placement on several devices that is expected to be the best, compiled and not measured as a whole."""

    placement: dict[str, str]
    program: DeviceProgram
    expected: Throughput


@keywords_of(MachineOptions)
def propose(
    model: Model,
    devices: Sequence[str],
    in_flight: int,
    *,
    seed: int = 0,
    **options: Unpack[MachineOptions],
) -> PlacementProposal | None:
    """Return the stages of a pipeline, for so many requests in flight; None where all on one device is
    expected to be better.

    Raises as :func:`place` does.
    """
    request = CompileRequest(model, devices=devices, **options).checked()
    aim = aim_of("throughput", in_flight, len(devices))

    return with_database(request, lambda own: _Job(own, aim, seed).propose())[0]


@keywords_of(MachineOptions)
def place(
    model: Model,
    devices: Sequence[str],
    *,
    aim: str = "latency",
    in_flight: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
    job: str = "",
    **options: Unpack[MachineOptions],
) -> PlacementReport:
    """Search a placement of a model on devices, of which the first is what it runs on without one.

    What the search finds is used only if interleaved whole runs show it to be faster than all of it on the first
    device, by the test of :mod:`autotune.tuning.compare.paired`. For latency the result goes to the database with
    ``job`` beside it, where :func:`autotune.compile` finds it by the same devices; the placement there already is
    measured again, beside what the search finds. With the ``aim`` "throughput" as many requests as possible are to
    be answered in a second, ``in_flight`` at a time (by default one more than there are devices), there and on the
    first device; the result is stored for later searches of the same aim, and :func:`autotune.compile` takes it as a
    placement only.

    Raises UsageError for devices that are not there, fewer than two, or one twice, and for another aim, PlacementError
    where no placement fits into their memory; and what compiling and the devices raise.
    """
    from autotune.database.opening import opened

    request = CompileRequest(model, devices=devices, **options).checked()
    wanted = aim_of(aim, in_flight, len(devices))
    with opened(request.database) as store:
        return _Job(replace(request, database=store), wanted, seed, job, progress).run()


def _checked(devices: Sequence[str], infos: Mapping[str, DeviceInfo]) -> tuple[str, ...]:
    names = checked_devices(devices, infos)
    for name in names:
        target_of(infos[name])
    return names


class _Job:
    def __init__(
        self,
        request: CompileRequest,
        aim: PlacementAim,
        seed: int,
        job: str = "",
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        from autotune.compiler.dividing import imported, on_one_device

        self.request = request
        self.infos = known_devices()
        self.devices = _checked(request.devices, self.infos)
        self.graph = on_one_device(imported(request.model, request.shapes))
        self.aim = aim
        self.database = open_database(request)
        self.job = job
        self.key = aim.key(placement_key(self.graph, self.devices, self.infos))
        self.seed = seed
        self.progress = progress

    @property
    def store(self) -> Database:
        """The database that comparisons go to; :func:`propose` may have none."""
        assert self.database is not None
        return self.database

    def propose(self) -> PlacementProposal | None:
        with self._measuring():
            return self._propose()

    def _measuring(self) -> Measuring:
        return Measuring(f"place {self.graph.name}", self.progress)

    def _propose(self) -> PlacementProposal | None:
        _, costs, found = self._searched()
        best = found[0].placing
        expected = costs.throughput(best, self.aim.in_flight)
        if len({*best}) < 2 or expected is None:
            return None
        placement = self._placement(best, costs)
        return PlacementProposal(placement, self._compiled(placement), expected)

    def _searched(self) -> tuple[list[DeviceProgram], PlacementCosts, list[SearchedPlacement]]:
        """Return all of the model on each device, what its parts cost there, and placements, the best first."""
        self.progress(f"measuring {self.graph.name} on {', '.join(self.devices)}")
        alone = [self._compiled({"*": device}) for device in self.devices]
        costs = measured_costs(self.graph, alone, {name: open_device(name) for name in self.devices})
        self.progress(f"searching where to run {counted(len(costs.units), 'part')}")
        ops = tuple(unit.op for unit in costs.units)
        aim, starts = self.aim, self.aim.starts(costs)
        found = search_placements(
            lambda placing: aim.score(costs, placing), ops, len(self.devices), starts=starts, seed=self.seed
        )
        return alone, costs, found

    def run(self) -> PlacementReport:
        with self._measuring():
            return self._run()

    def _run(self) -> PlacementReport:
        aim, (alone, costs, found) = self.aim, self._searched()
        chosen = self._chosen(found, costs)
        placements = [self._placement(placing, costs) for placing, _ in chosen]
        programs = [
            alone[placing[0]] if len({*placing}) == 1 else self._compiled(placement)
            for (placing, _), placement in zip(chosen, placements, strict=True)
        ]
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
        """Return the placements to measure, with the expected seconds of each: all on the first device, what the
        database has, and what promises most."""
        scores = {each.placing: each.seconds for each in found if math.isfinite(each.seconds)}
        if not scores:
            requests = self.aim.in_flight or IN_FLIGHT
            tried = [costs.needs(self._on(number, costs), requests) for number in range(len(self.devices))]
            raise PlacementError(shortage(self.graph.name, tried, costs.memory, requests))
        first = self._on(0, costs)
        if first not in scores:
            first = next(iter(scores))
        expected = {first: self.aim.seconds(costs, first)}
        kept = self._kept(costs)
        if kept is not None and math.isfinite(seconds := self.aim.seconds(costs, kept)):
            expected[kept] = seconds
        for placing, score in scores.items():
            if len(expected) > CANDIDATES:
                break
            seconds = self.aim.seconds(costs, placing)
            if seconds < _PROMISE * expected[first]:
                expected[placing] = seconds
            elif score > scores[first]:
                break
        return [*expected.items()]

    def _kept(self, costs: PlacementCosts) -> Placing | None:
        """Return the database's placement, if it is of this objective."""
        rows = self.store.compared_at(DEVICES, workload=self.key)
        found = used_of([PlacementReading.of(row) for row in rows])
        return None if found is None else costs.placing(found.placement)

    @staticmethod
    def _on(device: int, costs: PlacementCosts) -> Placing:
        return (device,) * len(costs.units)

    def _placement(self, placing: Placing, costs: PlacementCosts) -> dict[str, str]:
        if len({*placing}) == 1:
            return {"*": self.devices[placing[0]]}
        return costs.rules(placing)

    def _compiled(self, placement: dict[str, str]) -> DeviceProgram:
        from autotune.compiler import compile_in_detail

        request = replace(self.request, placement=placement, devices=())
        return compile_in_detail(request, self.graph).program

    def _measured(
        self,
        chosen: Sequence[tuple[Placing, float]],
        placements: Sequence[dict[str, str]],
        programs: Sequence[DeviceProgram],
    ) -> tuple[tuple[MeasuredPlacement, ...], int]:
        """Compare all in whole runs, and return which is used."""
        readings = [
            PlacementReading(self.devices, placement, 1e9 * expected, code_of(program))
            for (_, expected), placement, program in zip(chosen, placements, programs, strict=True)
        ]
        versions = [
            program if placement != {"*": WITHOUT} else program.images[0]
            for placement, program in zip(placements, programs, strict=True)
        ]
        rows = self._compared(readings, versions)
        alone = [None, *self._alone(versions[1:])]
        found = tuple(
            MeasuredPlacement(
                dict(reading.placement),
                program.devices,
                1e-9 * reading.expected_ns,
                None if row is None or row.latency is None else 1e-9 * row.latency.median_ns,
                None if row is None else row.ratio,
                seconds,
                reading.code,
            )
            for reading, program, row, seconds in zip(readings, programs, rows, alone, strict=True)
        )
        won = [row is not None and row.won for row in rows]
        return found, won.index(True) if any(won) else 0

    def _compared(
        self, readings: Sequence[PlacementReading], versions: Sequence[ModuleImage | DeviceProgram]
    ) -> list[Comparison | None]:
        """Compare the placements as options of one site, and return what is stored of each; None of what failed."""
        named = dict(zip((reading.name for reading in readings), versions, strict=True))
        target = target_of(self.infos[self.devices[0]])
        self.store.add_target(target)
        self.store.add_workload(replace(model_row(self.graph), key=self.key))
        candidates = tuple(Choice(reading.candidate()) for reading in readings)
        expected = {reading.name: reading.expected_ns for reading in readings}
        question = Question(DEVICES, self.key, target.key, (), candidates, expected_ns=expected)
        model = CompiledVersions(
            self.graph.name, lambda version: named[version.whole[DEVICES]], self.seed, self.aim.in_flight
        )
        comparison = Interleaved(self.store, model, self.job, self.progress, PROCESSES)
        if comparison.compare([question], Version({}, {}), lambda: False) is None:
            return [None] * len(readings)
        rows = {row.name: row for row in self.store.comparison(self.key, target.key, DEVICES)}
        return [rows.get(reading.name) for reading in readings]

    def _alone(self, versions: Sequence[ModuleImage | DeviceProgram]) -> list[float | None]:
        """Return the seconds of a request where they follow each other, if the aim is another."""
        if not self.aim.in_flight or not versions:
            return [None] * len(versions)
        numbered = {str(number): version for number, version in enumerate(versions)}
        model = CompiledVersions(self.graph.name, lambda version: numbered[version.whole[DEVICES]], self.seed)
        each = [Version({}, {}, {DEVICES: name}) for name in numbered]
        return [_seconds(profile) for profile in model.read(each, _ALONE, lambda: False)]


def _seconds(profile: Profile | None) -> float | None:
    return None if profile is None else 1e-9 * float(np.median(profile.whole))


__all__ = ["CANDIDATES", "MeasuredPlacement", "PlacementProposal", "PlacementReport", "place", "propose"]
