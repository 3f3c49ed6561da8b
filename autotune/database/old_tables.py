"""Tables of older schemas: placements, which are comparisons since version 13, and plans, which nothing read."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy
from sqlalchemy import Boolean, Column, Float, Integer, MetaData, String, Table, Text, insert, select
from sqlalchemy.engine import Connection, Row

from autotune.database import schema
from autotune.database.records import DEVICES, MODEL
from autotune.database.session import insert_new
from autotune.foreign import parse_json
from autotune.target import Target

_metadata = MetaData()

placements = Table(
    "placements",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("json", Text, nullable=False),
    Column("code", String(64), nullable=False),
    Column("expected_ns", Float, nullable=False),
    Column("measured_ns", Float),
    Column("ratio", Float),
    Column("ratio_low", Float),
    Column("ratio_high", Float),
    Column("rounds", Integer, nullable=False),
    Column("won", Boolean, nullable=False),
    Column("inside", Text, nullable=False),
    Column("job", String(32)),
    Column("created", Float, nullable=False),
)

plans = Table(
    "plans",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String(64), nullable=False),
    Column("json", Text, nullable=False),
    Column("ratio", Float, nullable=False),
    Column("ratio_low", Float),
    Column("ratio_high", Float),
    Column("rounds", Integer, nullable=False),
    Column("won", Boolean, nullable=False),
    Column("inside", Text, nullable=False),
    Column("job", String(32)),
    Column("created", Float, nullable=False),
)

VERSIONS = {placements: range(11, 13), plans: range(8, 14)}
"""The schemas that had each table."""


def take_over(connection: Connection) -> None:
    """Make comparisons of the placements in their table, if it is there, and drop both tables."""
    plans.drop(connection, checkfirst=True)
    if not sqlalchemy.inspect(connection).has_table(placements.name):
        return
    for row in connection.execute(select(placements).order_by(placements.c.id)).all():
        stood_for = {"key": row.key, "text": "", "kind": MODEL, "flops": 0, "bytes": 0}
        insert_new(connection, schema.workloads, stood_for)
        connection.execute(insert(schema.comparisons).values(_comparison(connection, row)))
    placements.drop(connection)


def _comparison(connection: Connection, row: Row[Any]) -> dict[str, Any]:
    measured = {f"latency_{name}_ns": row.measured_ns for name in ("min", "median")}
    same = ("name", "ratio", "ratio_low", "ratio_high", "won", "inside", "job", "created")
    return {
        **{name: getattr(row, name) for name in same},
        **measured,
        "latency_spread_ns": None if row.measured_ns is None else 0.0,
        "n": row.rounds,
        "workload_key": row.key,
        "target_key": _target_of(connection, row.job),
        "site": DEVICES,
        "key": row.code,
        "message": "",
        "detail": _detail(row),
    }


def _detail(row: Row[Any]) -> str:
    try:
        made = parse_json(row.json)
    except ValueError:
        return str(row.json)  # damaged before: who reads it says so
    return json.dumps({**made, "expected_ns": row.expected_ns}, sort_keys=True)


def _target_of(connection: Connection, job: str | None) -> str:
    """Return the target of the job that searched; without one any: the key of a placement covers its devices."""
    of_job = select(schema.jobs.c.target_key).where(schema.jobs.c.id == job)
    found = connection.execute(of_job).scalar() or connection.execute(select(schema.targets.c.key)).scalar()
    if found is None:
        here = Target.detect()
        found = here.key
        insert_new(connection, schema.targets, {"key": found, "json": here.to_json()})
    return str(found)


__all__ = ["VERSIONS", "placements", "plans", "take_over"]
