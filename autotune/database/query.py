"""The answer to "which schedule is best here?": a run, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.database.evidence import Evidence, State
from autotune.database.goal import Saving
from autotune.database.records import Comparison, Key, Origin, Ratio, Run
from autotune.suggest import counted


class MissReason(StrEnum):
    """Why no schedule is known."""

    NO_WORKLOAD = "no_workload"
    OTHER_TARGET = "other_target"
    OTHER_SPACE = "other_space"
    ALL_FAILED = "all_failed"


@dataclass(frozen=True)
class Miss:
    """No schedule is known; ``found`` says what is near, ``advice`` what to run next."""

    key: Key
    reason: MissReason
    found: str
    advice: str

    latencies = (None, None)
    """Of the default and of the best, as those of a :class:`Hit`."""

    @property
    def evidence(self) -> Evidence:
        """Nothing is known of the default schedule, or that it does not work."""
        return Evidence(State.FAILED if self.reason is MissReason.ALL_FAILED else State.DEFAULT)

    def __str__(self) -> str:
        return f"nothing, because {self.found}; {self.advice}"


@dataclass(frozen=True)
class Hit:
    """The best run for a key, and what it is compared with.

    ``runs`` counts every run stored for the key, ``ok`` those that were timed, ``trials`` those of candidates beside
    the default; ``default`` is the run of the default schedule, None when it was never measured. ``compared`` has
    the newest comparison of the key's schedules inside a model, empty if there was none.
    """

    best: Run
    default: Run | None
    runs: int
    ok: int
    trials: int = 0
    compared: tuple[Comparison, ...] = ()
    read: tuple[float, float] | None = None
    """Latencies in ns of the default and of the best by readings of a search inside a model, if there are any."""
    crashes: tuple[str, ...] = ()
    """The ways in which runs that worked in isolation crashed inside a model."""
    saving: Saving | None = None
    """The saving for which the best run is used, where it is not the fastest."""
    claim: Ratio | None = None
    """The latency of the best run over the default's by comparisons inside models, where it is used for its latency."""

    @property
    def crashed(self) -> int:
        """Return the number of runs that worked in isolation and crashed inside a model."""
        return len(self.crashes)

    @property
    def evidence(self) -> Evidence:
        """Return the evidence for the best run."""
        if self.saving is not None:
            return Evidence.of_saving(self.saving, self.trials, self.crashed)
        if self.best.origin is Origin.DEFAULT:
            return Evidence(self._of_default, self.trials, crashed=self.crashed)
        if self.claim is not None and self.claim.changed:
            return Evidence(State.TUNED, self.trials, self.claim, self.crashed)
        return Evidence(State.UNCONFIRMED, self.trials, crashed=self.crashed)

    @property
    def _of_default(self) -> State:
        won = any(row.won and row.run == self.best.id for row in self.compared)
        if won and any(row.ratio is not None for row in self.compared):
            return State.CONFIRMED
        return State.TRIED if self.trials else State.DEFAULT

    @property
    def latencies(self) -> tuple[float | None, float]:
        """Latencies in ns of the default (None if never measured) and of the best.

        The in-model measurements where both have one, as only these are interleaved.
        """
        best, default = self.best, self.default
        if default is None or default.latency is None:
            return None, best.confirmed_ns or best.latency_ns
        if default.confirmed_ns is not None and best.confirmed_ns is not None:
            return default.confirmed_ns, best.confirmed_ns
        return self.read or (default.latency_ns, best.latency_ns)

    @property
    def side_by_side(self) -> bool:
        """Return whether :attr:`latencies` were measured in a model, and not alone."""
        return self.latencies[1] == self.best.confirmed_ns or self.latencies == self.read


TUNE = "run `autotune tune` with this model and this --db"


def miss(key: Key, targets: list[str], spaces: int, outcomes: dict[str, int]) -> Miss:
    """Diagnose a miss.

    ``targets`` names the machines that the workload was measured on, ``spaces`` counts the spaces
    measured on this target, ``outcomes`` the runs by outcome for exactly this key.
    """
    if outcomes:
        counts = ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items()))
        found = f"of {counted(sum(outcomes.values()), 'measured candidate')} none worked ({counts})"
        return Miss(key, MissReason.ALL_FAILED, found, "run `autotune tune` for longer")
    if spaces:
        found = f"it was tuned here in another search space ({spaces} known), by another version"
        return Miss(key, MissReason.OTHER_SPACE, found, TUNE + " again")
    if targets:
        found = f"it was tuned only for other targets ({'; '.join(targets)})"
        return Miss(key, MissReason.OTHER_TARGET, found, TUNE + " on this machine")
    found = f"the workload {key.workload[:12]} is not in the database"
    return Miss(key, MissReason.NO_WORKLOAD, found, TUNE)


__all__ = ["Hit", "Miss", "MissReason", "miss"]
