"""Retraining from all measured runs, promoted only when significantly better on workloads that no model has seen."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError
from autotune.suggest import counted
from autotune.target import Target
from autotune.versions import versions_of
from cost_models import dataset, features, folds, gate, objectives
from cost_models.dataset import Dataset
from cost_models.evaluate import Judgement, judge
from cost_models.interval import ConfidenceInterval
from cost_models.manifest import RankerManifest, TrainingSource
from cost_models.ranker import ROUNDS, Ranker, Say, analytic_scores
from cost_models.registry import Registry
from cost_models.serving import ANALYTIC, serving

if TYPE_CHECKING:
    from pandas import DataFrame

    from cost_models.feature_cache import FeatureCache


@dataclass(frozen=True)
class RetrainReport:
    """The outcome of a retraining and its reason.

    ``judged`` has the new model, the one in use (if any) and the analytic one, all on the same workloads, each by a
    model that has not seen it.
    """

    replaced: bool
    reason: str
    runs: int
    workloads: int
    sources: tuple[TrainingSource, ...]
    skipped: Mapping[str, int]
    version: str | None = None
    gain: ConfidenceInterval | None = None
    judged: Mapping[str, Judgement] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, the new model's metrics by family and by model too."""
        plain = ("replaced", "reason", "runs", "workloads", "skipped", "version")
        gain = self.gain and [self.gain.mean, self.gain.low, self.gain.high]
        new = self.judged.get("new")
        return {
            **{name: getattr(self, name) for name in plain},
            "sources": [vars(source) for source in self.sources],
            "gain": gain,
            "judged": {name: found.to_dict() for name, found in self.judged.items()},
            "families": {k: v.to_dict() for k, v in new.split(new.families).items()} if new else {},
            "models": {k: v.to_dict() for k, v in new.split(new.models).items()} if new else {},
        }

    def __str__(self) -> str:
        lines = [
            ("replaced the cost model: " if self.replaced else "kept what was in use: ") + self.reason,
            f"  {counted(self.runs, 'run')} of {counted(self.workloads, 'workload')}",
        ]
        lines += [f"  {name}: {found}" for name, found in self.judged.items()]
        new = self.judged.get("new")
        if new is not None:
            lines += [f"  {name}: {found}" for name, found in new.split(new.families).items()]
        lines += [f"  skipped {counted(count, 'run')}: {why}" for why, count in self.skipped.items()]
        return "\n".join(lines)


def retrain(
    tables: Mapping[str, DataFrame],
    registry: Registry,
    dry_run: bool = False,
    *,
    rounds: int = ROUNDS,
    threads: int | None = None,
    objective: str = objectives.DEFAULT,
    cache: FeatureCache | None = None,
    say: Say = lambda text: None,
) -> RetrainReport:
    """Train on all runs, judge the model on every workload by a member that has not seen it, and promote it only for
    a statistically significant gain (:mod:`cost_models.gate`).

    ``tables``, by the names of the databases that they are of, are as :func:`cost_models.dataset.build` takes them. The
    new model must beat what serves: the version in use, what is built in, or the analytic model. ``dry_run`` writes
    nothing; ``rounds`` are trees, ``threads`` default to the cores that this process may use; ``cache`` knows the
    features of earlier runs; ``say`` hears of the progress. Raises CostModelError for a damaged registry.
    """
    runs, sources = _together(tables)
    say(f"deriving features of {counted(len(runs), 'run')}")
    data = dataset.build(runs, cache)
    valid = data.take(data.valid)
    report = RetrainReport(False, "", len(data), len(set(data.workloads)), sources, data.skipped)
    analytic = judge(analytic_scores(valid.x), valid)
    if len(analytic) < gate.WORKLOADS:
        return replace(report, reason=gate.verdict(analytic, analytic, ANALYTIC).reason)
    dealt = folds.by_workload(data.workloads, f"{registry.versions()}")
    ranker = Ranker.fit(valid, dealt, rounds=rounds, threads=threads, objective=objective, say=say)
    judged = {"new": judge(ranker.held_out(valid), valid), "analytic": analytic}
    now = serving(registry, valid, _targets(runs))
    if now.scores is not None:
        judged["in use"] = judge(now.scores, valid)
    found = gate.verdict(judged["new"], judged.get("in use", analytic), now.name)
    report = replace(report, reason=found.reason + now.note, gain=found.gain, judged=judged)
    if not found.promoted or dry_run:
        return replace(
            report, reason=report.reason + (" (dry run: nothing written)" if found.promoted else "")
        )
    version = registry.add(ranker, _manifest(valid, objective, report))
    registry.promote(version)
    return replace(report, replaced=True, version=version)


def _together(tables: Mapping[str, DataFrame]) -> tuple[DataFrame, tuple[TrainingSource, ...]]:
    """Return the runs of all databases, a run that several have once, and what each gave."""
    import pandas

    sources = tuple(_source(name, table) for name, table in tables.items())
    runs = pandas.concat(list(tables.values()), ignore_index=True)
    same = runs.assign(config=runs["config"].map(lambda config: repr(sorted(config.items()))))
    return runs[~same.duplicated([*dataset.COLUMNS[:5], "latency_ns", "created"])], sources


def _source(name: str, table: DataFrame) -> TrainingSource:
    times = table["created"].dropna()
    ends = [_when(float(end)) for end in (times.min(), times.max())] if len(times) else ["", ""]
    return TrainingSource(name, len(table), *ends)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _targets(runs: DataFrame) -> list[Target]:
    """Return the targets of runs, without those that cannot be read."""
    found = []
    for text in runs["target_json"].unique():
        with suppress(AutotuneError):
            found.append(Target.from_json(text))
    return found


def _manifest(data: Dataset, objective: str, report: RetrainReport) -> RankerManifest:
    return RankerManifest(
        kind="cost-model",
        schema=features.schema(),
        files={},
        rows=len(data),
        targets=tuple(sorted(set(data.targets))),
        sources=report.sources,
        latency_range=(float(data.latency.min()), float(data.latency.max())),
        objective=objective,
        metrics={name: found.to_dict() for name, found in report.judged.items()},
        reason=report.reason,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions_of(("autotune", "numpy", "xgboost", "xgboost-cpu")),
    )


__all__ = ["ANALYTIC", "RetrainReport", "retrain"]
