"""The result of a job: latency before and after, per dispatch and for the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.database.evidence import Evidence
from autotune.database.records import Origin
from autotune.tuning.report.units import nanoseconds

if TYPE_CHECKING:
    from autotune.tuning.measure.gain import Gain


@dataclass(frozen=True)
class DispatchRow:
    """One workload: ``count`` dispatches, latencies in ns of one of them (None when it never ran).

    Latencies were measured in the model if the schedule was compared with the default, else in isolation:
    ``evidence`` says what follows. ``nodes`` are the model's nodes that the dispatches come from. ``origin`` says
    why the schedule in use was measured: "default", "search", "near" (found for a near workload); empty where
    nothing works."""

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

    def to_json(self) -> dict[str, Any]:
        """Return all of it; the values of the evidence beside the others."""
        known = {key: value for key, value in vars(self).items() if key != "evidence"}
        return known | self.evidence.to_json()


@dataclass(frozen=True)
class ModelReport:
    """The result of a tuning job for one model.

    ``gain`` has the whole model untuned and tuned, interleaved in several fresh processes; None when the job
    was stopped before that. ``decisions`` says how alternatives compared, a line a workload.
    """

    model: str
    dispatches: tuple[DispatchRow, ...]
    decisions: tuple[str, ...] = ()
    gain: Gain | None = None

    @property
    def speedup(self) -> float | None:
        """Return the speed-up of the whole model; None where the interval does not exclude that nothing changed."""
        return None if self.gain is None else self.gain.ratio.speedup

    def to_json(self) -> dict[str, Any]:
        """Return everything, as JSON values."""
        rows = [row.to_json() for row in self.dispatches]
        gain = None if self.gain is None else self.gain.to_json()
        return {**vars(self), "dispatches": rows, "gain": gain, "speedup": self.speedup}


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a tuning job.

    ``models`` has the result for each model. ``actions`` counts what the policy has done, ``left`` is what it would
    have done next. ``outcomes`` counts the runs of this session;
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

    def __repr__(self) -> str:
        return f"<Report {self.model}: {'; '.join(line.strip() for line in summary(self))}>"

    def to_json(self) -> dict[str, Any]:
        """Return everything, as JSON values."""
        return {**asdict(self), "models": [each.to_json() for each in self.models]}


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return the first names, and how many more there are.

    >>> listed(["conv1", "relu1", "pool1"], most=2)
    'conv1, relu1 and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_LEAST_NODES = 12
"""Characters that the names of nodes get, or they are left out."""


def duration(seconds: float) -> str:
    """Return a time to wait.

    >>> duration(7), duration(75), duration(4000)
    ('7s', '1m15s', '1h06m')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


_FIGURES = 71
"""Characters that a row needs beside its name."""


def lines_of(report: Report, columns: int | None = None) -> list[str]:
    """Return the report as plain text, for each model one line a dispatch, those with the most time first.

    Names are cut where a row would be wider than ``columns`` (but leaves 8 characters of them); the model's
    nodes stand at the end where there is room.
    """
    lines = list[str]()
    for each in report.models:
        lines += [f"{each.model}:"] if len(report.models) > 1 else []
        lines += [*_table(each, columns), *each.decisions]
    return [*lines, *summary(report)]


def _table(report: ModelReport, columns: int | None) -> list[str]:
    rows = sorted(report.dispatches, key=_share, reverse=True)
    width = max([8, *(len(row.name) for row in rows)])
    if columns is not None:
        width = min(width, max(8, columns - _FIGURES))
    lines = [
        f"{'dispatch':<{width}}  {'kind':<13} {'count':>5} {'before':>9} {'after':>9} {'runs':>5}  {'speed-up':<22}"
    ]
    lines += [
        f"{_cut(row.name, width):<{width}}  {row.kind:<13} {row.count:>5} {nanoseconds(row.before_ns):>9} "
        f"{nanoseconds(row.after_ns):>9} {row.runs:>5}  {row.evidence.gain:<22}"
        for row in rows
    ]
    room = None if columns is None else columns - len(lines[0]) - 2
    if any(row.nodes for row in rows) and (room is None or room >= _LEAST_NODES):
        texts = ["nodes", *(listed(row.nodes) for row in rows)]
        lines = [f"{line}  {_cut(text, room)}" for line, text in zip(lines, texts, strict=True)]
    return lines


def _cut(name: str, width: int | None) -> str:
    return name if width is None or len(name) <= width else name[: width - 1] + "…"


def _share(row: DispatchRow) -> float:
    return row.count * (row.before_ns or 0.0)


def summary(report: Report) -> list[str]:
    """Return the last lines: whole models, trials, failures, and where the schedules are."""
    which = "whole model" if len(report.models) == 1 else "whole model {}"
    lines = [f"{which.format(each.model)}: {each.gain}" for each in report.models if each.gain is not None]
    stopped = "stopped after " if report.stopped else ""
    lines.append(
        f"{stopped}{report.session_trials} trials in {report.seconds:.1f} s "
        f"({report.trials_per_second:.1f} trials/s), {report.trials} in the job"
    )
    if report.actions:
        lines.append("  " + ", ".join(f"{count} × {name}" for name, count in report.actions.items()))
        lines.append(f"  left: {report.left or 'nothing that is worth its time'}")
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


__all__ = ["DispatchRow", "ModelReport", "Report", "duration", "lines_of", "listed", "nanoseconds", "summary"]
