"""Rankings of candidates judged beside each other on workloads, and on models, that they have not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from autotune.bench.replay import recording
from autotune.bench.tables import NOTHING, Table
from autotune.database.opening import DatabaseLike, opened
from autotune.database.training import training_table
from cost_models import booster as boosters
from cost_models import contenders, dataset, folds
from cost_models.dataset import Dataset
from cost_models.evaluate import Judgement, judge
from cost_models.feature_cache import FeatureCache
from cost_models.interval import ConfidenceInterval

Say = Callable[[str], None]
_SHOWN = {"pairwise": "pairwise", "top1": "top-1", "top5": "top-5", "regret": "regret"}


@dataclass(frozen=True)
class Evaluation:
    """Scores of valid runs by the name of what gave them, each by a model that has not seen the row's fold; ``by`` says
    what the folds are of."""

    by: str
    data: Dataset
    scores: Mapping[str, boosters.Scores]

    @cached_property
    def judged(self) -> dict[str, Judgement]:
        """Return the judgement of each method."""
        return {name: judge(scores, self.data) for name, scores in self.scores.items()}

    def table(self) -> Table:
        """A row each."""
        return _table(f"Held out by {self.by}", self.judged)

    def tables_of(self, name: str) -> list[Table]:
        """One of them by family, by target and by model."""
        found = self.judged[name]
        targets = {
            target[:12]: judge(self.scores[name][rows], self.data.take(rows))
            for target in sorted(set(self.data.targets))
            for rows in [np.asarray([t == target for t in self.data.targets])[self.data.groups]]
        }
        return [
            _table(f"{name} by family", found.split(found.families)),
            _table(f"{name} by model", found.split(found.models)),
            _table(f"{name} by target", targets),
        ]

    def to_json(self) -> dict[str, Any]:
        """The numbers, and by family and model."""
        return {
            "held out by": self.by,
            "judged": {
                name: {
                    **found.to_dict(),
                    "families": {k: v.to_dict() for k, v in found.split(found.families).items()},
                    "models": {k: v.to_dict() for k, v in found.split(found.models).items()},
                }
                for name, found in self.judged.items()
            },
        }


def _table(title: str, judged: Mapping[str, Judgement]) -> Table:
    rows = tuple(
        (
            name,
            str(len(found)),
            str(found.rows.sum()),
            *(_shown(found.interval(measure)) for measure in _SHOWN),
        )
        for name, found in judged.items()
    )
    return Table(title, ("", "workloads", "runs", *_SHOWN.values()), rows)


def _shown(found: ConfidenceInterval) -> str:
    if np.isnan(found.mean):
        return NOTHING
    return f"{found.mean:.3f}" if found.low == found.high else str(found)


def read(databases: Sequence[DatabaseLike], recordings: Sequence[Path], inside: bool) -> Dataset:
    """The valid runs of databases and of folders of recordings (:mod:`autotune.bench.replay`)."""
    tables = []
    for database in databases:
        with opened(database, read_only=True) as store:
            tables.append(training_table(store))
    tables += [recording.training_table(folder, inside=inside) for folder in recordings]
    data = dataset.build(pandas.concat(tables, ignore_index=True), FeatureCache.of_user())
    return data.take(data.valid)


def evaluate(data: Dataset, names: Sequence[str], *, say: Say, rounds: int) -> list[Evaluation]:
    """Judge rankings on workloads and, where there are several, on models that they have not seen."""
    splits = {"workload": folds.by_workload(data.workloads, "")}
    if len(set(data.models)) > 1:
        splits["model"] = folds.by_model(dict(zip(data.workloads, data.models, strict=True)))
    return [
        Evaluation(by, data, contenders.scores(data, dealt, names, rounds=rounds, say=say))
        for by, dealt in splits.items()
    ]


__all__ = ["Evaluation", "evaluate", "read"]
