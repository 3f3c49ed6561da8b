"""The tuning database: every measured run, and the best schedule of each workload."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Select, Table, func, select
from sqlalchemy.engine import Connection, Row

from autotune.database import jobs, measured, rows, schema, statements, upgrade
from autotune.database.address import DatabaseAddress
from autotune.database.damage import damage_of
from autotune.database.front import FrontPoint
from autotune.database.goal import FASTEST, Goal
from autotune.database.query import Hit, Miss
from autotune.database.records import (
    MODEL,
    WHOLE,
    Comparison,
    JobRow,
    Key,
    Reading,
    Run,
    WorkloadRow,
    WorkloadSummary,
)
from autotune.database.session import STREAMED, Session, insert_new
from autotune.database.summary import NO_RUNS, RunCounts, summaries
from autotune.errors import DatabaseError
from autotune.target import Target

if TYPE_CHECKING:
    from pandas import DataFrame

    from autotune.database.near import Neighbour

T = TypeVar("T")
_SPACE = ("key", "workload_key", "json")
_NO_MODEL = schema.workloads.c.kind != MODEL


class Database:
    """A tuning database in an SQLite file (created when missing), or on a server given by URL.

    Several processes may use one file at once. A run that :meth:`record` returned from is on the
    disk: it survives kill -9 and a power cut. With ``read_only`` nothing is created, and the
    folder may be read-only.

    Raises DatabaseError (damaged, locked longer than ``timeout`` seconds, not writable, disk full),
    SchemaVersionError, and UsageError for a file that does not exist with ``read_only``.
    """

    def __init__(self, path_or_url: str | Path, *, read_only: bool = False, timeout: float = 60.0) -> None:
        address = DatabaseAddress.parse(path_or_url)
        self.where = str(address)
        self.read_only = read_only
        address.check(read_only=read_only)
        self.session = Session(address, read_only=read_only, timeout=timeout)
        try:
            upgrade.prepare(self.session)
        except BaseException:
            self.session.close()  # what could not be used is not kept open either
            raise

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
        self.session.close()

    def _insert(self, table: Table, *values: dict[str, Any]) -> None:
        """Insert those rows that are not there yet."""

        def insert_all(connection: Connection) -> None:
            for row in values:
                insert_new(connection, table, row)

        self.session.write(insert_all)

    def add_workload(self, *workloads: WorkloadRow) -> None:
        """Make workloads known, all at once; runs refer to them."""
        self._insert(schema.workloads, *map(vars, workloads))

    def add_target(self, target: Target) -> None:
        """Make a target known; runs and jobs refer to it."""
        self._insert(schema.targets, {"key": target.key, "json": target.to_json()})

    def add_space(self, key: str, workload_key: str, description: str) -> None:
        """Make a search space known; ``description`` is JSON text."""
        self.add_spaces([(key, workload_key, description)])

    def add_spaces(self, spaces: Iterable[tuple[str, str, str]]) -> None:
        """Make search spaces known, all at once: the key of each, that of its workload, and a description."""
        self._insert(schema.spaces, *(dict(zip(_SPACE, space, strict=True)) for space in spaces))

    def add_layers(self, job: str, names: Mapping[str, Sequence[str]]) -> None:
        """Make known which dispatches of a job's model have each workload; ``names`` is by workload key."""
        described = [
            {"job": job, "workload_key": workload, "names": json.dumps(list(layers))}
            for workload, layers in names.items()
        ]
        self._insert(schema.layers, *described)

    def record(self, run: Run) -> bool:
        """Store one measured run; False, and no change, when this schedule was recorded
        before with the same code."""
        return self.record_all([run])[0]

    def record_all(self, runs: Sequence[Run]) -> list[bool]:
        """Store measured runs in one transaction, and say of each what :meth:`record` does."""
        return measured.store_runs(self.session, runs)

    def distrust(self, job: str, host: str, reason: str) -> int:
        """Leave out what a node has measured alone for a job; return the number of runs.

        Defaults stay, and runs that other nodes have measured inside the model, too.
        """
        return self.session.write(lambda connection: measured.distrust(connection, job, host, reason))

    def claim_job(self, fresh: JobRow, alive: Callable[[str], bool]) -> JobRow:
        """Continue the latest unfinished job of ``fresh.fingerprint``, else start ``fresh``.

        A job whose owner is still ``alive`` is left to it. Atomic: two processes that start at
        once never work on the same job.
        """
        return jobs.claim(self.session, fresh, alive)

    def update_job(self, job: JobRow, report: str | None = None) -> None:
        """Store a job's state, owner, elapsed time and what it says; and its report, if one is given."""
        changed = replace(job, updated=time.time())
        self.session.write(lambda connection: jobs.store(connection, changed, report))

    def compared(
        self,
        workload_key: str,
        target_key: str,
        site: str,
        candidates: Sequence[Comparison],
        inside: str,
        job: str = "",
    ) -> None:
        """Store candidates of a site that were compared inside a model, all at once; the winner is used from then on.

        ``site`` is "option" for the ways to compute a workload, "schedule" (see :meth:`best`), or the kind of a site
        of a whole model, for which a workload of the kind "model" stands.
        """
        self.compared_sites({(workload_key, target_key, site): candidates}, inside, job)

    def compared_sites(
        self, sites: Mapping[tuple[str, str, str], Sequence[Comparison]], inside: str, job: str = ""
    ) -> None:
        """Store the same of several sites, by their workloads, targets and kinds, in one transaction."""
        measured.store_comparisons(self.session, sites, inside, job)

    def comparison(self, workload_key: str, target_key: str, site: str) -> list[Comparison]:
        """Return the candidates of the newest comparison of a workload's options or schedules; none if
        there was none."""
        values = {"workload": workload_key, "target": target_key, "site": site}
        return self._all(statements.select_comparison(of_key=False), rows.comparison_from_row, values)

    def comparison_history(self, workload_key: str, target_key: str, site: str) -> list[Comparison]:
        """Return the candidates of all comparisons of a workload's options or schedules, the oldest first: those that
        were compared with each other have the same time; and their parts in measurements of whole models."""
        return self.comparison_histories([workload_key], target_key, site).get(workload_key, [])

    def comparison_histories(
        self, workloads: Sequence[str], target_key: str, site: str
    ) -> dict[str, list[Comparison]]:
        """Return the same of several workloads, by their keys and in their order, of those that have any."""
        values = {"workloads": workloads, "target": target_key, "site": site, "whole": site + WHOLE}
        found = dict[str, list[Comparison]]()
        query = statements.select_comparisons()
        for key, row in self._all(
            query, lambda row: (row.workload_key, rows.comparison_from_row(row)), values
        ):
            found.setdefault(key, []).append(row)
        return {key: found[key] for key in workloads if key in found}

    def compared_at(
        self, site: str, *, workload: str | None = None, job: str | None = None
    ) -> list[Comparison]:
        """Return all candidates that were compared at a kind of site of a workload or by a job, the oldest first."""
        columns = schema.comparisons.c
        query = select(schema.comparisons).where(columns.site == site)
        query = query if workload is None else query.where(columns.workload_key == workload)
        query = query if job is None else query.where(columns.job == job)
        return self._all(query.order_by(columns.created, columns.id), rows.comparison_from_row)

    def crashed_inside(self, key: Key, traces: Mapping[str, str], inside: str, job: str = "") -> None:
        """Store that runs of a key ended their process inside a model, and why: they are never used, nor tried again.

        ``traces`` has the reason, or an empty text, by the trace's key. Runs that are not in the database are left out.
        """
        measured.store_crashes(self.session, key, traces, inside, job)

    def measured_whole(
        self, parts: Mapping[tuple[str, str, str], Comparison], inside: str, job: str = ""
    ) -> None:
        """Store the parts of candidates in one measurement of a whole model, by their workloads, targets and kinds of
        site."""
        measured.store_parts(self.session, parts, inside, job)

    def read_inside(self, key: Key, readings: Sequence[Reading], inside: str, job: str = "") -> None:
        """Store in-model measurements of runs of a key; runs that are not in the database are left out."""
        measured.store_readings(self.session, key, readings, inside, job)

    def readings(self, key: Key) -> list[Reading]:
        """Return the in-model measurements of the runs of a key, the oldest first."""
        from autotune.database import best  # loads NumPy, which lists of jobs do without

        return self.session.read(lambda connection: best.readings_of(connection, key))

    def compared_schedules(self, key: Key) -> list[Comparison]:
        """Return the candidates of all comparisons of a key's schedules, the oldest first."""
        from autotune.database import best

        return self.session.read(lambda connection: best.comparisons_of(connection, key))

    def best(self, workload_key: str, target_key: str, space_key: str) -> Run | Miss:
        """Return the schedule to use for exactly this key, or why there is none.

        That with the smallest posterior mean, with some caution (:func:`autotune.database.posterior.decided`), by all
        measurements inside models: of searches and of comparisons, each with its error. The winner of the newest
        comparison, else the default, stays unless another is half a percent ahead. Readings alone decide only where the
        default never worked. A run that crashed inside a model is never used.
        """
        from autotune.database import best

        key = Key(workload_key, target_key, space_key)

        def answer(connection: Connection) -> Run | Miss:
            return best.best_of(connection, key) or best.diagnose(connection, key)

        return self.session.read(answer)

    def lookup(self, workload_key: str, target_key: str, space_key: str, goal: Goal = FASTEST) -> Hit | Miss:
        """Return :meth:`best` with how well it is known: the default, the number of runs and the newest comparison.

        With another goal than latency the smallest run that a comparison, or else in-model measurements, put
        within its allowed slowdown over :meth:`best`; that one itself if nothing is smaller.
        """
        from autotune.database import best

        key = Key(workload_key, target_key, space_key)
        return self.session.read(lambda connection: best.lookup(connection, key, goal))

    def last_rows(self) -> tuple[int, ...]:
        """Return numbers that change whenever something is stored that :meth:`lookup` follows from."""
        row = self.session.read(lambda connection: connection.execute(statements.select_last()).one())
        return tuple(number or 0 for number in row)

    def changed_since(self, last: tuple[int, ...]) -> set[str]:
        """Return the keys of the workloads of which something was stored after :meth:`last_rows` gave these numbers."""
        values = {f"after{number}": row for number, row in enumerate(last)}
        query = statements.select_changed()
        return {row[0] for row in self.session.read(lambda c: c.execute(query, values).all())}

    def near(
        self,
        workload: WorkloadRow,
        target: Target,
        space_key: str,
        *,
        any_target: bool = False,
        with_kin: bool = False,
    ) -> list[Neighbour]:
        """Return the near matches of a key, the nearest first; ``workload`` need not be stored.

        The same workload on compatible targets, then workloads of other sizes there; ``with_kin`` then those of the
        same kind and another structure; with ``any_target`` also those on targets whose schedules are of no use here,
        last.
        """
        from autotune.database.near import neighbours_of  # lists of jobs do without

        return self.session.read(
            lambda connection: neighbours_of(
                connection, workload, target, space_key, any_target=any_target, with_kin=with_kin
            )
        )

    def leaders(self, key: Key, count: int) -> list[tuple[Run, float]]:
        """Return the ``count`` runs of a key that were fastest inside models, fastest first, with their latencies
        over the default's: by their newest comparison, else by all readings; only what was faster than the default."""
        from autotune.database import best

        return self.session.read(lambda connection: best.leaders_of(connection, key, count))

    def top(self, key: Key, count: int) -> list[Run]:
        """Return the ``count`` fastest runs of a key by their first timing, fastest first."""
        values = statements.parameters(key, count=count)
        return self._all(statements.select_fastest(), rows.from_row, values)

    def timings(self, key: Key, count: int) -> list[tuple[float | None, str]]:
        """Return the isolated latency in ns, None of what failed, and the configuration as JSON of the ``count`` newest
        runs of a key, the oldest first."""
        values = statements.parameters(key, count=count)
        return self._all(
            statements.select_timings(), lambda row: (row.latency_min_ns, row.config_json), values
        )[::-1]

    def points(self, key: Key) -> list[FrontPoint]:
        """Return the runs of a key that worked, with latency over the default's and footprint, as far as
        both are known.

        :func:`autotune.database.front.front` gives those that no other beats.
        """
        from autotune.database import best

        return self.session.read(lambda connection: best.points_of(connection, key))

    def runs(
        self,
        *,
        workload: str | None = None,
        target: str | None = None,
        space: str | None = None,
        job: str | None = None,
    ) -> DataFrame:
        """Return measured runs as a table to read, a row each; each argument, a key, narrows.

        Columns: id, created (UTC), model, layer (dispatches of the model that tuned it), kind, operators, shapes
        (``inputs → outputs``), target, origin, outcome, latencies in ns, gflops (GFLOP/s at ``latency_ns``), the
        error against the reference, memory_bytes, artifact_bytes and scratch_bytes (of
        :class:`autotune.database.Footprint`, missing where unknown), ``knob.NAME`` for each knob of any of the
        search spaces, and the keys.
        """
        from autotune.database.table import runs_table  # pandas takes 0.4 s to import

        return runs_table(self, self.records(workload=workload, target=target, space=space, job=job))

    def workloads(self) -> DataFrame:
        """Return a summary of each workload on each target that measured it, as a table to read.

        Columns: workload_key, kind, operators, shapes, models and layers that have it, target, runs, default_ns and
        best_ns (latencies alone), gflops, ratio with ratio_low and ratio_high (of the schedule in use to the default,
        inside a model; missing where none was confirmed), flops and bytes.
        """
        from autotune.database.table import workloads_table

        return workloads_table(self)

    def comparisons(self) -> DataFrame:
        """Return the comparisons inside models as a table to read: a row each candidate, the oldest first.

        Columns: created (UTC; equal for those that were compared with each other), inside (the model), site (option or
        schedule), name (of the option, or the trace's key), won, median_ns, ratio to the incumbent with ratio_low and
        ratio_high, error, message, kind, operators, shapes, target, and the keys.
        """
        from autotune.database.table import comparisons_table

        return comparisons_table(self)

    def all_comparisons(self, job: str | None = None) -> list[tuple[str, str, str, Comparison]]:
        """Return every candidate that was compared, or that a job has compared, the oldest first, with its workload's
        key, its target's, and its site."""
        query = select(schema.comparisons).order_by(schema.comparisons.c.id)
        query = query if job is None else query.where(schema.comparisons.c.job == job)
        return self._all(
            query, lambda row: (row.workload_key, row.target_key, row.site, rows.comparison_from_row(row))
        )

    def records(
        self,
        *,
        workload: str | None = None,
        target: str | None = None,
        space: str | None = None,
        job: str | None = None,
        traces: Collection[str] | None = None,
        after: int = 0,
        skip_damaged: bool = False,
    ) -> list[Run]:
        """Return measured runs as they were stored; each argument narrows, ``after`` is a row id.

        Raises DatabaseError for a damaged row, unless those are to be skipped.
        """
        narrowed: dict[str, object] = {"workload": workload, "target": target, "space": space, "job": job}
        narrowed["traces"] = None if traces is None else [*traces]
        given = {name: value for name, value in narrowed.items() if value is not None}
        query = statements.select_records(*given)
        return self._all(query, rows.from_row, {**given, "after": after}, skip_damaged=skip_damaged)

    def each_record(self, visit: Callable[[Run], None]) -> None:
        """Show all runs that are not damaged, one after the other: of a million not all are in memory at once."""

        def visit_all(connection: Connection) -> None:
            query = statements.select_runs().order_by(schema.runs.c.id)
            for row in connection.execute(query, execution_options=STREAMED):
                with suppress(DatabaseError):
                    visit(rows.from_row(row))

        self.session.read(visit_all)

    def count(self, key: Key) -> int:
        """Return the number of runs of a key."""
        from autotune.database import best

        return sum(self.session.read(lambda connection: best.outcomes_alone(connection, key)).values())

    def workload_rows(self, *, skip_damaged: bool = False) -> list[WorkloadRow]:
        """Return every known workload of a dispatch or a program, by key; not those that stand for whole models."""
        query = select(schema.workloads).where(_NO_MODEL).order_by(schema.workloads.c.key)
        return self._all(query, rows.workload_from_row, skip_damaged=skip_damaged)

    def find_workload(self, prefix: str) -> list[WorkloadRow]:
        """Return the workloads whose key starts with ``prefix``."""
        key = schema.workloads.c.key
        same = key.between(prefix, prefix + "g")  # after all hexadecimal digits; LIKE would not use the index
        query = select(schema.workloads).where(same, _NO_MODEL).order_by(key)
        return self._all(query, rows.workload_from_row)

    def targets(self) -> dict[str, Target]:
        """Return every known target, by key."""
        found = self._all(select(schema.targets), lambda row: (row.key, rows.target_from_row(row)))
        return dict(found)

    def jobs(self, newest: int | None = None) -> list[JobRow]:
        """Return all tuning jobs, or the newest so many, the oldest first."""
        query = select(*jobs.COLUMNS).order_by(schema.jobs.c.created.desc(), schema.jobs.c.id.desc())
        return self._all(query.limit(newest), rows.job_from_row)[::-1]

    def count_jobs(self) -> int:
        """Return the number of tuning jobs."""
        query = select(func.count()).select_from(schema.jobs)
        return self.session.read(lambda connection: int(connection.execute(query).scalar_one()))

    def heard(self) -> dict[str, float]:
        """Return when each owner of jobs stored one of them last."""
        owner, last = schema.jobs.c.owner, func.max(schema.jobs.c.updated).label("last")
        query: Select[Any] = select(owner, last).group_by(owner)
        return dict(self._all(query, lambda row: (str(row.owner), float(row.last))))

    def job_report(self, job: str) -> str:
        """Return the report that a job has stored last, as JSON text; empty if it stored none."""
        query = select(schema.jobs.c.report).where(schema.jobs.c.id == job)
        return next(iter(self._all(query, lambda row: str(row.report))), "")

    def job_trials(self, jobs_: Sequence[str]) -> dict[str, int]:
        """Return the number of measured runs of each of these jobs."""
        return self.session.read(lambda connection: jobs.trials(connection, jobs_))

    def layers(self, job: str | None = None) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return names of dispatches, of one job or of all, by job and workload key."""
        query = select(schema.layers)
        query = query if job is None else query.where(schema.layers.c.job == job)
        return dict(self._all(query, lambda row: ((row.job, row.workload_key), rows.layers_from_row(row))))

    def names(self, workloads: Sequence[str]) -> dict[str, list[str]]:
        """Return the names of the dispatches of workloads, in whatever jobs."""
        return self.session.read(lambda connection: jobs.names(connection, workloads))

    def jobs_with(self, workload: str, most: int) -> dict[str, str]:
        """Return the models of the newest jobs that have a workload, the newest first, by the jobs' ids."""
        return self.session.read(lambda connection: jobs.with_workload(connection, workload, most))

    def outcomes_by_job(self) -> dict[str, dict[str, int]]:
        """Return the number of runs by job and the outcome that each had alone; of no job its name is empty."""
        from autotune.database import best

        return self.session.read(best.outcomes_by_job)

    def outcomes(
        self, *, job: str | None = None, by_job: Mapping[str, Mapping[str, int]] | None = None
    ) -> dict[str, int]:
        """Return the number of runs by outcome, of one job or of all; by those of each job if they are known."""
        from autotune.database import best

        if job is not None:
            return self.session.read(lambda connection: best.outcomes(connection, schema.runs.c.job == job))
        return self.session.read(lambda connection: best.all_outcomes(connection, by_job))

    def run_counts(self, before: RunCounts = NO_RUNS) -> RunCounts:
        """Return the number of runs by workload and target; it takes less time if it is known from before."""
        return self.session.read(before.updated)

    def summary(self, counts: RunCounts | None = None) -> list[WorkloadSummary]:
        """Return a summary of each workload on each target that it was measured on, by its counts if they are known."""
        known = self.run_counts() if counts is None else counts
        return self.session.read(lambda connection: summaries(connection, known))

    def tuned_keys(self, workload: str | None = None) -> list[Key]:
        """Return every workload, target and space that has runs; or those of one workload."""
        columns = schema.runs.c
        query = select(columns.workload_key, columns.target_key, columns.space_key).distinct()
        query = query if workload is None else query.where(columns.workload_key == workload)
        return self._all(query, _key)

    def tuned_spaces(self, workload: str, target: str) -> list[str]:
        """Return the keys of the spaces in which a workload has runs on a target."""
        columns = schema.runs.c
        same = (columns.workload_key == workload, columns.target_key == target)
        return self._all(select(columns.space_key).where(*same).distinct(), lambda row: str(row.space_key))

    def damage(self) -> list[str]:
        """Return the damage of the file and of single rows, a line each."""
        return self.session.read(damage_of)

    def _all(
        self,
        query: Select[Any],
        read: Callable[[Row[Any]], T],
        values: Mapping[str, object] = MappingProxyType({}),
        *,
        skip_damaged: bool = False,
    ) -> list[T]:
        def read_all(connection: Connection) -> list[T]:
            found = []
            for row in connection.execute(query, values):
                with suppress(DatabaseError) if skip_damaged else nullcontext():
                    found.append(read(row))
            return found

        return self.session.read(read_all)


def _key(row: Row[Any]) -> Key:
    return Key(row.workload_key, row.target_key, row.space_key)


__all__ = ["Database"]
