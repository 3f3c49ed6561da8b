"""Recorded candidates as the runs of tuning jobs: in tables, and in a database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from numpy.typing import NDArray

from autotune.bench.replay.recording import CandidateRecording
from autotune.database import Database, Key, Latency, Origin, Outcome, Run, WorkloadRow
from autotune.graph.region import Workload
from autotune.target import Target

if TYPE_CHECKING:
    from pandas import DataFrame

_FIRST = 1.7e9
"""When the first run was made, in seconds since 1970; the others follow."""


@dataclass(frozen=True)
class RecordedRuns:
    """``most`` candidates of each recording at most, those of one workload next to each other, its default first."""

    recordings: Sequence[CandidateRecording]
    most: int

    def __len__(self) -> int:
        return len(self.recordings)

    @cached_property
    def _tables(self) -> list[DataFrame]:
        """Return the table of each recording as a cost model learns from it."""
        found = []
        for number, recording in enumerate(self.recordings):
            table = recording.training_table(inside=False)
            keys = recording.today[1]["trace_key"]
            table = table.assign(workload=number, trace_key=keys, created=0.0)
            rest = np.random.default_rng(number).permutation(np.arange(1, len(table)))[: self.most - 1]
            found.append(table.iloc[[0, *sorted(rest)]])
        return found

    @cached_property
    def _all(self) -> DataFrame:
        """All of them, numbered."""
        table = pandas.concat(self._tables, ignore_index=True)
        return table.assign(created=_FIRST + np.arange(len(table)))

    def table(self, workloads: Iterable[int]) -> DataFrame:
        """The runs of some workloads, by their numbers."""
        wanted = self._all["workload"].isin(list(workloads))
        return self._all[wanted].drop(columns=["workload", "trace_key"])

    def dealt(self, workloads: NDArray[np.intp], months: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """The month [n] of each run, -1 for workloads that are not among those given.

        Workloads arrive evenly in the first half, with their defaults; their other runs are spread over the months
        from then on.
        """
        arrives = np.full(len(self), -1)
        arrives[workloads] = np.arange(len(workloads)) * (months // 2) // len(workloads)
        first = arrives[self._all["workload"].to_numpy()]
        month = rng.integers(np.maximum(first, 0), months)
        default = ~self._all["workload"].duplicated().to_numpy()
        found: NDArray[np.intp] = np.where(default | (first < 0), first, month)
        return found

    def shuffled(self, rows: NDArray[np.bool_], rng: np.random.Generator) -> DataFrame:
        """The given runs with each other's latencies, within each workload."""
        table = self._all[rows]
        order = np.concatenate([rng.permutation(mine) for mine in _groups(table)])
        spoilt = table[["outcome", "latency_ns", "ratio", "noise"]].iloc[order]
        return table.assign(**{name: spoilt[name].to_numpy() for name in spoilt})

    def shuffled_of(self, workloads: Iterable[int], rng: np.random.Generator) -> DataFrame:
        """The runs of some workloads with each other's latencies, within each workload."""
        rows = self._all["workload"].isin(list(workloads)).to_numpy()
        return self.shuffled(rows, rng).drop(columns=["workload", "trace_key"])

    @staticmethod
    def joined(one: DataFrame, other: DataFrame) -> DataFrame:
        """Both tables, with the columns of the first."""
        return pandas.concat([one, other[list(one)]], ignore_index=True)

    def store(self, database: Database, rows: NDArray[np.bool_]) -> None:
        """Record the given runs; ratios and noise are for the database to work out."""
        for number, mine in self._all[rows].groupby("workload"):
            recording = self.recordings[number]
            workload = Workload.parse(recording.facts.workload)
            database.add_workload(WorkloadRow.of(workload))
            database.add_target(Target.from_json(recording.facts.target))
            database.add_space(recording.space.key, workload.key, "{}")
            key = Key(workload.key, recording.space.target.key, recording.space.key)
            for run in mine.itertuples():
                database.record(_run(key, run, run.Index == self._all["workload"].eq(number).idxmax()))


def _groups(table: DataFrame) -> list[NDArray[np.intp]]:
    """Positions of the rows of each workload, in order."""
    numbers = table["workload"].to_numpy()
    return [np.flatnonzero(numbers == number) for number in dict.fromkeys(numbers.tolist())]


def _run(key: Key, row: Any, default: bool) -> Run:
    ok = row.outcome == Outcome.OK
    return Run(
        key,
        row.trace_key,
        "[]",
        json.dumps(row.config),
        Outcome(row.outcome),
        Latency(1, row.latency_ns, row.latency_ns, 0.0) if ok else None,
        origin=Origin.DEFAULT if default else Origin.SEARCH,
        created=row.created,
    )


__all__ = ["RecordedRuns"]
