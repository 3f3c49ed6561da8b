"""A measurer whose candidates all have their default's machine code: what a job reports of them is noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autotune.tuning.measure.interface import Built, BuiltOption, Candidate, Measurer
from autotune.tuning.measure.outcome import Measurement


@dataclass(frozen=True)
class Unrecognised(Built):
    """Built code that passes for code of its own, whatever it is."""

    @cached_property
    def code_key(self) -> str:
        """The key of the schedule."""
        return self.trace_key if self.payload else ""


class SameCode:
    """Another measurer, but each candidate has the code that its workload was given first: a job builds defaults first.

    A job knows equal code when it sees it and reads it once. Here it does not: candidates are read, compared and
    judged as if each were another.
    """

    def __init__(self, inner: Measurer) -> None:
        self._inner = inner
        self._first: dict[str, Built] = {}
        """By the workload's text."""

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Build the candidates, for their schedules and failures."""
        return [self._as_first(built) for built in self._inner.build(candidates)]

    def _as_first(self, built: Built) -> Built:
        if built.failed is not None:
            return built
        first = self._first.setdefault(built.candidate.workload, built)
        mine = (built.candidate, built.trace_key, built.trace_json)
        return Unrecognised(*mine, payload=first.payload, footprint=first.footprint)

    def measure(self, built: Built, default_ns: float) -> Measurement:
        """Check and time the code."""
        return self._inner.measure(built, default_ns)

    def check(self, option: BuiltOption) -> Measurement:
        """Check a whole option."""
        return self._inner.check(option)

    def rest(self) -> None:
        """Have the other one rest."""
        self._inner.rest()

    def close(self) -> None:
        """Close the other one."""
        self._inner.close()


__all__ = ["SameCode"]
