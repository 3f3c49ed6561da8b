"""Retraining from all measured runs, promoted only when better on workloads that no model has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotune.errors import CostModelError
from cost_models import dataset, features
from cost_models.dataset import Dataset
from cost_models.evaluate import Metrics, by_family, evaluate, split
from cost_models.manifest import ModelManifest
from cost_models.ranker import Ranker, analytic_scores
from cost_models.registry import CostModel, Registry

if TYPE_CHECKING:
    from pandas import DataFrame

MIN_RUNS = 32
_TOP5_SLACK = 0.005


@dataclass(frozen=True)
class RetrainReport:
    """What a retraining did and why; all metrics are on the same held-out runs."""

    replaced: bool
    reason: str
    runs: int
    workloads: int
    held_out: int
    skipped: Mapping[str, int]
    version: str | None = None
    new: Metrics | None = None
    old: Metrics | None = None
    analytic: Metrics | None = None
    families: Mapping[str, Metrics] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            ("replaced the cost model: " if self.replaced else "kept what was in use: ") + self.reason,
            f"  {self.runs} runs of {self.workloads} workloads, {self.held_out} of them held out",
        ]
        named = (("new", self.new), ("old", self.old), ("analytic", self.analytic))
        lines += [f"  {name}: {metrics}" for name, metrics in named if metrics is not None]
        lines += [f"  {family}: {metrics}" for family, metrics in self.families.items()]
        lines += [f"  skipped {count} runs: {why}" for why, count in self.skipped.items()]
        return "\n".join(lines)


def retrain(
    runs: DataFrame,
    registry_dir: Path | str,
    dry_run: bool = False,
    *,
    rounds: int = 150,
    threads: int | None = None,
) -> RetrainReport:
    """Train on all runs but those of held-out workloads, compare, and promote the better model.

    ``runs`` is a table as :func:`cost_models.dataset.build` takes it. The first model must beat the analytic
    one, a later one the model in use, on held-out workloads that neither was trained on. ``dry_run`` writes
    nothing; ``rounds`` are trees, ``threads`` default to the cores that this process may use. Raises
    CostModelError for a damaged registry.
    """
    registry = Registry(Path(registry_dir))
    data = dataset.build(runs)
    old, note = _in_use(registry)
    keys = set(data.workloads)
    seen = set(old.manifest.trained_on) if old else set()
    train_keys, held = split(keys)
    if int(data.valid.sum()) < MIN_RUNS or not held:
        why = (
            f"too little to learn from: {int(data.valid.sum())} valid runs of {len(keys)} workloads, "
            f"needed {MIN_RUNS} runs of 2 workloads"
        )
        return RetrainReport(False, why, len(data), len(keys), len(held), data.skipped)
    train = data.take(data.rows_of(train_keys))
    try:
        ranker = _fit(train, rounds, threads)
    except CostModelError as error:
        return RetrainReport(False, str(error), len(data), len(keys), len(held), data.skipped)
    test = data.take(data.rows_of(held - seen) & data.valid)
    new_scores = ranker.predict(test.x)
    new = _metrics(new_scores, test)
    before = _metrics(old.ranker.predict(test.x), test) if old else None
    analytic = _metrics(analytic_scores(test.x), test)
    better, reason = _verdict(new, before, analytic)
    version = None
    if better and not dry_run and new is not None:
        version = registry.add(ranker, _manifest(train, train_keys, new))
        registry.promote(version)
    if better and dry_run:
        reason += " (dry run: nothing written)"
    return RetrainReport(
        replaced=version is not None,
        reason=reason + note,
        runs=len(data),
        workloads=len(keys),
        held_out=len(held),
        skipped=data.skipped,
        version=version,
        new=new,
        old=before,
        analytic=analytic,
        families=by_family(new_scores, test),
    )


def _in_use(registry: Registry) -> tuple[CostModel | None, str]:
    name = registry.current()
    if name is None:
        return None, ""
    if registry.manifest(name).schema != features.schema():
        return None, f" ({name} reads features of another version and was not compared)"
    return registry.load(name), ""


def _fit(train: Dataset, rounds: int, threads: int | None) -> Ranker:
    ok = train.valid
    return Ranker.fit(train.x[ok], train.latency_ns[ok], train.groups[ok], rounds=rounds, threads=threads)


def _metrics(scores: np.ndarray[tuple[int], np.dtype[np.float32]], test: Dataset) -> Metrics | None:
    return evaluate(scores, test.latency_ns, test.groups)


def _verdict(new: Metrics | None, old: Metrics | None, analytic: Metrics | None) -> tuple[bool, str]:
    """Better means more top-1 (what tuning gains from) and no real loss of top-5."""
    if new is None:
        return False, "no held-out workload that both models have not seen has two runs"
    name, before = ("the model in use", old) if old is not None else ("the analytic model", analytic)
    if before is None:
        return False, "nothing to compare with"
    facts = (
        f"top-1 {new.top1:.3f} against {before.top1:.3f} of {name}, "
        f"top-5 {new.top5:.3f} against {before.top5:.3f}, "
        f"pairwise {new.pairwise:.3f} against {before.pairwise:.3f}"
    )
    gained = (new.top1 + new.top5, new.pairwise) > (before.top1 + before.top5, before.pairwise)
    better = gained and new.top5 >= before.top5 - _TOP5_SLACK
    return better, ("better on held-out workloads: " if better else "not better: ") + facts


def _manifest(train: Dataset, keys: frozenset[str], metrics: Metrics) -> ModelManifest:
    import xgboost

    latency = train.latency_ns[train.valid]
    return ModelManifest(
        kind="cost-model",
        schema=features.schema(),
        files={},
        rows=len(train),
        trained_on=tuple(sorted(keys)),
        targets=tuple(sorted(set(train.targets))),
        latency_range_ns=(float(latency.min()), float(latency.max())),
        metrics=metrics.to_dict(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        xgboost=xgboost.__version__,
    )


__all__ = ["MIN_RUNS", "RetrainReport", "retrain"]
