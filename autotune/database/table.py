"""Runs, workloads and comparisons as tables for people, with names of models, layers and targets beside the keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from autotune.database.describe import operators_of, shapes_of
from autotune.database.inside import ALONE_NOISE, INSIDE_NOISE, Estimate, estimates
from autotune.database.overview import overview
from autotune.database.records import RUNS, Origin, Ratio, Run, WorkloadRow
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


def training_table(database: Database) -> pd.DataFrame:
    """Return all runs as a cost model learns from them: texts and configurations that are parsed again.

    ``ratio`` is the latency over the default's: inside a model where it was measured there, interleaved with the
    default, else alone over the default's alone; ``noise`` is the standard deviation of its logarithm.
    """
    texts = {row.key: row.text for row in database.workload_rows()}
    targets = {key: target.to_json() for key, target in database.targets().items()}
    models = {job.id: job.model for job in database.jobs()}
    runs = database.records()
    defaults = _defaults(runs)
    newest = {(run.key, run.trace_key): run.id for run in sorted(runs, key=lambda run: run.created)}
    inside = {key: estimates(database.readings(key)) for key in {run.key for run in runs if run.latency}}
    rows = [
        {
            "workload_text": _of(run, texts, run.key.workload, "workload"),
            "target_json": _of(run, targets, run.key.target, "target"),
            "space_key": run.key.space,
            "config": run.config,
            "outcome": run.outcome.value,
            "latency_ns": run.latency.min_ns if run.latency else math.nan,
            **_label(
                run,
                defaults.get(run.id, math.nan),
                inside.get(run.key, {}),
                replaced=newest[run.key, run.trace_key] != run.id,
            ),
            "model": models.get(run.job, ""),
            "created": run.created,
        }
        for run in runs
    ]
    return pd.DataFrame(rows, columns=[*_TRAINING])


_TRAINING = (
    "workload_text",
    "target_json",
    "space_key",
    "config",
    "outcome",
    "latency_ns",
    "ratio",
    "noise",
    "model",
    "created",
)


def _defaults(runs: Sequence[Run]) -> dict[int | None, float]:
    """Return the latency of the default that each run is compared with, by the run's number: that which was measured
    last before it, as the code of a schedule may have changed since."""
    timed = [run for run in runs if run.origin is Origin.DEFAULT and run.latency is not None]
    latest = {run.key: run.latency_ns for run in reversed(timed)}
    found = {}
    for run in runs:
        if run.origin is Origin.DEFAULT and run.latency is not None:
            latest[run.key] = run.latency_ns
        if run.key in latest:
            found[run.id] = latest[run.key]
    return found


def _label(
    run: Run, default_ns: float, inside: Mapping[str, Estimate], *, replaced: bool
) -> dict[str, float]:
    """Return the label of a run by its measurements: in-model ones count more than the isolated one.

    Where others of its workload were measured in a model, one that was not is no faster than the default, as for the
    job."""
    if run.latency is None:
        return {"ratio": math.nan, "noise": math.nan}
    found = None if replaced else inside.get(run.trace_key)
    if found is not None:
        return {"ratio": found.mean, "noise": INSIDE_NOISE / math.sqrt(found.processes)}
    alone = run.latency.min_ns / default_ns
    return {"ratio": max(1.0, alone) if inside else alone, "noise": ALONE_NOISE}


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


__all__ = ["KNOB", "comparisons_table", "runs_table", "training_table", "workloads_table"]
