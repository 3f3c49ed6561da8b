"""The state of a running job, as progress displays see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.database.records import Origin, Outcome, Ratio, Run
from autotune.suggest import counted
from autotune.tuning.compare.paired import geometric_mean, total
from autotune.tuning.compare.sites import Sites
from autotune.tuning.jobs.budget import Meter
from autotune.tuning.jobs.forecast import Forecast
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.noise import Noise
from autotune.tuning.report.result import DispatchRow, Report


@dataclass
class ModelStatus:
    """The state of a model of a job."""

    name: str
    sites: Sites
    rows: Callable[[], Sequence[DispatchRow]] = tuple
    """Looks up what a compilation would use now."""
    _known: tuple[Mapping[str, str], Ratio | None] | None = ({}, None)

    def compared(self) -> None:
        """Have what is confirmed looked up again by whoever asks for it next."""
        self._known = None

    @property
    def gains(self) -> Mapping[str, str]:
        """The confirmed speed-ups inside the model, by workload key."""
        return self._confirmed()[0]

    @property
    def confirmed(self) -> Ratio | None:
        """Their effect on the sum over the dispatches; None while there are none."""
        return self._confirmed()[1]

    def _confirmed(self) -> tuple[Mapping[str, str], Ratio | None]:
        if self._known is None:
            known = [row for row in self.rows() if row.before_ns is not None]
            gains = {r.workload: r.evidence.gain for r in known if r.evidence.state.tuned}
            parts = [(row.count * (row.before_ns or 0.0), row.evidence.ratio) for row in known]
            self._known = gains, total(parts) if gains else None
        return self._known

    @property
    def default_ns(self) -> float | None:
        """The model's latency by the readings of default schedules; None until all that it uses are known."""
        return _known(self.sites.default_total(lambda task: task.default_ns or float("inf")))

    @property
    def best_ns(self) -> float | None:
        """The model's latency by the smallest readings, which say little of the model itself; None until all are
        known."""
        return _known(self.sites.total(lambda task: task.best_ns))

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for a machine to read."""
        confirmed = None if self.confirmed is None else self.confirmed.to_json()
        known = {"default_ns": self.default_ns, "best_ns": self.best_ns}
        return {"model": self.name, **known, "confirmed": confirmed}


def _known(ns: float) -> float | None:
    return ns if ns < float("inf") else None


@dataclass
class Status:
    """The state of a job. ``recalled`` counts runs that the database had before this session."""

    models: Mapping[str, ModelStatus]
    database: str
    job: str
    target: str
    sites: Sites
    meter: Meter
    policy: Policy
    continued: bool = False
    recalled: int = 0
    phase: str = "search"
    note: str = ""
    """The present work of the phase."""
    forecast: Forecast | None = None
    """The expected end of the job; None where nothing is known of latencies."""
    noise: Noise = field(default_factory=Noise)
    after_s: float = 0.0
    """Seconds that comparing what is used, and timing the whole model, are expected to take after the search."""
    searched_s: float | None = None
    """When the search ended, by the meter."""
    waiting: bool = False
    """Another job measures on this machine, and the note says which."""
    nodes: Callable[[], list[dict[str, Any]]] = list
    """The nodes of the fleet that measures, as JSON values; none where this machine does."""
    session_trials: int = 0
    near_trials: int = 0
    """Those of this session that were found for near workloads."""
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    """One message of each kind of failure, the newest."""

    @property
    def model(self) -> str:
        """Return the names of the models."""
        return ", ".join(self.models)

    @property
    def gains(self) -> Mapping[str, str]:
        """Return the confirmed speed-ups inside models, by workload key."""
        return {key: gain for model in self.models.values() for key, gain in model.gains.items()}

    @property
    def confirmed(self) -> Ratio | None:
        """Return what is confirmed, of several models the geometric mean; None while nothing is."""
        known = [model.confirmed for model in self.models.values()]
        return geometric_mean(known) if any(ratio is not None for ratio in known) else None

    @property
    def tasks(self) -> Sequence[Task]:
        """All tasks of the job."""
        return self.sites.tasks

    def count(self, run: Run) -> None:
        """Take one more measured run into account."""
        self.session_trials += 1
        self.near_trials += run.origin is Origin.NEAR
        self.outcomes[run.outcome.value] += 1
        if run.outcome is not Outcome.OK:
            self.failures[run.outcome.value] = run.message

    @property
    def trials_per_second(self) -> float:
        """Measured runs a second in this session."""
        return self.session_trials / max(1e-9, self.meter.session_s)

    @property
    def eta_s(self) -> float | None:
        """Seconds until the job ends, comparing and timing included; None while nobody can know."""
        left = self.meter.left_s
        most = min(self.meter.trials_left, sum(task.room for task in self.tasks if not task.finished))
        if self.searched_s is not None:
            left = min(left, max(0.0, self.searched_s + self.after_s - self.meter.elapsed_s))
        elif self.session_trials and most < float("inf"):
            left = min(left, most / self.trials_per_second + self.after_s)
        return left if left < float("inf") else None

    @property
    def default_ns(self) -> float | None:
        """The latency of the models, their geometric mean, by the readings of default schedules; None until all that
        they use are known."""
        return _known(self.sites.default_total(lambda task: task.default_ns or float("inf")))

    @property
    def best_ns(self) -> float | None:
        """The same by the smallest readings, which say little of the models themselves; None until all are known."""
        return _known(self.sites.total(lambda task: task.best_ns))

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for a machine to read."""
        return {
            "phase": self.phase,
            "note": self.note,
            "waiting": self.waiting,
            "budget": str(self.meter.budget),
            "trials": self.meter.trials,
            "near_trials": self.near_trials,
            "elapsed_s": round(self.meter.elapsed_s, 3),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            "trials_per_second": round(self.trials_per_second, 3),
            "outcomes": dict(self.outcomes),
            "models": [model.to_json() for model in self.models.values()],
            "next": None if self.policy.last is None else str(self.policy.last),
            "then": [str(action) for action in self.policy.others],
            "noise": self.noise.to_json(),
            "nodes": self.nodes(),
            "forecast": None if self.forecast is None else self.forecast.to_json(),
        }


def headline(status: Status) -> list[str]:
    """Return the subject, target and database of tuning."""
    dispatches, ways = status.sites.dispatches, len(status.sites.several)
    more = f" ({ways} with several algorithms)" if ways else ""
    workloads, known = counted(len(status.tasks), "workload"), counted(status.recalled, "run")
    lines = [
        f"tuning {status.model}: {counted(dispatches, 'dispatch')}, {workloads}{more}, for {status.target}",
        f"database {status.database}, budget {status.meter.budget}",
    ]
    if status.continued:
        done = counted(status.meter.trials, "trial")
        lines.append(f"continuing job {status.job}: {done} done, {known} known")
    elif status.recalled:
        lines.append(f"the database knows {known} of these workloads")
    return lines if status.forecast is None else [*lines, str(status.forecast)]


def share_done(meter: Meter) -> float:
    """Return the used share of the budget, from 0 to 1."""
    budget = meter.budget
    shares = [meter.trials / budget.trials if budget.trials else 0.0]
    if budget.limit_s:
        shares.append(meter.elapsed_s / budget.limit_s)
    return min(1.0, max(shares))


class Progress:
    """Shows a job while it runs: subclasses override what they show, nothing is shown of the rest."""

    def preparing(self, note: str) -> None:
        """Note what takes time before the job begins."""

    def started(self, status: Status) -> None:
        """Note that the job begins or goes on."""

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Note that one run was measured and stored."""

    def phase(self, status: Status) -> None:
        """Note that ``status.phase`` or its note has changed."""

    def chosen(self, status: Status) -> None:
        """Note that the policy has chosen what comes next: ``status.policy.last``, which is the phase's note too."""

    def finished(self, report: Report) -> None:
        """Note that the job ended or was stopped."""

    def close(self) -> None:
        """Give the terminal back; also after an error, and a second time."""


__all__ = ["ModelStatus", "Progress", "Status", "headline", "share_done"]
