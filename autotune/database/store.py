"""The tuning database: every measured run, and the best schedule of each workload."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, and_, func, insert, inspect, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from autotune.database import engine as opening
from autotune.database import rows, schema
from autotune.database.query import Hit, Miss, miss
from autotune.database.records import ContestRow, JobRow, Key, Outcome, Rival, Run, WorkloadRow
from autotune.errors import DatabaseError, UsageError
from autotune.target import Target

if TYPE_CHECKING:
    from pandas import DataFrame

_CANDIDATES = 64
"""How many of the fastest runs are looked at to find the best: more than are ever confirmed."""
CLEARLY = 0.9
"""A run that was not confirmed is believed only if its first reading is this small in parts of the other's."""


class Database:
    """A tuning database in an SQLite file (created when missing), or on a server given by URL.

    Several processes may use one file at once. A run that :meth:`record` returned from is on the
    disk: it survives kill -9 and a power cut. With ``read_only`` nothing is created, and the
    folder may be read-only.

    Raises DatabaseError (damaged, locked longer than ``timeout`` seconds, not writable, disk full),
    SchemaVersionError, and UsageError for a file that does not exist with ``read_only``.
    """

    def __init__(self, path_or_url: str | Path, *, read_only: bool = False, timeout: float = 60.0) -> None:
        self.url = opening.url_of(path_or_url)
        self.where = str(opening.file_of(self.url) or self.url)
        self.read_only = read_only
        self._check_file()
        self._engine = opening.connect(self.url, timeout=timeout, read_only=read_only)
        with opening.translated(self.where):
            if not read_only:
                opening.create_tables(self._engine, self.where)
            opening.check_version(self._engine, self.where)
            self._verdicts = inspect(self._engine).has_table(schema.verdicts.name)  # not before version 3

    def _check_file(self) -> None:
        path = opening.file_of(self.url)
        if path is None:
            return
        if path.is_dir():
            raise DatabaseError(f"cannot use the database {path}: it is a folder; give a file name")
        if self.read_only and not path.exists():
            raise UsageError(f"no such database: {path}; `autotune tune --db {path}` makes one")
        if not path.absolute().parent.is_dir():
            raise DatabaseError(f"cannot use the database {path}: its folder does not exist")

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Database {self.where}{', read only' if self.read_only else ''}>"

    def close(self) -> None:
        """Release the file; the object is of no use afterwards."""
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with opening.translated(self.where), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self.read_only:
            raise DatabaseError(f"the database {self.where} was opened for reading only")
        writer = self._engine.execution_options(writes=True)
        with opening.translated(self.where), writer.begin() as connection:
            yield connection

    def _insert(self, connection: Connection, table: Any, values: dict[str, Any]) -> bool:
        """Insert unless the row is there already; says whether it was new."""
        dialect = sqlite if self._engine.dialect.name == "sqlite" else postgresql
        statement = dialect.insert(table).values(values).on_conflict_do_nothing()
        return bool(connection.execute(statement).rowcount)

    def add_workload(self, workload: WorkloadRow) -> None:
        """Make a workload known; runs refer to it."""
        with self._writing() as connection:
            self._insert(connection, schema.workloads, vars(workload))

    def add_target(self, target: Target) -> None:
        """Make a target known; runs and jobs refer to it."""
        with self._writing() as connection:
            self._insert(connection, schema.targets, {"key": target.key, "json": target.to_json()})

    def add_space(self, key: str, workload_key: str, description: str) -> None:
        """Make a search space known; ``description`` is JSON text."""
        row = {"key": key, "workload_key": workload_key, "json": description}
        with self._writing() as connection:
            self._insert(connection, schema.spaces, row)

    def record(self, run: Run) -> bool:
        """Store one measured run; False, and no change, when this schedule was recorded before."""
        with self._writing() as connection:
            return self._insert(connection, schema.runs, rows.to_row(run))

    def confirm(self, rivals: Sequence[Rival], inside: str, job: str = "") -> None:
        """Store what runs of one key took beside each other inside a model, and which of them won.

        From then on the winner is used (see :meth:`best`).
        """
        if any(rival.run.id is None for rival in rivals) or sum(rival.won for rival in rivals) != 1:
            raise DatabaseError("a confirmation needs runs that came from the database, and one winner")
        common = {"inside": inside, "job": job or None, "created": time.time()}
        values = [
            {**common, **rows.key_columns(rival.run.key), "run_id": rival.run.id, "won": rival.won}
            | rows.stats(rival.latency)
            for rival in rivals
        ]
        with self._writing() as connection:
            connection.execute(insert(schema.verdicts), values)

    def claim_job(self, fresh: JobRow, alive: Callable[[str], bool]) -> JobRow:
        """Continue the latest unfinished job of ``fresh.fingerprint``, else start ``fresh``.

        A job whose owner is still ``alive`` is left to it. Atomic: two processes that start at
        once never work on the same job.
        """
        columns = schema.jobs.c
        unfinished = (
            select(schema.jobs)
            .where(columns.fingerprint == fresh.fingerprint, columns.state != JobRow.DONE)
            .order_by(columns.created.desc())
        )
        with self._writing() as connection:
            for row in connection.execute(unfinished):
                job = JobRow(**row._mapping)
                if job.state == JobRow.STOPPED or not alive(job.owner):
                    job = replace(job, owner=fresh.owner, state=JobRow.RUNNING)
                    self._update_job(connection, job)
                    return job
            connection.execute(insert(schema.jobs).values(vars(fresh)))
            return fresh

    def add_layers(self, job: str, names: Mapping[str, Sequence[str]]) -> None:
        """Make known which dispatches of a job's model have each workload; ``names`` is by workload key."""
        with self._writing() as connection:
            for workload, layers in names.items():
                row = {"job": job, "workload_key": workload, "names": json.dumps(list(layers))}
                self._insert(connection, schema.layers, row)

    def layers(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Names of dispatches, by job and workload key."""
        with self._reading() as connection:
            if not inspect(connection).has_table(schema.layers.name):
                return {}  # not before version 4
            found = connection.execute(select(schema.layers)).all()
        return {(row.job, row.workload_key): tuple(json.loads(row.names)) for row in found}

    def jobs(self) -> list[JobRow]:
        """All tuning jobs, the oldest first."""
        with self._reading() as connection:
            found = connection.execute(select(schema.jobs).order_by(schema.jobs.c.created))
            return [JobRow(**row._mapping) for row in found]

    def update_job(self, job: JobRow) -> None:
        """Store a job's state, owner and elapsed time."""
        with self._writing() as connection:
            self._update_job(connection, job)

    def _update_job(self, connection: Connection, job: JobRow) -> None:
        changed = {"state": job.state, "owner": job.owner, "elapsed_s": job.elapsed_s}
        statement = update(schema.jobs).where(schema.jobs.c.id == job.id)
        connection.execute(statement.values(**changed, updated=time.time()))

    def record_contest(
        self, workload_key: str, target_key: str, entries: Sequence[ContestRow], job: str = ""
    ) -> None:
        """Store alternatives of a workload that were timed taking turns, all of them at once."""
        now = time.time()
        common = {"workload_key": workload_key, "target_key": target_key, "job": job or None, "created": now}
        with self._writing() as connection:
            for entry in entries:
                described = {
                    "name": entry.name,
                    "key": entry.key,
                    "error": entry.error,
                    "message": entry.message,
                }
                values = common | described | rows.stats(entry.latency)
                connection.execute(insert(schema.contests).values(values))

    def contest(self, workload_key: str, target_key: str) -> list[ContestRow]:
        """The alternatives that took part in the newest contest of a workload; none if there was none."""
        with self._reading() as connection:
            if not inspect(connection).has_table(schema.contests.name):
                return []  # a database of version 1 that was opened to read
            found = connection.execute(rows.select_contest(workload_key, target_key))
            return [rows.contest_from_row(row) for row in found]

    def best(self, workload_key: str, target_key: str, space_key: str) -> Run | Miss:
        """The schedule to use for exactly this key, or why there is none.

        The winner of the newest confirmation, else the default. A run that was found since, by a job that
        did not reach its end, takes its place only if its first reading is clearly smaller (:data:`CLEARLY`)
        than those of the default and of all that were ever confirmed: the smallest of many is the luckiest.
        """
        key = Key(workload_key, target_key, space_key)
        with self._reading() as connection:
            best = self._best(connection, key)
            return best if best is not None else self._diagnose(connection, key)

    def lookup(self, workload_key: str, target_key: str, space_key: str) -> Hit | Miss:
        """:meth:`best` with the default that it beats and the number of runs behind it."""
        key = Key(workload_key, target_key, space_key)
        with self._reading() as connection:
            best = self._best(connection, key)
            if best is None:
                return self._diagnose(connection, key)
            outcomes = self._outcomes(connection, key)
            default = self._one(connection, rows.select_default(key, self._verdicts))
            return Hit(best, default, sum(outcomes.values()), outcomes.get(Outcome.OK.value, 0))

    def _best(self, connection: Connection, key: Key) -> Run | None:
        safe = self._one(connection, rows.select_winner(key)) if self._verdicts else None
        if safe is None:
            safe = self._one(connection, rows.select_default(key, self._verdicts))
        fastest = connection.execute(rows.select_fastest(key, _CANDIDATES, self._verdicts))
        runs = [rows.from_row(row) for row in fastest]
        fresh = next((run for run in runs if run.confirmed_ns is None), None)
        if safe is None or fresh is None:
            return fresh or safe
        known = [safe.latency_ns, *(run.latency_ns for run in runs if run.confirmed_ns is not None)]
        return fresh if fresh.latency_ns < CLEARLY * min(known) else safe

    def _one(self, connection: Connection, query: Select[Any]) -> Run | None:
        row = connection.execute(query).first()
        return rows.from_row(row) if row else None

    def top(self, key: Key, count: int) -> list[Run]:
        """The ``count`` fastest runs of a key by their first reading, fastest first."""
        query = rows.select_fastest(key, count, self._verdicts)
        with self._reading() as connection:
            return [rows.from_row(row) for row in connection.execute(query)]

    def runs(
        self,
        *,
        workload: str | None = None,
        target: str | None = None,
        space: str | None = None,
        job: str | None = None,
    ) -> DataFrame:
        """Measured runs as a table to read, a row each; each argument, a key, narrows.

        Columns: id, created (UTC), model, layer (dispatches of the model that tuned it), kind, operators, shapes
        (``inputs → outputs``), target, origin, outcome, latencies in ns, gflops (GFLOP/s at ``latency_ns``), the
        error against the reference, ``knob.NAME`` for each knob of any of the search spaces, and the keys.
        """
        from autotune.database.table import runs_table  # pandas takes 0.4 s to import

        return runs_table(self, self.records(workload=workload, target=target, space=space, job=job))

    def records(
        self,
        *,
        workload: str | None = None,
        target: str | None = None,
        space: str | None = None,
        job: str | None = None,
        after: int = 0,
    ) -> list[Run]:
        """Measured runs as they were stored; each argument narrows, ``after`` is a row id."""
        columns = schema.runs.c
        wanted = {
            columns.workload_key: workload,
            columns.target_key: target,
            columns.space_key: space,
            columns.job: job,
        }
        query = rows.select_runs(self._verdicts).where(columns.id > after).order_by(columns.id)
        for column, value in wanted.items():
            if value is not None:
                query = query.where(column == value)
        with self._reading() as connection:
            return [rows.from_row(row) for row in connection.execute(query)]

    def workloads(self) -> list[WorkloadRow]:
        """Every workload known, by key."""
        query = select(schema.workloads).order_by(schema.workloads.c.key)
        with self._reading() as connection:
            return [WorkloadRow(**row._mapping) for row in connection.execute(query)]

    def targets(self) -> dict[str, Target]:
        """Every target known, by key."""
        with self._reading() as connection:
            found = connection.execute(select(schema.targets)).all()
        return {row.key: Target.from_json(row.json) for row in found}

    def find_workload(self, prefix: str) -> list[WorkloadRow]:
        """The workloads whose key starts with ``prefix``."""
        return [row for row in self.workloads() if row.key.startswith(prefix)]

    def damage(self) -> list[str]:
        """What SQLite finds wrong with the file, a line each; nothing for a server."""
        if self._engine.dialect.name != "sqlite":
            return []
        with self._reading() as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
            orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        lines = [str(line) for line in found if line != "ok"]
        return lines + [f"row {row[1]} of {row[0]} refers to a missing {row[2]}" for row in orphans]

    def outcomes(self, *, job: str | None = None) -> dict[str, int]:
        """Number of runs by outcome, of one job or of all."""
        query = rows.select_outcomes()
        if job is not None:
            query = query.where(schema.runs.c.job == job)
        with self._reading() as connection:
            return rows.counts(connection.execute(query).all())

    def runs_by_workload(self) -> dict[str, int]:
        """Number of runs by workload key."""
        column = schema.runs.c.workload_key
        with self._reading() as connection:
            return rows.counts(connection.execute(select(column, func.count()).group_by(column)).all())

    def _outcomes(self, connection: Connection, key: Key) -> dict[str, int]:
        query = rows.select_outcomes().where(rows.of(key))
        return rows.counts(connection.execute(query).all())

    def _diagnose(self, connection: Connection, key: Key) -> Miss:
        columns = schema.runs.c
        same = columns.workload_key == key.workload
        targets = (
            select(schema.targets.c.json)
            .where(schema.targets.c.key.in_(select(columns.target_key).where(same)))
            .where(schema.targets.c.key != key.target)
        )
        here = and_(same, columns.target_key == key.target, columns.space_key != key.space)
        spaces = select(func.count(columns.space_key.distinct())).where(here)
        return miss(
            key,
            [Target.from_json(text).name for text in connection.execute(targets).scalars()],
            connection.execute(spaces).scalar_one(),
            self._outcomes(connection, key),
        )


__all__ = ["Database"]
