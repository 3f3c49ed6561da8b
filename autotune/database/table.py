"""Runs, workloads and comparisons as tables for people, with names of models, layers and targets beside the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from autotune.database.describe import operators_of, shapes_of
from autotune.database.overview import overview
from autotune.database.records import RUNS, Ratio, Run, WorkloadRow
from autotune.database.rows import ADVICE
from autotune.errors import DatabaseError

if TYPE_CHECKING:
    from autotune.database.store import Database

T = TypeVar("T")

KNOB = "knob."
"""The prefix of the columns of knobs."""


def runs_table(database: Database, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the table that :meth:`autotune.Database.runs` describes."""
    workloads = {row.key: _described(row) for row in database.workload_rows()}
    targets = {key: target.name for key, target in database.targets().items()}
    models, layers = {job.id: job.model for job in database.jobs()}, database.layers()
    rows = [
        {
            "id": run.id,
            "created": pd.Timestamp(run.created, unit="s", tz="UTC"),
            "model": models.get(run.job, ""),
            "layer": ", ".join(layers.get((run.job, run.key.workload), ())),
            **_of(run, workloads, run.key.workload, "workload"),
            "target": _of(run, targets, run.key.target, "target"),
            **RUNS.shown_row(run, provenance=False),
        }
        for run in runs
    ]
    frame = pd.DataFrame(rows, columns=[*_COLUMNS]).astype(_COLUMNS)
    frame["gflops"] = frame["flops"] / frame["latency_ns"]
    return pd.concat([frame, _knobs(runs), _provenance(runs)], axis=1)


def _of(run: Run, known: Mapping[str, T], key: str, what: str) -> T:
    if key not in known:
        raise DatabaseError(f"run {run.id} refers to a missing {what}{ADVICE}")
    return known[key]


def workloads_table(database: Database) -> pd.DataFrame:
    """Return the table that :meth:`autotune.Database.workloads` describes."""
    rows = [
        {
            **row,
            "workload_key": row["key"],
            **{name: ", ".join(row[name]) for name in ("models", "layers")},
            "target": row["target"] or "",
            **_interval(row["ratio"]),
        }
        for row in overview(database)
    ]
    return pd.DataFrame(rows, columns=[*_OF_WORKLOADS]).astype(_OF_WORKLOADS)


def comparisons_table(database: Database) -> pd.DataFrame:
    """Return the table that :meth:`autotune.Database.comparisons` describes."""
    workloads = {row.key: _described(row) for row in database.workload_rows()}
    targets = {key: target.name for key, target in database.targets().items()}
    rows = [
        {
            **vars(found),
            "created": pd.Timestamp(found.created, unit="s", tz="UTC"),
            "site": site,
            "median_ns": found.latency.median_ns if found.latency else None,
            **_interval(found.ratio),
            **workloads.get(workload, {}),
            "target": targets.get(target, ""),
            "workload_key": workload,
            "target_key": target,
        }
        for workload, target, site, found in database.all_comparisons()
    ]
    return pd.DataFrame(rows, columns=[*_OF_COMPARISONS]).astype(_OF_COMPARISONS)


def _interval(ratio: Ratio | None) -> dict[str, float | None]:
    low, high = (ratio.interval if ratio else None) or (None, None)
    return {"ratio": ratio.median if ratio else None, "ratio_low": low, "ratio_high": high}


_COLUMNS = {
    "id": "int64",
    "created": "datetime64[us, UTC]",
    **dict.fromkeys(("model", "layer", "kind", "operators", "shapes", "target"), "str"),
    **RUNS.shown(provenance=False),
    "gflops": "float64",
    "flops": "int64",
    "bytes": "int64",
}
"""The columns that every table of runs has, and their types."""

_RATIOS = dict.fromkeys(("ratio", "ratio_low", "ratio_high"), "float64")
_OF_WORKLOADS = {
    **dict.fromkeys(("workload_key", "kind", "operators", "shapes", "models", "layers", "target"), "str"),
    "runs": "int64",
    **dict.fromkeys(("default_ns", "best_ns", "gflops"), "float64"),
    **_RATIOS,
    "flops": "int64",
    "bytes": "int64",
}
_OF_COMPARISONS = {
    "created": "datetime64[us, UTC]",
    **dict.fromkeys(("inside", "site", "name"), "str"),
    "won": "bool",
    "median_ns": "float64",
    **_RATIOS,
    "error": "float64",
    **dict.fromkeys(("message", "kind", "operators", "shapes", "target"), "str"),
    **dict.fromkeys(("workload_key", "target_key", "key"), "str"),
}
"""Columns and types of the other tables."""


def _described(row: WorkloadRow) -> dict[str, Any]:
    shown = {"kind": row.kind, "operators": operators_of(row.text), "shapes": shapes_of(row.text)}
    return {**shown, "flops": row.flops, "bytes": row.bytes}


def _knobs(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a column for each knob that any of the runs has; missing where a run's space does not have it."""
    configs = [run.config for run in runs]
    names = sorted({name for config in configs for name in config})
    columns = {KNOB + name: _column([config.get(name) for config in configs]) for name in names}
    return pd.DataFrame(columns, index=range(len(runs)))


def _column(values: Sequence[object]) -> pd.api.extensions.ExtensionArray:
    """Return one type for all values of a knob: whole numbers, truth values, or else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return pd.array(values, dtype="Int64")
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    return pd.array([None if value is None else str(value) for value in values], dtype="str")


def _provenance(runs: Sequence[Run]) -> pd.DataFrame:
    types = RUNS.shown(provenance=True)
    rows = [RUNS.shown_row(run, provenance=True) for run in runs]
    return pd.DataFrame(rows, columns=[*types]).astype(types)


__all__ = ["KNOB", "comparisons_table", "runs_table", "workloads_table"]
