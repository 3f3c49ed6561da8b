"""What a side-by-side comparison of one case found: readings, ratios, and what was tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from autotune.bench.own import TUNED_NAME, UNTUNED_NAME, Own
from autotune.bench.problem import Case
from autotune.bench.side_by_side import CompetitorResult
from autotune.bench.tables import quotient
from autotune.tuning.history import History

OWN_NAMES = (UNTUNED_NAME, TUNED_NAME)
FLOORS = ("copy",)
"""Systems that are no peers: a bound that nobody goes below."""


@dataclass(frozen=True)
class Result:
    """One case at one number of threads. ``errors`` are our differences to each peer.

    ``history`` is of our own tuning, where a peer tuned as well.
    """

    case: Case
    threads: int
    flops: int
    bytes: int
    readings: Mapping[str, CompetitorResult]
    errors: Mapping[str, float] = field(default_factory=dict)
    own: Own | None = None
    failure: str = ""
    history: History | None = None

    def min_ns(self, name: str) -> float | None:
        """A competitor's fastest run."""
        reading = self.readings.get(name)
        return reading.latency.min_ns if reading and reading.latency else None

    def latency_ratio(self, name: str, other: str) -> float | None:
        """A competitor's latency ÷ another's."""
        return quotient(self.min_ns(name), self.min_ns(other))

    def median_ns(self, name: str) -> float | None:
        """A competitor's median run."""
        reading = self.readings.get(name)
        return reading.latency.median_ns if reading and reading.latency else None

    @property
    def ours_name(self) -> str:
        """Our best entry's name: tuned where there is one."""
        return TUNED_NAME if self.min_ns(TUNED_NAME) is not None else UNTUNED_NAME

    def best_peer_ns(self, *, median: bool = False) -> float | None:
        """The best peer's minimum, or the least of the peers' medians."""
        read = self.median_ns if median else self.min_ns
        known = [read(name) for name in self.readings if name not in (*OWN_NAMES, *FLOORS)]
        return min((ns for ns in known if ns is not None), default=None)

    def ratio(self, name: str | None = None, *, median: bool = False) -> float | None:
        """Our latency ÷ the best peer's; below 1 we are faster."""
        read = self.median_ns if median else self.min_ns
        return quotient(read(name or self.ours_name), self.best_peer_ns(median=median))

    def native_ratio(self, peer: str) -> float | None:
        """Our best entry's latency ÷ a peer's, both without Python's share."""
        ours, theirs = self.readings.get(self.ours_name), self.readings.get(peer)
        return quotient(ours.native_ns, theirs.native_ns) if ours and theirs else None

    @property
    def default_to_tuned(self) -> float | None:
        """Speed of the default schedules in parts of the tuned ones', over fresh processes in which both take turns."""
        return self.own.gain.ratio.median if self.own and self.own.gain else None

    def to_json(self) -> dict[str, Any]:
        """All numbers, in nanoseconds."""
        return {
            "family": self.case.family,
            "name": self.case.name,
            "threads": self.threads,
            "flops": self.flops,
            "bytes": self.bytes,
            "failure": self.failure,
            "readings": {name: _reading_json(reading) for name, reading in self.readings.items()},
            "relative_errors": dict(self.errors),
            "ratio_to_best_peer": self.ratio(),
            "ratio_of_medians": self.ratio(median=True),
            "default_to_tuned_speed": self.default_to_tuned,
            "gain": self.own.gain.to_json() if self.own and self.own.gain else None,
            "compile_s": self.own.compile_s if self.own else None,
            "tuned_dispatches": [self.own.hits, self.own.dispatches] if self.own else None,
            "tuning": asdict(self.history) if self.history else None,
        }


def _reading_json(reading: CompetitorResult) -> dict[str, Any]:
    latency = reading.latency
    return {
        "min_ns": latency.min_ns if latency else None,
        "median_ns": latency.median_ns if latency else None,
        "spread_ns": latency.spread_ns if latency else None,
        "runs": latency.n if latency else 0,
        "load_s": reading.load_s,
        "native_ns": reading.native_ns,
        "failure": reading.failure,
        "kinds_ns": dict(reading.kinds or {}),
        "tuning": asdict(reading.tuned) if reading.tuned else None,
    }


__all__ = ["FLOORS", "OWN_NAMES", "Result"]
