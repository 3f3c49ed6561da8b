"""The placement of a model on some devices, by the database."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.compiler.sites.decision import model_row
from autotune.database.records import DEVICES, Comparison, Ratio
from autotune.errors import DatabaseError, MissError, UsageError
from autotune.foreign import parse_json
from autotune.graph.ir import Graph
from autotune.runtime.hal.device import DeviceInfo
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.tuning.report.units import nanoseconds

if TYPE_CHECKING:
    from autotune.database.store import Database

WITHOUT = "cpu"
"""The device that a model runs on which names none: by a module of one device, without submissions."""


@dataclass(frozen=True)
class PlacementReading:
    """An option of the site "devices": a placement of a model, and what its comparison says of it.

    ``placement`` has devices by patterns of names and operators. ``expected_ns`` is its estimate; ``measured_ns``, the
    ``ratio`` to all of the model on the first device and its ``rounds`` are None and 0 where it was not measured.
    ``code`` is the SHA-256 (hex) of the program that ran. ``won``: of those of its search it is the one to use.
    ``inside`` names the model.
    """

    devices: tuple[str, ...]
    placement: Mapping[str, str]
    expected_ns: float
    code: str
    measured_ns: float | None = None
    ratio: Ratio | None = None
    rounds: int = 0
    won: bool = False
    inside: str = ""
    created: float = 0.0

    @staticmethod
    def of(row: Comparison) -> PlacementReading:
        """Return what a database has; raises DatabaseError for a damaged row."""
        try:
            made = parse_json(row.detail)
            devices, placement, expected = made["devices"], made["placement"], float(made["expected_ns"])
            if not all(isinstance(text, str) for text in (*devices, *placement, *placement.values())):
                raise ValueError("its placement has no names")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DatabaseError(f"a placement of {row.inside!r} is damaged: {error}") from error
        ns, rounds = (None, 0) if row.latency is None else (row.latency.median_ns, row.latency.n)
        same = (row.ratio, rounds, row.won, row.inside, row.created)
        return PlacementReading(tuple(devices), dict(placement), expected, row.key, ns, *same)

    @property
    def name(self) -> str:
        """The name of the option: the SHA-256 (hex) of the devices and the placement."""
        text = json.dumps({"devices": self.devices, "placement": dict(self.placement)}, sort_keys=True)
        return _sha(text.encode())

    def candidate(self) -> Comparison:
        """Return the row of a placement that is to be compared."""
        made = {"devices": self.devices, "placement": dict(self.placement), "expected_ns": self.expected_ns}
        return Comparison(self.name, self.code, detail=json.dumps(made, sort_keys=True))


@dataclass(frozen=True)
class PlacementAnswer:
    """The placement of a model on some devices that the database has, or None: then all of it is on the first.

    ``readings`` are all placements that were searched, the oldest first. ``code`` is the SHA-256 (hex) of what was
    compiled by it, empty before that.
    """

    devices: tuple[str, ...]
    found: PlacementReading | None
    readings: tuple[PlacementReading, ...] = ()
    code: str = ""

    @property
    def placement(self) -> Mapping[str, str]:
        """Return the patterns and devices to compile with; nothing where no device has to be named."""
        placement = {"*": self.devices[0]} if self.found is None else self.found.placement
        return {} if placement == {"*": WITHOUT} else placement

    def __str__(self) -> str:
        among = ", ".join(self.devices)
        if self.found is None:
            return (
                f"placement on {among}: not searched, all of it is on {self.devices[0]}; "
                "`autotune place` with the same model, devices and database does that"
            )
        used = ", ".join(dict.fromkeys(self.found.placement.values()))
        if self.found.ratio is None:
            gain = f"nothing was significantly faster than all on {self.found.devices[0]}"
        else:
            gain = f"{self.found.ratio} over all on {self.found.devices[0]}"
        changed = "; with other code than now" if self.code and self.code != self.found.code else ""
        return f"placement on {among}: on {used}, searched {_day(self.found)}, {gain}{changed}"

    def lines(self) -> list[str]:
        """Return a line a placement that was searched, the oldest first: where it runs, and what it was expected to
        take and took."""
        return [
            f"{_day(each)} on {', '.join(dict.fromkeys(each.placement.values()))}: "
            f"expected {nanoseconds(each.expected_ns)}, measured {nanoseconds(each.measured_ns)}"
            + (f"; {each.ratio}" if each.ratio is not None else "")
            + (" (used)" if each == self.found else "")
            for each in self.readings
        ]

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values; ``found`` is null where nothing was searched."""
        return {
            "kind": DEVICES,
            "devices": self.devices,
            "found": None if self.found is None else _json(self.found),
            "searched": [_json(reading) for reading in self.readings],
            "same_code": None if self.found is None or not self.code else self.found.code == self.code,
        }


def placement_for(
    graph: Graph,
    devices: Sequence[str],
    infos: Mapping[str, DeviceInfo],
    database: Database | None,
    *,
    require_hit: bool = False,
) -> PlacementAnswer:
    """Look up the placement of an imported graph.

    Raises UsageError for devices that are not there, MissError with ``require_hit``.
    """
    names = checked_devices(devices, infos)
    key = placement_key(graph, names, infos)
    rows = () if database is None else database.compared_at(DEVICES, workload=key)
    readings = tuple(map(PlacementReading.of, rows))
    found = used_of(readings)
    if found is None and require_hit:
        raise MissError(
            f"no placement of {graph.name!r} on {', '.join(names)} was searched\n"
            "  search one by `autotune place`, or compile without requiring hits"
        )
    return PlacementAnswer(names, found, readings)


def used_of(readings: Sequence[PlacementReading]) -> PlacementReading | None:
    """Return the placement to use: that which won the newest comparison; None without any."""
    return next((reading for reading in reversed(readings) if reading.won), None)


def checked_devices(devices: Sequence[str], infos: Mapping[str, DeviceInfo]) -> tuple[str, ...]:
    """Return devices that a placement may be searched on. Raises UsageError for unknown ones, fewer than
    two, or one twice."""
    for name in devices:
        if name not in infos:
            raise UsageError(f"there is no device {name!r}\n  devices here: {', '.join(infos)}")
    if len({*devices}) < len(devices) or len(devices) < 2:
        raise UsageError(
            f"a placement is searched on two devices or more, each named once: got {', '.join(devices) or 'none'}\n"
            "  name the one first that the model runs on otherwise, such as cpu,cpu:0,cpu:1"
        )
    return tuple(devices)


def placement_key(graph: Graph, devices: Sequence[str], infos: Mapping[str, DeviceInfo]) -> str:
    """Return SHA-256 (hex) of what a placement depends on: the model without its weights, and the set of devices.

    Of a device it is the name, what the driver says of it, its cores and the target that code is made for: rates are
    measured of that, and change with nothing else.
    """
    text = model_row(graph).text
    described = sorted(
        [
            i.name,
            i.driver,
            i.kind,
            i.description,
            i.cores,
            i.core_ids,
            i.space,
            i.target.key if i.target else "",
        ]
        for i in (infos[name] for name in devices)
    )
    return hashlib.sha256(json.dumps([text, described]).encode()).hexdigest()


def code_of(program: DeviceProgram) -> str:
    """Return SHA-256 (hex) of what a program runs and moves, in its order."""
    parts: list[list[str]] = []
    for step in program.steps:
        made = [*map(_sha, program.images[step.image].objects)] if step.kind == "run" else []
        parts.append([step.kind, step.device or WITHOUT, *made])
    return _sha(json.dumps(parts).encode())


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _day(reading: PlacementReading) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(reading.created))


def _json(reading: PlacementReading) -> dict[str, Any]:
    return vars(reading) | {"ratio": None if reading.ratio is None else reading.ratio.to_json()}


__all__ = [
    "WITHOUT",
    "PlacementAnswer",
    "PlacementReading",
    "checked_devices",
    "code_of",
    "placement_for",
    "placement_key",
    "used_of",
]
