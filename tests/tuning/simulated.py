"""A measurer that measures nothing: searches are tested in milliseconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

from autotune.database.records import Outcome
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement

Answer = Callable[[Candidate], Measurement]


def config_key(config: Mapping[str, int | str | bool]) -> str:
    """SHA-256 of a configuration's canonical JSON."""
    return hashlib.sha256(json.dumps(dict(config), sort_keys=True).encode()).hexdigest()


class SimulatedMeasurer:
    """Answers from a function; ``measured`` lists what was asked for, in order."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.measured: list[Candidate] = []

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Nothing to build: the configuration stands for its schedule."""
        return [Built(c, config_key(c.config), json.dumps(dict(c.config))) for c in candidates]

    def measure(self, built: Built, default_ns: float) -> Measurement:
        """The answer, as an outcome."""
        self.measured.append(built.candidate)
        return self._answer(built.candidate)

    def check(self, option: BuiltOption) -> Measurement:
        """Whole options have no answer."""
        return Measurement(Outcome.ILLEGAL, message="no answer")

    def rest(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to stop."""


class Ticks:
    """A clock that each look advances: what a job does next does not depend on the machine's load."""

    def __init__(self, step_s: float = 0.01) -> None:
        self.now = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        """Seconds."""
        self.now += self.step_s
        return self.now


__all__ = ["SimulatedMeasurer", "Ticks", "config_key"]
