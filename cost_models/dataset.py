"""From measured runs to rows: features, latencies and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.database.inside import ALONE_NOISE
from cost_models import features
from cost_models.derived import Derived, NotDerived, derive

if TYPE_CHECKING:
    from pandas import DataFrame

    from cost_models.feature_cache import FeatureCache

OK = "ok"
# What a candidate itself got wrong; a timeout or a lost worker says nothing certain about it.
INVALID = frozenset({"illegal", "compile_error", "crashed", "out_of_memory", "out_of_bounds", "wrong_result"})


_GROUPED = ["workload_text", "target_json", "space_key"]
COLUMNS = (*_GROUPED, "config", "outcome", "latency_ns", "ratio", "noise", "model", "created")
"""Columns of a table of measured runs: ``config`` holds dictionaries of knob values, ``latency_ns`` is missing unless
the outcome is "ok". ``ratio`` is the latency over that of the default, of the readings that say most (missing where the
default was not read), ``noise`` the standard deviation of its logarithm; ``model`` is where the workload was met, and
``created`` in seconds since 1970."""


@dataclass(frozen=True)
class Dataset:
    """``n`` rows: ``x`` float32 [n, F], ``latency`` float64 [n] (NaN where invalid), ``groups`` int64 [n].

    Group g is one workload on one target: ``workloads[g]`` is the workload's key, ``targets[g]`` the target's,
    ``families[g]`` the family of its space, ``models[g]`` where it was met. Latencies are over the default's, or in
    ns in a group whose default is unknown: only those of one group compare. ``noise`` [n] is the standard deviation of
    their logarithms. ``knobs`` [n, K] are the encoded values of all knobs by name, NaN where a space has none.
    ``skipped`` counts records that gave no row.
    """

    x: features.Matrix
    knobs: features.Matrix
    latency: NDArray[np.float64]
    noise: NDArray[np.float64]
    groups: NDArray[np.int64]
    workloads: tuple[str, ...]
    targets: tuple[str, ...]
    families: tuple[str, ...]
    models: tuple[str, ...]
    skipped: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.x)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Return which rows have a latency, bool [n]."""
        return ~np.isnan(self.latency)

    def rows_of(self, workloads: Iterable[str]) -> NDArray[np.bool_]:
        """Return which rows belong to the given workload keys, bool [n]."""
        wanted = set(workloads)
        of_group = np.asarray([key in wanted for key in self.workloads], dtype=np.bool_)
        return of_group[self.groups] if len(of_group) else np.zeros(0, dtype=np.bool_)

    def take(self, rows: NDArray[np.bool_]) -> Dataset:
        """Return the given rows; groups keep their numbers."""
        mine = {name: getattr(self, name)[rows] for name in ("x", "knobs", "latency", "noise", "groups")}
        return replace(self, **mine)


def build(runs: DataFrame, cache: FeatureCache | None = None) -> Dataset:
    """Return the features of all runs, each workload's together; those of runs that ``cache`` knows are read back.

    ``runs`` has the :data:`COLUMNS`. A run is skipped, and counted by reason, where its workload or target cannot
    be read, its space has changed since, or its configuration is no longer legal.
    """
    skipped: Counter[str] = Counter()
    parts: list[_LegalRuns] = []
    numbers: list[NDArray[np.int64]] = []
    groups: dict[tuple[str, str], tuple[int, str, str]] = {}
    for (workload, target, space_key), mine in runs.reset_index(drop=True).groupby(_GROUPED, sort=False):
        rows = _rows(workload, target, space_key, mine, skipped, cache)
        if rows is not None:
            of = rows.derived
            met = str(mine["model"].iloc[0])
            number, *_ = groups.setdefault((of.workload, of.target), (len(groups), of.family, met))
            parts.append(rows)
            numbers.append(np.full(len(of), number, dtype=np.int64))
    if cache is not None:
        cache.trim()
    width = len(features.names())
    knobs = sorted({name for rows in parts for name in rows.derived.knobs})
    return Dataset(
        x=np.concatenate([np.zeros((0, width), np.float32), *(rows.derived.x for rows in parts)]),
        knobs=np.concatenate(
            [np.zeros((0, len(knobs)), np.float32), *(rows.derived.knobs_as(knobs) for rows in parts)]
        ),
        latency=np.concatenate([np.zeros(0), *(rows.latency for rows in parts)]),
        noise=np.concatenate([np.zeros(0), *(rows.noise for rows in parts)]),
        groups=np.concatenate([np.zeros(0, np.int64), *numbers]),
        workloads=tuple(workload for workload, _ in groups),
        targets=tuple(target for _, target in groups),
        families=tuple(family for _, family, _ in groups.values()),
        models=tuple(met for _, _, met in groups.values()),
        skipped=dict(+skipped),
    )


@dataclass(frozen=True)
class _LegalRuns:
    """The runs of one space whose configurations are legal."""

    derived: Derived
    latency: NDArray[np.float64]
    noise: NDArray[np.float64]


def _rows(
    workload: str,
    target: str,
    space_key: str,
    runs: DataFrame,
    skipped: Counter[str],
    cache: FeatureCache | None,
) -> _LegalRuns | None:
    timed = (runs["outcome"] == OK) & runs["latency_ns"].notna()
    known = timed | runs["outcome"].isin(INVALID)
    find = derive if cache is None else cache.derived
    try:
        found = find(workload, target, space_key, runs["config"][known].tolist())
    except NotDerived as error:
        skipped[str(error)] += len(runs)
        return None
    for outcome, count in runs["outcome"][~known].value_counts().items():
        skipped[f"outcome {outcome}"] += count
    skipped["configuration not legal now"] += int((~found.legal).sum())
    if not found.legal.any():
        return None
    kept, timed = runs[known][found.legal], timed[known][found.legal]
    label = "ratio" if kept["ratio"].notna()[timed].all() else "latency_ns"
    return _LegalRuns(
        found.take(found.legal),
        kept[label].where(timed).to_numpy(np.float64),
        kept["noise"].fillna(ALONE_NOISE).to_numpy(np.float64),
    )


__all__ = ["COLUMNS", "INVALID", "OK", "Dataset", "build"]
