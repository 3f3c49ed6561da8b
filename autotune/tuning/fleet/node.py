"""Nodes of a fleet: what each says of itself, what it does, and why one is left out."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

_REMEMBERED = 16
"""A/A measurements of a node that its noise is the median of."""


class NodeState(StrEnum):
    """The state of a node as the searching process knows it."""

    STARTING = "starting"
    """Its seat is being made, or another job has it."""
    IDLE = "idle"
    MEASURING = "measuring"
    LOST = "lost"
    """It was killed, frozen or cut off; what was under way has gone to another."""
    OUT = "out"
    """It is not given anything more, for the reason that stands beside."""


@dataclass
class FleetNode:
    """One seat of the fleet; ``reason`` says why it is lost or out."""

    name: str
    state: NodeState = NodeState.STARTING
    reason: str = ""
    host: str = ""
    target: str = ""
    version: str = ""
    measurements: int = 0
    losses: int = 0
    """Losses of it since its last answer."""
    distrusted: bool = False
    """It is out as its peers contradict it: what it has measured alone is not used."""
    set_aside: int = 0
    """Measurements of it that were not used, as they differ from those of its peers."""
    stolen_s: float = 0.0
    """Seconds that a hypervisor took of its processors, since it started."""
    busy_s: float = 0.0
    """Seconds in which it has measured."""
    _served_s: float = 0.0
    _since: float | None = None
    """When it joined, while it works."""
    same_code: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """Logs of the ratios of versions with the same code (A/A), the latest of them."""

    @property
    def works(self) -> bool:
        """Return whether it is given measurements."""
        return self.state in (NodeState.IDLE, NodeState.MEASURING)

    def join(self) -> None:
        """Note that it works for the job from now on."""
        self.state, self.reason, self._since = NodeState.IDLE, "", time.monotonic()

    def leave(self, state: NodeState, reason: str) -> None:
        """Note that it works no more."""
        self.state, self.reason = state, reason
        self._served_s, self._since = self.served_s, None

    @property
    def served_s(self) -> float:
        """Return the seconds in which it was there for the job."""
        return self._served_s + (0.0 if self._since is None else time.monotonic() - self._since)

    @property
    def noise(self) -> float | None:
        """Return the median of its A/A ratios' distance from 1; None while nothing was measured."""
        return math.expm1(median(map(abs, self.same_code))) if self.same_code else None

    def to_json(self) -> dict[str, Any]:
        """Return what `autotune status` shows of it."""
        return {
            "name": self.name,
            "state": self.state.value,
            "reason": self.reason,
            "target": self.target,
            "version": self.version,
            "measurements": self.measurements,
            "set_aside": self.set_aside,
            "busy_s": round(self.busy_s, 2),
            "served_s": round(self.served_s, 2),
            "noise": None if self.noise is None else round(self.noise, 4),
            "stolen_s": round(self.stolen_s, 1),
        }


__all__ = ["FleetNode", "NodeState"]
