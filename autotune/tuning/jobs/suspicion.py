"""Is it the candidates or the machine? Failures are stored once that is known.

A stored failure is never measured again. So those of a machine that can't measure at all (its libraries are broken, it
is out of memory, something kills the workers) must not be stored: the schedules would be lost to every later job.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from autotune.database.records import Origin, Run
from autotune.errors import MeasureError
from autotune.tuning.measure.outcome import Measurement

_SEVERAL = 3
_ALL_FAILED = 32


@dataclass
class Suspicion:
    """Holds failures back until a candidate of this session has worked and all ``defaults`` were tried.

    ``proven``: an earlier session found something that works.
    """

    defaults: int
    proven: bool = False
    tried: int = 0
    worked: int = 0
    _defaults_worked: int = 0
    _defaults_failed: Counter[str] = field(default_factory=Counter)
    _held: list[Run] = field(default_factory=list)
    _left_out: str = ""

    def take(self, run: Run, measurement: Measurement) -> list[Run]:
        """Return the runs that may be stored now; raises MeasureError when it is the machine."""
        self.tried += 1
        default = run.origin is Origin.DEFAULT
        self.defaults -= default
        if measurement.latency is None:
            self._look_at_failure(run, measurement, default)
            self._held.append(run)
            return self._cleared()
        self.worked += 1
        self._defaults_worked += default
        return [*self._cleared(), run]

    def leave_out(self, reason: str, *, default: bool) -> None:
        """Leave out a workload whose candidates cannot be checked; ``default``: its default schedule was
        not tried yet."""
        self.defaults -= default
        self._left_out = reason

    def rest(self) -> list[Run]:
        """Return the runs that were held back, at the end; raises MeasureError when nothing has worked."""
        if self.proven or self.worked:
            return self._release()
        if self.tried:
            raise MeasureError(self._nothing("none of the candidates worked", self._held[-1]))
        if self._left_out:
            raise MeasureError(f"nothing was measured: {self._left_out}")
        if self.defaults:
            raise MeasureError(
                "nothing was measured: the budget was over before the first candidate\n"
                "  reading the model and choosing its defaults took all of it: give more, such as --budget 2m"
            )
        return []

    def _look_at_failure(self, run: Run, measurement: Measurement, default: bool) -> None:
        if default:
            reason = f"{run.outcome.value}: {_pattern(run.message)}"
            self._defaults_failed[reason] += 1
            alike = self._defaults_failed[reason]
            everything = alike > 1 and not self.defaults and not self._defaults_worked
            if alike > self._defaults_worked and (alike >= _SEVERAL or everything):
                what = f"the default schedules of {alike} workloads failed for one reason"
                raise MeasureError(self._nothing(what, run, measurement.details))
        if self.tried >= _ALL_FAILED and not self.worked and not self.proven:
            what = f"none of the first {self.tried} candidates worked"
            raise MeasureError(self._nothing(what, run, measurement.details))

    def _cleared(self) -> list[Run]:
        """Return the runs that were held back, once the machine is above suspicion."""
        return self._release() if self.defaults <= 0 and self.worked else []

    def _release(self) -> list[Run]:
        held, self._held = self._held, []
        return held

    @staticmethod
    def _nothing(what: str, run: Run, details: str = "") -> str:
        said = "".join(f"\n  | {line}" for line in details.splitlines())
        return (
            f"{what}; that is this machine or its installation, not the candidates. The last {run.outcome.value}: "
            f"{run.message}. Nothing of it was stored, so that the same command tries again"
            f"{'; the worker wrote:' if said else ''}{said}"
        )


def _pattern(message: str) -> str:
    """Return a message without its numbers: the same failure at another place."""
    return re.sub(r"[0-9.]+(e[+-]?[0-9]+)?", "#", message)


__all__ = ["Suspicion"]
