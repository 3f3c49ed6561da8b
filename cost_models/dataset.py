"""From measured runs to rows: features, latencies and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.database.inside import ALONE_NOISE
from autotune.errors import AutotuneError, KnobError
from autotune.schedule.knob import Config
from cost_models import features

if TYPE_CHECKING:
    from pandas import DataFrame

    from search_spaces.population import Population
    from search_spaces.space import Space

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
        """Which rows have a latency, bool [n]."""
        return ~np.isnan(self.latency)

    def rows_of(self, workloads: Iterable[str]) -> NDArray[np.bool_]:
        """Which rows belong to the given workload keys, bool [n]."""
        wanted = set(workloads)
        of_group = np.asarray([key in wanted for key in self.workloads], dtype=np.bool_)
        return of_group[self.groups] if len(of_group) else np.zeros(0, dtype=np.bool_)

    def take(self, rows: NDArray[np.bool_]) -> Dataset:
        """The given rows; groups keep their numbers."""
        mine = {name: getattr(self, name)[rows] for name in ("x", "knobs", "latency", "noise", "groups")}
        return replace(self, **mine)


def build(runs: DataFrame) -> Dataset:
    """Rebuild each workload's space once and extract the features of all its runs together.

    ``runs`` has the :data:`COLUMNS`. A run is skipped, and counted by reason, where its workload or target cannot
    be read, its space has changed since, or its configuration is no longer legal.
    """
    skipped: Counter[str] = Counter()
    parts: list[_Rows] = []
    numbers: list[NDArray[np.int64]] = []
    groups: dict[tuple[str, str], tuple[int, str, str]] = {}
    for (workload, target, space_key), mine in runs.reset_index(drop=True).groupby(_GROUPED, sort=False):
        rows = _rows(workload, target, space_key, mine, skipped)
        if rows is not None:
            space = rows.space
            met = str(mine["model"].iloc[0])
            number, *_ = groups.setdefault(
                (space.workload.key, space.target.key), (len(groups), space.family, met)
            )
            parts.append(rows)
            numbers.append(np.full(len(rows.x), number, dtype=np.int64))
    width = len(features.names())
    knobs = sorted({name for rows in parts for name in rows.space.names})
    return Dataset(
        x=np.concatenate([np.zeros((0, width), np.float32), *(rows.x for rows in parts)]),
        knobs=np.concatenate(
            [np.zeros((0, len(knobs)), np.float32), *(rows.population.encoded(knobs) for rows in parts)]
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
class _Rows:
    """The runs of one space."""

    space: Space
    population: Population
    x: features.Matrix
    latency: NDArray[np.float64]
    noise: NDArray[np.float64]


def _rows(workload: str, target: str, space_key: str, runs: DataFrame, skipped: Counter[str]) -> _Rows | None:
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
    kept = runs.loc[list(configs)]
    label = "ratio" if kept["ratio"].notna()[timed[kept.index]].all() else "latency_ns"
    population = space.of(list(configs.values()))
    return _Rows(
        space,
        population,
        features.extract(space, population),
        kept[label].where(timed[kept.index]).to_numpy(np.float64),
        kept["noise"].fillna(ALONE_NOISE).to_numpy(np.float64),
    )


def _checked(space: Space, config: Config) -> Config | None:
    try:
        return space.check(config)
    except KnobError:
        return None


__all__ = ["COLUMNS", "INVALID", "OK", "Dataset", "build"]
