"""Tables of the tuning database. Changing a column means raising VERSION, and OLDEST unless older
databases can be brought up to date."""

from __future__ import annotations

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
)

VERSION = 4
"""Version of the schema that this code writes.

Version 2 added contests, version 3 verdicts, in the place of confirmations: those were readings of a schedule
alone, which say little about it inside a model. Version 4 added layers. An older database is
read as it is, and brought up to date when it is opened to write.
"""
OLDEST = 1
"""The oldest version that this code can read and bring up to date."""

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
    Column("workload_key", ForeignKey("workloads.key"), nullable=False),
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
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workload_key", ForeignKey("workloads.key"), nullable=False),
    Column("target_key", ForeignKey("targets.key"), nullable=False),
    Column("space_key", ForeignKey("spaces.key"), nullable=False),
    Column("trace_key", String(64), nullable=False),
    Column("trace_json", Text, nullable=False),
    Column("config_json", Text, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("latency_min_ns", Float),
    Column("latency_median_ns", Float),
    Column("latency_spread_ns", Float),
    Column("n", Integer, nullable=False),
    Column("error", Float),
    Column("message", Text, nullable=False),
    Column("origin", String(16), nullable=False),
    Column("host", String(128), nullable=False),
    Column("versions", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("job", ForeignKey("jobs.id")),
    Column("created", Float, nullable=False),
    UniqueConstraint("workload_key", "target_key", "space_key", "trace_key", name="one_run_each"),
    Index("fastest", "workload_key", "target_key", "space_key", "outcome", "latency_min_ns"),
    Index("of_job", "job"),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workload_key", ForeignKey("workloads.key"), nullable=False),
    Column("target_key", ForeignKey("targets.key"), nullable=False),
    Column("space_key", ForeignKey("spaces.key"), nullable=False),
    Column("run_id", ForeignKey("runs.id"), nullable=False, index=True),
    Column("won", Boolean, nullable=False),
    Column("inside", Text, nullable=False),
    Column("job", ForeignKey("jobs.id")),
    Column("latency_min_ns", Float, nullable=False),
    Column("latency_median_ns", Float, nullable=False),
    Column("latency_spread_ns", Float, nullable=False),
    Column("n", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Index("winner", "workload_key", "target_key", "space_key", "won"),
)
"""Rivals of one key that were read together have the same time ``created``; one of them has ``won``."""

layers = Table(
    "layers",
    metadata,
    Column("job", ForeignKey("jobs.id"), primary_key=True),
    Column("workload_key", ForeignKey("workloads.key"), primary_key=True),
    Column("names", Text, nullable=False),
)
"""Where the model of a job has a workload: the names of its dispatches, a JSON list."""

contests = Table(
    "contests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workload_key", ForeignKey("workloads.key"), nullable=False),
    Column("target_key", ForeignKey("targets.key"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("key", String(64), nullable=False),
    Column("latency_min_ns", Float),
    Column("latency_median_ns", Float),
    Column("latency_spread_ns", Float),
    Column("n", Integer, nullable=False),
    Column("error", Float),
    Column("message", Text, nullable=False),
    Column("job", ForeignKey("jobs.id")),
    Column("created", Float, nullable=False),
    UniqueConstraint("workload_key", "target_key", "name", "created", name="one_entry_each"),
)

__all__ = [
    "OLDEST",
    "VERSION",
    "contests",
    "jobs",
    "layers",
    "meta",
    "metadata",
    "runs",
    "spaces",
    "targets",
    "verdicts",
    "workloads",
]
