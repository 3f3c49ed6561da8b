"""A measurer that replays recorded runs: searches are developed and compared in milliseconds.

The idea is Kernel Tuner's simulation mode.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from autotune.database.records import Outcome, Run
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.outcome import Measurement

Answer = Callable[[Candidate], Measurement]


def config_key(config: Mapping[str, int | str | bool]) -> str:
    """SHA-256 of a configuration's canonical JSON."""
    return hashlib.sha256(json.dumps(dict(config), sort_keys=True).encode()).hexdigest()


class SimulatedMeasurer:
    """Answers from a table or a function; ``measured`` lists what was asked for, in order."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.measured: list[Candidate] = []

    @staticmethod
    def of_runs(texts: Mapping[str, str], runs: Iterable[Run]) -> SimulatedMeasurer:
        """Replay ``runs``; ``texts`` gives each workload's text by key. Others are illegal."""
        table = {
            (texts[run.key.workload], config_key(json.loads(run.config_json))): Measurement(
                run.outcome, run.latency, run.error, run.message
            )
            for run in runs
        }
        absent = Measurement(Outcome.ILLEGAL, message="this configuration was not recorded")
        return SimulatedMeasurer(
            lambda candidate: table.get((candidate.workload, config_key(candidate.config)), absent)
        )

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Nothing to build: the configuration stands for its schedule."""
        return [Built(c, config_key(c.config), json.dumps(dict(c.config))) for c in candidates]

    def measure(self, built: Built, incumbent_ns: float) -> Measurement:
        """The recorded outcome."""
        self.measured.append(built.candidate)
        return self._answer(built.candidate)

    def check(self, option: BuiltOption) -> Measurement:
        """Nothing: whole options are not recorded."""
        return Measurement(Outcome.ILLEGAL, message="not recorded")

    def close(self) -> None:
        """Nothing to stop."""


__all__ = ["SimulatedMeasurer", "config_key"]
