"""From measured runs to rows: features, latencies and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError, KnobError
from autotune.schedule.knob import Config
from cost_models import features

if TYPE_CHECKING:
    from pandas import DataFrame

    from search_spaces.space import Space

OK = "ok"
# What a candidate itself got wrong; a timeout or a lost worker says nothing certain about it.
INVALID = frozenset({"illegal", "compile_error", "crashed", "out_of_memory", "out_of_bounds", "wrong_result"})


_GROUPED = ["workload_text", "target_json", "space_key"]
COLUMNS = (*_GROUPED, "config", "outcome", "latency_ns")
"""Columns of a table of measured runs: ``config`` holds dictionaries of knob values, ``latency_ns`` is missing
unless the outcome is "ok"."""


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


def build(runs: DataFrame) -> Dataset:
    """Rebuild each workload's space once and extract the features of all its runs together.

    ``runs`` has the :data:`COLUMNS`. A run is skipped, and counted by reason, where its workload or target cannot
    be read, its space has changed since, or its configuration is no longer legal.
    """
    skipped: Counter[str] = Counter()
    parts: list[tuple[features.Matrix, NDArray[np.float64]]] = []
    numbers: list[NDArray[np.int64]] = []
    groups: dict[tuple[str, str], tuple[int, str]] = {}
    for (workload, target, space_key), mine in runs.reset_index(drop=True).groupby(_GROUPED, sort=False):
        rows = _rows(workload, target, space_key, mine, skipped)
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
        skipped=dict(+skipped),
    )


def _rows(
    workload: str, target: str, space_key: str, runs: DataFrame, skipped: Counter[str]
) -> tuple[Space, features.Matrix, NDArray[np.float64]] | None:
    from autotune.graph.program import ProgramWorkload, parse_workload
    from autotune.target import Target
    from search_spaces.spaces import space_for

    try:
        parsed = parse_workload(workload)
        if isinstance(parsed, ProgramWorkload):
            skipped["a user's program"] += len(runs)
            return None
        space = space_for(parsed, Target.from_json(target))
    except AutotuneError:
        skipped["unreadable workload or target"] += len(runs)
        return None
    if space.key != space_key:
        skipped["space has changed"] += len(runs)
        return None
    timed = (runs["outcome"] == OK) & runs["latency_ns"].notna()
    known = timed | runs["outcome"].isin(INVALID)
    for outcome, count in runs["outcome"][~known].value_counts().items():
        skipped[f"outcome {outcome}"] += count
    configs = {
        row: checked for row, config in runs["config"][known].items() if (checked := _checked(space, config))
    }
    skipped["configuration not legal now"] += int(known.sum()) - len(configs)
    if not configs:
        return None
    latency = runs["latency_ns"].where(timed)[list(configs)]
    return space, features.extract(space, list(configs.values())), latency.to_numpy(np.float64)


def _checked(space: Space, config: Config) -> Config | None:
    try:
        return space.check(config)
    except KnobError:
        return None


__all__ = ["COLUMNS", "INVALID", "OK", "Dataset", "build"]
