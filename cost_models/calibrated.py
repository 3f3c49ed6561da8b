"""Measurements of machines, stored in the settings' home folder: one JSON file a machine.

Whoever compiles or looks up reads what is there and never measures. Cores of equal hardware share a file, whatever
number of threads a target uses.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.errors import UsageError
from autotune.files import replacing
from autotune.target import Target

FORMAT = 1
FIELDS: Mapping[str, tuple[float, float]] = {
    "hertz": (2e8, 1e10),
    "arithmetic_ports": (0.2, 8.0),
    "pair_ports": (0.1, 8.0),
    "load_ports": (0.2, 8.0),
    "scalar_load_ports": (0.2, 8.0),
    "store_ports": (0.1, 8.0),
    "issue_width": (0.5, 16.0),
    "latency": (1.0, 32.0),
    "line_split_cycles": (0.0, 20.0),
    "page_cycles": (0.0, 50.0),
    "conflict_cycles": (0.0, 100.0),
    "fold_cycles": (1.0, 200.0),
    "tile_cycles": (4.0, 256.0),
    "short_run": (0.0, 10_000.0),
    "scattered": (0.0, 20.0),
    "l3_lost": (0.0, 2.0),
    "l2_bytes_per_cycle": (1.0, 512.0),
    "l3_bytes_per_cycle": (0.5, 512.0),
    "write_cost": (0.0, 8.0),
    "core_stream": (0.05, 256.0),
    "all_streams": (0.05, 1024.0),
    "l2_latency": (2.0, 200.0),
    "l3_latency": (5.0, 1000.0),
    "memory_latency": (20.0, 10_000.0),
    "huge_page_gain": (0.2, 50.0),
    "barrier_seconds": (1e-9, 1e-3),
    "tile_seconds": (0.0, 1e-4),
    "fork_seconds": (1e-9, 1e-2),
}
"""The measured fields, with plausible ranges: anything beyond was disturbed. Units are those of Machine."""
TABLE = "table"
"""The setting ``machine`` that leaves everything to the table."""

_LOG = logging.getLogger("autotune.calibration")


@dataclass(frozen=True)
class Calibration:
    """The measurements of a machine. ``disturbed`` names what was not steady, for which the table stands."""

    values: Mapping[str, float]
    disturbed: tuple[str, ...] = ()
    created: float = 0.0
    seconds: float = 0.0

    @property
    def trusted(self) -> dict[str, float]:
        """The values that are plausible and were steady."""
        return {
            name: self.values[name]
            for name, (low, high) in FIELDS.items()
            if name in self.values and name not in self.disturbed and low <= self.values[name] <= high
        }

    def to_json(self) -> dict[str, Any]:
        """Return the plain data; read back by :meth:`from_json`."""
        return {
            "format": FORMAT,
            "values": dict(self.values),
            "disturbed": list(self.disturbed),
            "created": self.created,
            "seconds": self.seconds,
        }

    @staticmethod
    def from_json(data: Any) -> Calibration:
        """Raise ValueError for anything but what :meth:`to_json` makes."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"no calibration of format {FORMAT}")
        values, disturbed = data.get("values"), data.get("disturbed")
        times = (data.get("created"), data.get("seconds"))
        if not isinstance(values, dict) or not values or not set(values) <= FIELDS.keys():
            raise ValueError("unknown values")
        if not isinstance(disturbed, list) or not set(map(str, disturbed)) <= FIELDS.keys():
            raise ValueError("unknown names")
        numbers = [*values.values(), *times]
        if not all(isinstance(n, int | float) and math.isfinite(n) and n >= 0 for n in numbers):
            raise ValueError("a number is missing, negative or infinite")
        return Calibration(values, tuple(disturbed), float(data["created"]), float(data["seconds"]))


def path_of(target: Target) -> Path:
    """Return the file of the machine of a target: all targets of one machine have the same, whatever their threads."""
    return settings.current().home_path() / "machines" / _name_of(target)


@lru_cache(maxsize=64)
def _name_of(target: Target) -> str:
    key = replace(target, threads=target.cores).key
    return f"{key[:16]}.json"


def find(target: Target, *, fresh: bool = False) -> Calibration | None:
    """Return the stored measurements of the machine of a target; None without any, and where the settings
    want the table.

    ``fresh`` looks again for what another process may have kept since.
    """
    chosen = settings.current().machine
    if chosen not in ("", TABLE):
        variable = settings.environment_name("machine")
        raise UsageError(f"{variable}={chosen}: allowed are {TABLE!r}, and nothing for what is measured")
    if fresh:
        _read.cache_clear()
    return None if chosen == TABLE else _read(path_of(target))


@lru_cache(maxsize=64)
def _read(path: Path) -> Calibration | None:
    """Read a file once in a process, so that its answers do not change while it runs."""
    try:
        return Calibration.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _LOG.warning(
            "%s is damaged and ignored (%s); `autotune devices --calibrate` makes it anew", path, error
        )
        return None


def keep(target: Target, found: Calibration) -> Path:
    """Write what was measured for all processes that start from now on. Raises OSError where it cannot be kept."""
    path = path_of(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    _read.cache_clear()
    return path


__all__ = ["FIELDS", "TABLE", "Calibration", "find", "keep", "path_of"]
