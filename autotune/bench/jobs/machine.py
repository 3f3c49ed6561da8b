"""A simulated machine: its clock, its noise, its drift, and half the time at half the speed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autotune.bench.jobs.recording import NoiseQuantiles

_PHASE_S = 20.0
"""Seconds at full speed, then as many at half of it, where a machine is loaded half of the time."""
_DRIFT_S = 250.0
"""The period of drift."""
SLOW = 2.0


@dataclass(frozen=True)
class MachineKind:
    """A machine: its noise, the amplitude of its drift (a log), and whether it has half the speed half of the time."""

    name: str
    noise: NoiseQuantiles
    drift: float = 0.0
    loaded: bool = False

    @staticmethod
    def recorded(noise: NoiseQuantiles) -> MachineKind:
        """Return the machine of a recording."""
        return MachineKind("recorded", noise, drift=math.sqrt(2) * noise.session)

    def with_noise(
        self, name: str, deviation: float, *, drift: float = 0.0, loaded: bool = False
    ) -> MachineKind:
        """Return one of which a process draws an error with this standard deviation, and a round as much more as was
        recorded."""
        scale = deviation / max(1e-9, _deviation(self.noise.process))
        noise = replace(
            self.noise,
            process=tuple(scale * one for one in self.noise.process),
            round=tuple(scale * one for one in self.noise.round),
        )
        return MachineKind(name, noise, drift, loaded)


def _deviation(quantiles: Sequence[float]) -> float:
    """Return the standard deviation of the distribution with these quantiles, linear between them."""
    low, high = np.asarray(quantiles[:-1]), np.asarray(quantiles[1:])
    mean = float(np.mean((low + high) / 2))
    square = float(np.mean((low**2 + low * high + high**2) / 3))
    return math.sqrt(max(0.0, square - mean**2))


@dataclass
class SimulatedMachine:
    """A machine with a clock of its own, which goes on only while it works."""

    kind: MachineKind
    seed: int
    seconds: float = 0.0
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def clock(self) -> float:
        """Return the seconds since it was switched on."""
        return self.seconds

    @property
    def slowness(self) -> float:
        """Return by how much everything takes longer now."""
        return SLOW if self.kind.loaded and int(self.seconds / _PHASE_S) % 2 else 1.0

    def work(self, seconds: float) -> None:
        """Do what takes so many seconds at full speed."""
        left = seconds
        while self.kind.loaded and left > 0:
            phase = _PHASE_S * (int(self.seconds / _PHASE_S) + 1) - self.seconds
            step = min(left * self.slowness, phase)
            left -= step / self.slowness
            self.seconds += max(step, 1e-9)
        self.seconds += left if left > 0 else 0.0

    def process_noise(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return draws of what processes do to the logs of latencies."""
        return self._drawn(self.kind.noise.process, shape)

    def round_noise(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the same of rounds."""
        return self._drawn(self.kind.noise.round, shape)

    def alone(self, ns: float) -> float:
        """Return an isolated timing of what takes so long."""
        return ns * self.slowness * math.exp(self._rng.normal(0.0, self.kind.noise.alone))

    def drift(self, what: str) -> float:
        """Return by how much the log of some latency is off at the moment."""
        if not self.kind.drift:
            return 0.0
        phase = int(hashlib.sha256(f"{self.seed} {what}".encode()).hexdigest()[:8], 16) / 16**8
        return self.kind.drift * math.sin(2 * math.pi * (self.seconds / _DRIFT_S + phase))

    def _drawn(self, quantiles: Sequence[float], shape: tuple[int, ...]) -> NDArray[np.float64]:
        levels = np.linspace(0.0, 1.0, len(quantiles))
        return np.asarray(np.interp(self._rng.random(shape), levels, np.asarray(quantiles)))


__all__ = ["SLOW", "MachineKind", "SimulatedMachine"]
