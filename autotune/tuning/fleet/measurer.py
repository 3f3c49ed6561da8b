"""The measurer of a fleet: candidates are built here, and checked and timed on its seats, several at a time."""

from __future__ import annotations

import platform
import threading
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from typing import Any

from autotune.database.records import Latency, Outcome
from autotune.errors import NoReferenceError
from autotune.machine_lock import Measuring
from autotune.tuning.fleet.fleet import Answered, SeatWork
from autotune.tuning.fleet.trust import Trust
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.pool import ProcessPool

_NUMBERS = (Outcome.OK, Outcome.WRONG_RESULT, Outcome.OUT_OF_BOUNDS)
"""Outcomes that do not depend on how busy a node is."""


class FleetMeasurer:
    """A Measurer on a fleet. A failure counts where a second node has it too, if there is one."""

    def __init__(self, trust: Trust, builders: int) -> None:
        self._trust, self._fleet = trust, trust.fleet
        self._builders, self._building = ProcessPool(builders), threading.Lock()
        self._ahead: dict[int, SeatWork] = {}
        self._open = ExitStack()
        self._open.callback(self._builders.close)

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Build all of them on this machine: seats run only what was built here. One that is here as well measures
        nothing meanwhile."""
        here = any(node.host == platform.node() for node in self._fleet.ready)
        with (
            self._fleet.lanes.aside(),
            self._building,
            Measuring("build candidates", lambda text: None) if here else nullcontext(),
        ):
            return self._builders.build(candidates)

    def expect(self, built: Sequence[Built], default_ns: Sequence[float]) -> None:
        """Have the seats begin with candidates that are measured next."""
        for one, ns in zip(built, default_ns, strict=True):
            if one.failed is None:
                self._ahead[id(one)] = self._fleet.submit(SeatWork(_message(one, ns)))

    def measure(self, built: Built, default_ns: float) -> Measurement:
        """Check one and time it on a seat; on another one again where it fails."""
        if built.failed is not None:
            return built.failed
        work = self._ahead.pop(id(built), None) or self._fleet.submit(SeatWork(_message(built, default_ns)))
        return self._sure(work)

    def check(self, option: BuiltOption) -> Measurement:
        """Check a whole option on a seat."""
        return self._sure(self._fleet.submit(SeatWork({"do": "check", "option": asdict(option)})))

    def _sure(self, work: SeatWork) -> Measurement:
        """Return the outcome of a message; where that is a failure, the one that most of three nodes have."""
        said = [self._heard(work)]
        while said[0][1].outcome is not Outcome.OK:
            names = {name for name, _ in said}
            if len(said) == 3 or not any(node.name not in names for node in self._fleet.ready):
                break
            again = SeatWork(work.message, used=work.used, elsewhere=True)
            said.append(self._heard(self._fleet.submit(again)))
            if len(said) == 2 and said[0][1].outcome == said[1][1].outcome:
                break
        return self._majority(said)

    def _majority(self, said: Sequence[tuple[str, Measurement]]) -> Measurement:
        """Return the outcome that most have, the first where there is none; who finds other numbers has a strike."""
        outcomes = [measured.outcome for _, measured in said]
        most = max(outcomes, key=outcomes.count)
        if outcomes.count(most) >= 2:
            for name, measured in said:
                if measured.outcome != most and {measured.outcome, most} <= {*_NUMBERS}:
                    what = f"it says {measured.outcome} where its peers say {most}"
                    self._trust.strike(name, f"{what} ({measured.message})" if measured.message else what)
        return next(measured for _, measured in said if measured.outcome == most)

    def _heard(self, work: SeatWork) -> tuple[str, Measurement]:
        answered = self._fleet.result(work)
        return answered.node, _measurement(answered)

    def rest(self) -> None:
        """Drop what waits, and have no builder run."""
        for work in self._ahead.values():
            work.future.cancel()
        self._ahead.clear()
        self._builders.rest()

    def close(self) -> None:
        """Stop the builders; the fleet is left by who has entered it."""
        self.rest()
        self._open.close()


def _message(built: Built, default_ns: float) -> dict[str, Any]:
    return {
        "do": "measure",
        "candidate": asdict(built.candidate),
        "payload": dict(built.payload),
        "fenced": built.fenced,
        "default_ns": default_ns if default_ns < float("inf") else None,
    }


def _measurement(answered: Answered) -> Measurement:
    """Return the measurement of an answer; raises NoReferenceError."""
    answer = answered.answer
    if "no_reference" in answer:
        raise NoReferenceError(answer["no_reference"])
    latency = answer["latency"]
    return Measurement(
        Outcome(answer["outcome"]),
        Latency(**latency) if latency else None,
        answer["error"],
        answer["message"],
        answer["details"],
        answered.node,
    )


__all__ = ["FleetMeasurer"]
