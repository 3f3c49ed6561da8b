"""Measured runs as a cost model learns from them: of a large database a sample that fits into memory.

A model ranks the candidates of workloads that it has not seen, and each workload counts alike when it is judged. Hence
the sample leaves out runs of the workloads that have the most, and no workload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from sqlalchemy.engine import Connection

from autotune.database import rows, statements
from autotune.database.inside import ALONE_NOISE, INSIDE_NOISE, Estimate, estimates
from autotune.database.records import Key, Origin, Run
from autotune.database.rows import ADVICE
from autotune.errors import DatabaseError

if TYPE_CHECKING:
    from autotune.database.store import Database

MOST = 1 << 18
"""So many runs of a database are learnt from at most, beside defaults: their features take 150 MB."""
_LEAST = 2
"""Of each workload, target and space there are so many at least: one says nothing."""
_NUMBERS = 500
"""Numbers of runs in a query, of which SQLite takes only so many."""


@dataclass(frozen=True)
class _Labelled:
    """A run as it is learnt from: ``row`` has the columns that are its own."""

    id: int
    key: Key
    row: Mapping[str, Any]


def training_table(
    database: Database, *, most: int = MOST, say: Callable[[str], None] = lambda text: None
) -> pd.DataFrame:
    """Return runs in the order in which they were stored, with texts and configurations that are parsed again.

    Of each workload, target and space at most an equal share of ``most`` is learnt from, at least two; which ones
    follows from the hashes of their schedules: they are spread as all are, and a later retraining sees them again.
    Defaults are always learnt from. ``say`` hears of what is left out.

    ``ratio`` is the latency over the default's: inside a model where it was measured there, interleaved with the
    default, else alone over the default's alone; ``noise`` is the standard deviation of its logarithm.
    """
    texts = {row.key: row.text for row in database.workload_rows()}
    targets = {key: target.to_json() for key, target in database.targets().items()}
    models = {job.id: job.model for job in database.jobs()}
    found = database.session.read(lambda connection: _sample(connection, most, models, say))
    found.sort(key=lambda one: one.id)
    table = pd.DataFrame([one.row for one in found], columns=[*_COLUMNS[3:]])
    keys = [one.key for one in found]
    table.insert(0, "workload_text", [_known(key.workload, texts, "workload") for key in keys])
    table.insert(1, "target_json", [_known(key.target, targets, "target") for key in keys])
    table.insert(2, "space_key", [key.space for key in keys])
    return table


_COLUMNS = (
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


def _sample(
    connection: Connection, most: int, models: Mapping[str, str], say: Callable[[str], None]
) -> list[_Labelled]:
    """Return the runs that are learnt from, key by key."""
    keys = list(_keys(connection))
    limit = max(_LEAST, most // max(1, len(keys)))
    found, cut = [], 0
    for key in keys:
        of_key = list(_of_key(connection, key, limit, models))
        found += of_key
        cut += len(of_key) >= limit
    if cut:
        say(
            f"at most {limit} runs of a workload on a target are learnt from, which {cut} of {len(keys)} have"
        )
    return found


def _keys(connection: Connection) -> Iterator[Key]:
    """Yield all keys that have runs, each found from the one before by an index: to go through all runs of a large
    database takes minutes."""
    last = Key("", "", "")
    while row := connection.execute(statements.select_next_key(), statements.parameters(last)).first():
        last = Key(row.workload_key, row.target_key, row.space_key)
        yield last


def _known(key: str, known: Mapping[str, str], what: str) -> str:
    if key not in known:
        raise DatabaseError(f"a run refers to a missing {what}{ADVICE}")
    return known[key]


def _of_key(connection: Connection, key: Key, limit: int, models: Mapping[str, str]) -> Iterator[_Labelled]:
    """Yield the runs of a key that are learnt from, with their labels."""
    values = statements.parameters(key)
    sample = connection.execute(statements.select_sample(), {**values, "count": limit}).all()
    defaults = connection.execute(statements.select_defaults(), values).all()
    stored = {row.id: rows.from_row(row) for row in (*sample, *defaults)}
    runs = [stored[number] for number in sorted(stored)]
    newest = {run.trace_key: run.id for run in sorted(runs, key=lambda run: run.created)}
    defaults_ns = _defaults(runs)
    inside = _inside(
        connection, [run.id or 0 for run in runs if run.latency and newest[run.trace_key] == run.id]
    )
    read_inside = (
        bool(inside) or connection.execute(statements.select_any_reading(), values).first() is not None
    )
    for run in runs:
        estimate = inside.get(run.trace_key) if newest[run.trace_key] == run.id else None
        label = _label(run, defaults_ns.get(run.id, math.nan), estimate, read_inside)
        yield _Labelled(run.id or 0, key, {**_row(run), **label, "model": models.get(run.job, "")})


def _inside(connection: Connection, numbers: Sequence[int]) -> dict[str, Estimate]:
    """Return the in-model measurements of runs, by the keys of their traces."""
    query = statements.select_readings_of()
    found = [
        rows.reading_from_row(row)
        for first in range(0, len(numbers), _NUMBERS)
        for row in connection.execute(query, {"numbers": numbers[first : first + _NUMBERS]})
    ]
    return estimates(found)


def _row(run: Run) -> dict[str, Any]:
    return {
        "config": run.config,
        "outcome": run.outcome.value,
        "latency_ns": run.latency.min_ns if run.latency else math.nan,
        "created": run.created,
    }


def _defaults(runs: Sequence[Run]) -> dict[int | None, float]:
    """Return the latency of the default that each run of a key is compared with, by the run's number: that which was
    measured last before it, as the code of a schedule may have changed since."""
    timed = [run for run in runs if run.origin is Origin.DEFAULT and run.latency is not None]
    latest = timed[0].latency_ns if timed else None
    found = {}
    for run in runs:
        if run.origin is Origin.DEFAULT and run.latency is not None:
            latest = run.latency_ns
        if latest is not None:
            found[run.id] = latest
    return found


def _label(run: Run, default_ns: float, estimate: Estimate | None, read_inside: bool) -> dict[str, float]:
    """Return the label of a run by its measurements: in-model ones count more than the isolated one.

    Where others of its workload were measured in a model, one that was not is no faster than the default, as for the
    job."""
    if run.latency is None:
        return {"ratio": math.nan, "noise": math.nan}
    if estimate is not None:
        return {"ratio": estimate.mean, "noise": INSIDE_NOISE / math.sqrt(estimate.processes)}
    alone = run.latency.min_ns / default_ns
    return {"ratio": max(1.0, alone) if read_inside else alone, "noise": ALONE_NOISE}


__all__ = ["MOST", "training_table"]
