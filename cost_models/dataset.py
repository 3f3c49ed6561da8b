"""From measured runs to rows: features, latencies and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError, KnobError
from cost_models import features
from search_spaces.knob import Config

OK = "ok"
# What a candidate itself got wrong; a timeout or a lost worker says nothing certain about it.
INVALID = frozenset({"illegal", "compile_error", "crashed", "out_of_memory", "out_of_bounds", "wrong_result"})


@dataclass(frozen=True)
class RunRecord:
    """One measured run, as the database gives it; ``latency_ns`` is None unless the outcome is "ok"."""

    workload_text: str
    target_json: str
    space_key: str
    config: Config
    outcome: str
    latency_ns: float | None


@dataclass(frozen=True)
class Dataset:
    """``n`` rows: ``x`` float32 [n, F], ``latency_ns`` float64 [n] (NaN where invalid), ``groups`` int64 [n].

    Group g is one workload on one target: ``workloads[g]`` is the workload's key, ``targets[g]`` the
    target's, ``families[g]`` the family of its space. ``skipped`` counts records that gave no row.
    """

    x: features.Matrix
    latency_ns: NDArray[np.float64]
    groups: NDArray[np.int64]
    workloads: tuple[str, ...]
    targets: tuple[str, ...]
    families: tuple[str, ...]
    skipped: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.x)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which rows have a latency, bool [n]."""
        return ~np.isnan(self.latency_ns)

    def rows_of(self, workloads: Iterable[str]) -> NDArray[np.bool_]:
        """Which rows belong to the given workload keys, bool [n]."""
        wanted = set(workloads)
        of_group = np.asarray([key in wanted for key in self.workloads], dtype=np.bool_)
        return of_group[self.groups] if len(of_group) else np.zeros(0, dtype=np.bool_)

    def take(self, rows: NDArray[np.bool_]) -> Dataset:
        """The given rows; groups keep their numbers."""
        return Dataset(
            self.x[rows],
            self.latency_ns[rows],
            self.groups[rows],
            self.workloads,
            self.targets,
            self.families,
            self.skipped,
        )


def build(records: Iterable[RunRecord]) -> Dataset:
    """Rebuild each workload's space once and extract the features of all its runs together.

    A record is skipped, and counted by reason, where its workload or target cannot be read, its space has
    changed since, or its configuration is no longer legal.
    """
    grouped: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        place = (record.workload_text, record.target_json, record.space_key)
        grouped.setdefault(place, []).append(record)
    skipped: Counter[str] = Counter()
    parts: list[tuple[features.Matrix, NDArray[np.float64]]] = []
    numbers: list[NDArray[np.int64]] = []
    groups: dict[tuple[str, str], tuple[int, str]] = {}
    for (workload, target, space_key), runs in grouped.items():
        rows = _rows(workload, target, space_key, runs, skipped)
        if rows is not None:
            space, x, latency = rows
            of_group = (space.workload.key, space.target.key)
            number, _ = groups.setdefault(of_group, (len(groups), space.family))
            parts.append((x, latency))
            numbers.append(np.full(len(x), number, dtype=np.int64))
    width = len(features.names())
    return Dataset(
        x=np.concatenate([np.zeros((0, width), np.float32), *(x for x, _ in parts)]),
        latency_ns=np.concatenate([np.zeros(0), *(latency for _, latency in parts)]),
        groups=np.concatenate([np.zeros(0, np.int64), *numbers]),
        workloads=tuple(workload for workload, _ in groups),
        targets=tuple(target for _, target in groups),
        families=tuple(family for _, family in groups.values()),
        skipped=dict(skipped),
    )


def _rows(
    workload: str, target: str, space_key: str, runs: Sequence[RunRecord], skipped: Counter[str]
) -> tuple[Any, features.Matrix, NDArray[np.float64]] | None:
    from autotune.graph.region import Workload
    from autotune.target import Target
    from search_spaces.spaces import space_for

    try:
        space = space_for(Workload.parse(workload), Target.from_json(target))
    except AutotuneError:
        skipped["unreadable workload or target"] += len(runs)
        return None
    if space.key != space_key:
        skipped["space has changed"] += len(runs)
        return None
    configs, latency = [], []
    for run in runs:
        known = run.outcome in INVALID or (run.outcome == OK and run.latency_ns is not None)
        if not known:
            skipped[f"outcome {run.outcome}"] += 1
            continue
        try:
            configs.append(space.check(run.config))
        except KnobError:
            skipped["configuration not legal now"] += 1
            continue
        latency.append(np.nan if run.latency_ns is None or run.outcome != OK else run.latency_ns)
    if not configs:
        return None
    return space, features.extract(space, configs), np.asarray(latency, dtype=np.float64)


__all__ = ["INVALID", "OK", "Dataset", "RunRecord", "build"]
