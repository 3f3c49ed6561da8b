"""Tables of the tuning database; the columns of runs follow from :class:`autotune.database.records.Run`.

Changing a column means raising VERSION, and OLDEST unless older databases can be brought up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.engine import Connection
from sqlalchemy.types import TypeEngine

from autotune.database.columns import StoredColumn
from autotune.database.records import RUNS

_TABLES = 17
"""The version that changed a table last, other than by a column of runs."""
VERSION = max(_TABLES, *(column.since for column in RUNS.columns))
"""Version of the schema that this code writes.

Version 2 added contests, version 3 verdicts, version 4 layers; version 5 has comparisons in the place of contests and
verdicts; version 6 added readings, versions 7 and 9 the footprints of runs, version 8 plans, version
10 the keys of readings and the indexes by which a database of a million runs answers, version 11 placements, version 12
the code of runs: a schedule that gives other code is measured again, and both runs stay; since version 13 comparisons
have placements, too; since version 14 they and readings have the load beside which they were measured, and there are no
plans; since version 15 jobs have what they say of themselves and their report; version 16 added the index of
comparisons by job, and outcomes to that of runs; since version 17 readings have their host. An older database is
brought up to date when it is opened to write.
"""
OLDEST = 1
"""The oldest version that this code can bring up to date."""
READABLE = 17
"""The oldest version that this code reads as it is: later ones, if there are any, differ from it by indexes alone."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

workloads = Table(
    "workloads",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("text", Text, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("flops", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

targets = Table(
    "targets",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("json", Text, nullable=False),
)

spaces = Table(
    "spaces",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("workload_key", ForeignKey("workloads.key"), nullable=False, index=True),
    Column("json", Text, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("fingerprint", String(64), nullable=False, index=True),
    Column("model", Text, nullable=False),
    Column("target_key", ForeignKey("targets.key"), nullable=False),
    Column("options", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("elapsed_s", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("status", Text, nullable=False, server_default=""),
    Column("report", Text, nullable=False, server_default=""),
)
"""``status`` is what a job last said of itself, ``report`` its result so far: both JSON, empty before the first.

The report stands last: lists do without it, and SQLite reads a row only as far as it must.
"""


def _type_of(sql: str) -> TypeEngine[Any]:
    name, _, length = sql.removesuffix(")").partition("(")
    if length:
        return String(int(length))
    kinds: dict[str, TypeEngine[Any]] = {
        "text": Text(),
        "integer": Integer(),
        "bigint": BigInteger(),
        "float": Float(),
    }
    return kinds[name]


def column_of(declared: StoredColumn) -> Column[Any]:
    """Return the column that a field of a record declares."""
    kinds = (ForeignKey(declared.refers),) if declared.refers else (_type_of(declared.sql),)
    return Column(declared.name, *kinds, nullable=declared.nullable)


_DEFAULTS = text("origin = 'default'")
_OF_DEFAULTS = Index(
    "defaults",
    "workload_key",
    "target_key",
    "space_key",
    "outcome",
    "latency_min_ns",
    sqlite_where=_DEFAULTS,
)


@event.listens_for(_OF_DEFAULTS, "before_create")
def _without_others(index: Index, connection: Connection, **_: object) -> None:
    """Leave other runs out of an index on a server, too: named above it would load what only a server needs."""
    if connection.dialect.name == "postgresql":
        index.dialect_options["postgresql"]["where"] = _DEFAULTS


runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    *map(column_of, RUNS.columns),
    UniqueConstraint("workload_key", "target_key", "space_key", "trace_key", "code", name="one_run_each"),
    Index("fastest", "workload_key", "target_key", "space_key", "outcome", "latency_min_ns"),
    Index("ended", "job", "outcome"),
    _OF_DEFAULTS,
)

comparisons = Table(
    "comparisons",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workload_key", ForeignKey("workloads.key"), nullable=False),
    Column("target_key", ForeignKey("targets.key"), nullable=False),
    Column("site", String(16), nullable=False),
    Column("name", String(64), nullable=False),
    Column("key", String(64), nullable=False),
    Column("run_id", ForeignKey("runs.id"), index=True),
    Column("won", Boolean, nullable=False),
    Column("latency_min_ns", Float),
    Column("latency_median_ns", Float),
    Column("latency_spread_ns", Float),
    Column("n", Integer, nullable=False),
    Column("ratio", Float),
    Column("ratio_low", Float),
    Column("ratio_high", Float),
    Column("error", Float),
    Column("message", Text, nullable=False),
    Column("detail", Text, nullable=False, server_default=""),
    Column("load", Float, nullable=False, server_default="0"),
    Column("inside", Text, nullable=False),
    Column("job", ForeignKey("jobs.id")),
    Column("created", Float, nullable=False),
    UniqueConstraint("workload_key", "target_key", "site", "name", "created", name="one_row_each"),
    Index("compared", "workload_key", "target_key", "site", "key", "won"),
    Index("compared_by", "job"),
)
"""A row a candidate; those that were compared with each other have the same time ``created``, and one has ``won``.

A run whose row has no latency ended its process inside the model, in a comparison or, in a row alone, in a search.
"""

readings = Table(
    "readings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("workload_key", ForeignKey("workloads.key"), nullable=False),
    Column("target_key", ForeignKey("targets.key"), nullable=False),
    Column("space_key", ForeignKey("spaces.key"), nullable=False),
    Column("ratio", Float, nullable=False),
    Column("rounds", Integer, nullable=False),
    Column("default_ns", Float, nullable=False),
    Column("load", Float, nullable=False, server_default="0"),
    Column("host", String(128), nullable=False, server_default=""),
    Column("inside", Text, nullable=False),
    Column("job", ForeignKey("jobs.id")),
    Column("created", Float, nullable=False),
    UniqueConstraint("run_id", "created", name="one_reading_each"),
    Index("read", "workload_key", "target_key", "space_key", "ratio"),
)
"""Latencies of runs inside a model while a job searched: a row for each process in which a run was measured, with
the run's keys. ``host`` is the node of a fleet that alone has measured it."""

layers = Table(
    "layers",
    metadata,
    Column("job", ForeignKey("jobs.id"), primary_key=True),
    Column("workload_key", ForeignKey("workloads.key"), primary_key=True),
    Column("names", Text, nullable=False),
)
"""The places of a workload in the model of a job: the names of its dispatches, a JSON list."""

_ADDED: Mapping[str, Mapping[str, tuple[int, Any]]] = {
    jobs.name: {"status": (15, ""), "report": (15, "")},
    comparisons.name: {"detail": (13, ""), "load": (14, 0.0)},
    readings.name: {"load": (14, 0.0), "host": (17, "")},
}
"""Columns that tables beside runs have got since a version, with what rows of before have in them."""


def added(table: Table, version: int) -> dict[str, Any]:
    """Return the columns that a table lacks in a version of the schema, with what its rows have in them."""
    if table is runs:
        return RUNS.added_after(version)
    since = _ADDED.get(table.name, {}).items()
    return {name: before for name, (first, before) in since if first > version}


__all__ = [
    "OLDEST",
    "READABLE",
    "VERSION",
    "added",
    "column_of",
    "comparisons",
    "jobs",
    "layers",
    "meta",
    "metadata",
    "readings",
    "runs",
    "spaces",
    "targets",
    "workloads",
]
