"""The result of a job: latency before and after, per dispatch and for the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.database.evidence import Evidence, tally
from autotune.database.records import Origin
from autotune.suggest import counted
from autotune.tuning.report import table
from autotune.tuning.report.units import listed
from autotune.tuning.report.width import wrapped

if TYPE_CHECKING:
    from autotune.tuning.report.gain import Gain
    from autotune.tuning.report.html import Markup


@dataclass(frozen=True)
class DispatchRow:
    """One workload: ``count`` dispatches, latencies in ns of one of them (None when it never ran).

    Latencies were measured in the model, or both ``alone``; ``evidence`` says what follows, options included, and
    ``schedule`` in words what is known of the schedule without them. ``names`` are those of the dispatches in the
    compiled model, ``nodes`` the model's that they come from. ``origin`` says why the schedule in use was measured:
    "default", "search", "near" (found for a near workload), and ``host`` where; empty where nothing works. ``floor_ns``
    is what no schedule undercuts (the roofline)."""

    name: str
    kind: str
    workload: str
    count: int
    before_ns: float | None
    after_ns: float | None
    runs: int
    evidence: Evidence
    nodes: tuple[str, ...] = ()
    origin: str = ""
    names: tuple[str, ...] = ()
    alone: bool = True
    schedule: str = ""
    floor_ns: float | None = None
    host: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return all of it; the values of the evidence beside the others."""
        known = {key: value for key, value in vars(self).items() if key != "evidence"}
        return known | self.evidence.to_json()


@dataclass(frozen=True)
class OptionRow:
    """An option that makes several dispatches of one, at ``count`` places of which ``name`` is the first.

    ``workloads`` are its parts'. ``ratio`` is its latency over the default's where a comparison in the model tells
    them apart, else None; ``gain`` says it in words.
    """

    name: str
    option: str
    count: int
    workloads: tuple[str, ...]
    ratio: float | None
    gain: str


@dataclass(frozen=True)
class ModelReport:
    """The result of a tuning job for one model.

    ``gain`` has the whole model untuned and tuned, interleaved in several fresh processes; None when the job
    was stopped before that, or ``untimed`` says why. ``decisions`` says how alternatives compared, a line a workload.
    """

    model: str
    dispatches: tuple[DispatchRow, ...]
    decisions: tuple[str, ...] = ()
    gain: Gain | None = None
    untimed: str = ""
    options: tuple[OptionRow, ...] = ()

    @property
    def speedup(self) -> float | None:
        """Return the speed-up of the whole model; None where the interval does not exclude that nothing changed."""
        return None if self.gain is None else self.gain.ratio.speedup

    def to_json(self) -> dict[str, Any]:
        """Return everything, as JSON values."""
        rows = [row.to_json() for row in self.dispatches]
        gain = None if self.gain is None else self.gain.to_json()
        options = [asdict(option) for option in self.options]
        return {**vars(self), "dispatches": rows, "options": options, "gain": gain, "speedup": self.speedup}


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a tuning job.

    ``models`` has the result for each model. ``actions`` counts what the policy has done, ``left`` is what it would
    have done next, ``enough`` why the search ended before its time. ``outcomes`` counts the runs of this session;
    ``near_trials`` of them were found for near workloads. ``failures`` has one message of each kind of failure,
    ``left_out`` says of dispatches why none of their candidates were measured, ``crashes`` how candidates ended their
    process inside the model that had worked alone.
    """

    models: tuple[ModelReport, ...]
    target: str
    database: str
    job: str
    stopped: bool
    trials: int
    session_trials: int
    seconds: float
    trials_per_second: float
    outcomes: Mapping[str, int]
    failures: Mapping[str, str]
    actions: Mapping[str, int] = field(default_factory=dict)
    left: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    crashes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    near_trials: int = 0
    enough: str = ""

    @property
    def model(self) -> str:
        """Return the names of the models."""
        return ", ".join(each.model for each in self.models)

    @property
    def dispatches(self) -> tuple[DispatchRow, ...]:
        """Return the rows of all models."""
        return tuple(row for each in self.models for row in each.dispatches)

    @property
    def decisions(self) -> tuple[str, ...]:
        """Return the decisions of all models."""
        return tuple(line for each in self.models for line in each.decisions)

    @property
    def gain(self) -> Gain | None:
        """Return that of the only model; None where there are several, each of which has its own."""
        return self.models[0].gain if len(self.models) == 1 else None

    @property
    def speedup(self) -> float | None:
        """Return the same of the speed-up."""
        return None if self.gain is None else self.gain.ratio.speedup

    def __str__(self) -> str:
        return "\n".join(lines_of(self))

    def figure(self) -> Markup:
        """Return its charts, which a notebook shows: time by dispatch before and after, and the distance to the
        roofline."""
        from autotune.tuning.report.charts import figure

        return figure(self)

    def _repr_html_(self) -> str:
        from autotune.tuning.report.charts import in_notebook

        return in_notebook(self).text

    def __repr__(self) -> str:
        return f"<Report {self.model}: {'; '.join(line.strip() for line in summary(self))}>"

    def to_json(self) -> dict[str, Any]:
        """Return everything, as JSON values."""
        return {**asdict(self), "models": [each.to_json() for each in self.models]}


def lines_of(report: Report, columns: int | None = None) -> list[str]:
    """Return the report as plain text, for each model its table and decisions; no line is wider than ``columns``."""
    made = list[str]()
    for each in report.models:
        made += [f"{each.model}:"] if len(report.models) > 1 else []
        made += [*table.lines(each, columns), *wrapped(each.decisions, columns)]
    return [*made, *wrapped(summary(report), columns)]


def summary(report: Report) -> list[str]:
    """Return the last lines: whole models, trials, failures, and where the schedules are."""
    which = "whole model" if len(report.models) == 1 else "whole model {}"
    timed = [(each.model, str(each.gain or f"not timed: {each.untimed}")) for each in report.models]
    count = [row.evidence.state for row in report.dispatches for _ in range(row.count)]
    lines = [tally(count)] if count else []
    lines += [f"{which.format(model)}: {found}" for model, found in timed]
    stopped = "stopped after " if report.stopped else ""
    lines.append(
        f"{stopped}{counted(report.session_trials, 'trial')} in {report.seconds:.1f} s "
        f"({report.trials_per_second:.1f} trials/s), {report.trials} in the job"
    )
    if report.actions:
        lines.append("  " + ", ".join(f"{count} × {name}" for name, count in report.actions.items()))
        lines.append(f"  left: {report.left or 'nothing that is worth its time'}")
    lines += [f"  the search ended early: {report.enough}"] if report.enough else []
    used = [row.name for row in report.dispatches if row.origin == Origin.NEAR]
    if report.near_trials or used:
        use = f"in use at {listed(used)}" if used else "none of them in use"
        lines.append(f"  {report.near_trials} of them from near workloads; {use}")
    bad = {name: count for name, count in report.outcomes.items() if name != "ok"}
    lines += [
        f"  {count} {name}, for example: {report.failures.get(name, '')}"
        for name, count in sorted(bad.items())
    ]
    lines += [
        f"  {name}: {message}" for name, found in report.crashes.items() for message in dict.fromkeys(found)
    ]
    lines += [f"  {name} was not tuned: {reason}" for name, reason in report.left_out.items()]
    lines.append(f"schedules stored in {report.database} (job {report.job})")
    return lines


__all__ = [
    "DispatchRow",
    "ModelReport",
    "OptionRow",
    "Report",
    "lines_of",
    "summary",
]
