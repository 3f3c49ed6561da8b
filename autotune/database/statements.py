"""SQL queries over runs, comparisons and readings.

Those of a key are made once: they have parameters in its place, which :func:`parameters` gives. To put one together
takes SQLAlchemy longer than SQLite to answer it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    select,
    tuple_,
    union,
)

from autotune.database import schema
from autotune.database.records import TIMED_OUT_INSIDE, WHOLE, Key, Origin, Outcome

_WORKLOAD: BindParameter[str] = bindparam("workload")
_TARGET: BindParameter[str] = bindparam("target")
_SPACE: BindParameter[str] = bindparam("space")


def parameters(key: Key, **more: object) -> dict[str, object]:
    """Return the values of the parameters of the queries of a key."""
    return {"workload": key.workload, "target": key.target, "space": key.space, **more}


def of(key: Key) -> ColumnElement[bool]:
    """Return the condition that a run belongs to ``key``."""
    columns = schema.runs.c
    return and_(
        columns.workload_key == key.workload,
        columns.target_key == key.target,
        columns.space_key == key.space,
    )


_RUNS, _READINGS = schema.runs.c, schema.readings.c
_MINE = and_(_RUNS.workload_key == _WORKLOAD, _RUNS.target_key == _TARGET, _RUNS.space_key == _SPACE)
"""The condition that a run belongs to a key."""
_OK = _RUNS.outcome == Outcome.OK.value
_DEFAULT = _RUNS.origin == literal_column(f"'{Origin.DEFAULT}'")
"""A constant in the text: by it a database knows that the index of defaults has all that are asked for."""
_BY_DEFAULTS = "INDEXED BY defaults"
"""SQLite, which does not count rows beforehand, would go through all runs of a key by another index."""
_COMPARED = schema.comparisons.c
_OF_SCHEDULES = and_(
    _COMPARED.workload_key == _WORKLOAD,
    _COMPARED.target_key == _TARGET,
    _COMPARED.site == "schedule",
    _COMPARED.key == _SPACE,
)
"""The condition that a row is of a comparison of a key's schedules."""
_OF_SCHEDULES_AND_WHOLE = and_(
    _COMPARED.workload_key == _WORKLOAD,
    _COMPARED.target_key == _TARGET,
    _COMPARED.site.in_(["schedule", f"schedule{WHOLE}"]),
    _COMPARED.key == _SPACE,
)
"""The same with their parts in measurements of whole models."""
_CRASHES = schema.comparisons.alias("crashes")
_HUNG = _CRASHES.c.message.startswith(TIMED_OUT_INSIDE)
"""Of those the ones that were ended because they hung."""
_LATER = schema.runs.alias("later")


def _replaced(runs: Any = _RUNS) -> ColumnElement[bool]:
    """Return the condition that a run's schedule was measured again since, with the code that it gives now.

    Such a run is what it was: it is learnt from, and nothing else.
    """
    mine = _LATER.c
    names = ("workload_key", "target_key", "space_key", "trace_key")
    same = [mine[name] == runs[name] for name in names]
    return exists().where(*same, mine.created > runs.created)


def crashed(run_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a run ended its process inside a model: a row of comparisons has it
    without a latency."""
    mine = _CRASHES.c
    return exists().where(mine.run_id == run_id, mine.latency_min_ns.is_(None))


@cache
def select_runs() -> Select[Any]:
    """Return all columns of runs, what the newest comparison read of each and where, and whether it crashed there."""
    compared = schema.comparisons.c

    def newest(column: ColumnElement[Any]) -> ColumnElement[Any]:
        mine = select(column).where(compared.run_id == schema.runs.c.id, compared.site == "schedule")
        return mine.order_by(compared.created.desc(), compared.id.desc()).limit(1).scalar_subquery()

    confirmed_ns = newest(compared.latency_median_ns).label("confirmed_ns")
    inside = newest(compared.inside).label("inside")
    return select(schema.runs, confirmed_ns, inside, _crash(schema.runs.c.id).label("crashed"))


def _crash(run_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the way in which a run ended its process inside a model the last time; null if it did not."""
    mine = _CRASHES.c
    found = select(mine.message).where(mine.run_id == run_id, mine.latency_min_ns.is_(None))
    return found.order_by(mine.created.desc(), mine.id.desc()).limit(1).scalar_subquery()


@cache
def select_ok() -> Select[Any]:
    """Select the runs of a key that worked, the oldest first."""
    return select_runs().where(_MINE, _OK, ~_replaced()).order_by(_RUNS.id)


@cache
def select_fastest(*, alive: bool = False) -> Select[Any]:
    """Select the ``count`` fastest runs of a key, by their first timing; ``alive``: those that never
    crashed in a model."""
    wanted = select_runs().where(_MINE, _OK, ~_replaced(), *((~crashed(_RUNS.id),) if alive else ()))
    return wanted.order_by(_RUNS.latency_min_ns, _RUNS.id).limit(bindparam("count", type_=Integer))


@cache
def select_default(*, alive: bool = False) -> Select[Any]:
    """Select the first run of a key's default schedule that was timed."""
    wanted = select_runs().where(
        _MINE, _OK, _DEFAULT, ~_replaced(), *((~crashed(_RUNS.id),) if alive else ())
    )
    wanted = wanted.with_hint(schema.runs, _BY_DEFAULTS, "sqlite")
    return wanted.order_by(_RUNS.latency_min_ns, _RUNS.id).limit(1)


@cache
def select_winner() -> Select[Any]:
    """Select the run that won the newest comparison of a key's schedules; one that crashed inside a model
    does not count."""
    same = and_(_OF_SCHEDULES, _COMPARED.won, ~crashed(_COMPARED.run_id))
    order = (_COMPARED.created.desc(), _COMPARED.id.desc())
    newest = select(_COMPARED.run_id).where(same).order_by(*order).limit(1).scalar_subquery()
    return select_runs().where(_RUNS.id == newest, ~_replaced())


@cache
def count_outcomes() -> Select[Any]:
    """Return the number of runs of a key by the outcome that each had alone."""
    return select_outcomes(_MINE)


@cache
def count_defaults() -> Select[Any]:
    """Return the number of runs of a key's default."""
    found = select(func.count()).select_from(schema.runs).where(_MINE, _DEFAULT)
    return found.with_hint(schema.runs, _BY_DEFAULTS, "sqlite")


@cache
def select_other_targets() -> Select[Any]:
    """Select the other targets that a workload was measured on."""
    measured = select(_RUNS.target_key).where(_RUNS.workload_key == _WORKLOAD)
    return select(schema.targets).where(schema.targets.c.key.in_(measured), schema.targets.c.key != _TARGET)


@cache
def count_other_spaces() -> Select[Any]:
    """Return the number of other search spaces in which a workload was measured on a target."""
    here = (_RUNS.workload_key == _WORKLOAD, _RUNS.target_key == _TARGET, _RUNS.space_key != _SPACE)
    return select(func.count(_RUNS.space_key.distinct())).where(*here)


@cache
def select_crashes() -> Select[Any]:
    """Select the runs of a key that crashed inside a model, the oldest crash first: number, outcome alone, and why."""
    joined = schema.comparisons.join(schema.runs, _COMPARED.run_id == _RUNS.id)
    crash = and_(_OF_SCHEDULES, _COMPARED.latency_min_ns.is_(None))
    query = select(_COMPARED.run_id, _RUNS.outcome, _COMPARED.message).select_from(joined).where(crash)
    return query.order_by(_COMPARED.created, _COMPARED.id)


def select_outcomes(*where: ColumnElement[bool]) -> Select[Any]:
    """Return the number of runs by the outcome that each had alone."""
    return select(_RUNS.outcome, func.count()).where(*where).group_by(_RUNS.outcome)


@cache
def select_outcomes_by_job() -> Select[Any]:
    """Return the same of each job: in the order of an index, which takes SQLite a third of the time."""
    return select(_RUNS.job, _RUNS.outcome, func.count().label("runs")).group_by(_RUNS.job, _RUNS.outcome)


def select_outcomes_of_crashed(*where: ColumnElement[bool]) -> Select[Any]:
    """Return the same of the runs that crashed inside a model, and how many of them hung there."""
    joined = schema.runs.join(_CRASHES, _CRASHES.c.run_id == _RUNS.id)
    hung = func.count(case((_HUNG, _RUNS.id)).distinct())
    query = select(_RUNS.outcome, func.count(_RUNS.id.distinct()), hung).select_from(joined)
    return query.where(_CRASHES.c.latency_min_ns.is_(None), *where).group_by(_RUNS.outcome)


@cache
def select_comparison(*, of_key: bool) -> Select[Any]:
    """Return the candidates of the newest comparison of a kind of ``site`` of a workload on a target; of schedules
    that of a key. Rows without a winner beside them are no comparison."""
    place = (_COMPARED.workload_key == _WORKLOAD, _COMPARED.target_key == _TARGET)
    same = _OF_SCHEDULES if of_key else and_(*place, _COMPARED.site == bindparam("site"))
    newest = select(func.max(_COMPARED.created)).where(same, _COMPARED.won).scalar_subquery()
    return select(schema.comparisons).where(same, _COMPARED.created == newest).order_by(_COMPARED.id)


@cache
def select_comparisons() -> Select[Any]:
    """Select the candidates of all comparisons of a kind of ``site`` of ``workloads`` on a target, the oldest first,
    and their parts in measurements of whole models."""
    workloads: BindParameter[Any] = bindparam("workloads", expanding=True)
    place = (_COMPARED.workload_key.in_(workloads), _COMPARED.target_key == _TARGET)
    kinds = _COMPARED.site.in_([bindparam("site"), bindparam("whole")])
    found = select(schema.comparisons).where(*place, kinds)
    return found.order_by(_COMPARED.created, _COMPARED.id)


@cache
def select_compared() -> Select[Any]:
    """Select the results of all comparisons of a key's schedules for each run, the oldest first, and their parts in
    measurements of whole models."""
    joined = schema.comparisons.join(schema.runs, _COMPARED.run_id == _RUNS.id)
    found = select(schema.comparisons).select_from(joined).where(_OF_SCHEDULES_AND_WHOLE, ~_replaced())
    return found.order_by(_COMPARED.created, _COMPARED.id)


@cache
def select_all_readings() -> Select[Any]:
    """Select the in-model measurements of runs, with the trace keys of the runs, the oldest first."""
    joined = schema.readings.join(schema.runs, _READINGS.run_id == _RUNS.id)
    return select(schema.readings, _RUNS.trace_key, _RUNS.code).select_from(joined).order_by(_READINGS.id)


_READ = and_(
    _READINGS.workload_key == _WORKLOAD, _READINGS.target_key == _TARGET, _READINGS.space_key == _SPACE
)
"""The condition that a reading is of a run of a key."""


@cache
def select_readings() -> Select[Any]:
    """Return those of the runs of a key."""
    return select_all_readings().where(_READ, ~_replaced())


@cache
def select_readings_below() -> Select[Any]:
    """Return those of the runs of a key that were read at least once with a ratio below a ``bound``."""
    below = select(_READINGS.run_id).where(_READ, _READINGS.ratio < bindparam("bound"))
    return select_all_readings().where(_READINGS.run_id.in_(below), ~_replaced())


@cache
def select_readings_of() -> Select[Any]:
    """Return those of a list of ``numbers`` of runs."""
    return select_all_readings().where(_READINGS.run_id.in_(bindparam("numbers", expanding=True)))


@cache
def select_timings() -> Select[Any]:
    """Select the isolated latencies and configurations of the ``count`` newest runs of a key, the newest first."""
    newest = select(_RUNS.id).where(_MINE).order_by(_RUNS.id.desc()).limit(bindparam("count", type_=Integer))
    found = select(_RUNS.latency_min_ns, _RUNS.config_json).where(
        _RUNS.id.in_(newest)
    )  # out of an index alone
    return found.order_by(_RUNS.id.desc())


@cache
def select_next_key() -> Select[Any]:
    """Select the workload, target and space with runs that come after a key."""
    columns = (_RUNS.workload_key, _RUNS.target_key, _RUNS.space_key)
    after = tuple_(*columns) > tuple_(_WORKLOAD, _TARGET, _SPACE)
    return select(*columns).where(after).order_by(*columns).limit(1)


@cache
def select_sample() -> Select[Any]:
    """Select at most ``count`` runs of a key, in the order of the hashes of their schedules, as an index has them."""
    order = (_RUNS.trace_key, _RUNS.code)
    return select_runs().where(_MINE).order_by(*order).limit(bindparam("count", type_=Integer))


@cache
def select_defaults() -> Select[Any]:
    """Select all runs of a key's default schedules."""
    return select_runs().where(_MINE, _DEFAULT).with_hint(schema.runs, _BY_DEFAULTS, "sqlite")


@cache
def select_any_reading() -> Select[Any]:
    """Select one in-model measurement of a key, whichever is found first."""
    return select(_READINGS.id).where(_READ).limit(1)


@cache
def select_run() -> Select[Any]:
    """Select the run of a schedule, by the key of its ``trace``."""
    found = select_runs().where(_MINE, _RUNS.trace_key == bindparam("trace"))
    return found.order_by(_RUNS.created.desc(), _RUNS.id.desc()).limit(1)


@cache
def run_numbers() -> Select[Any]:
    """Select the numbers of all runs of that schedule, with the code that it gave."""
    return select(_RUNS.id, _RUNS.code).where(_MINE, _RUNS.trace_key == bindparam("trace"))


@cache
def run_number() -> Select[Any]:
    """Return the statement that finds the newest own run of a trace."""
    found = select(_RUNS.id).where(_MINE, _RUNS.trace_key == bindparam("trace"))
    return found.order_by(_RUNS.created.desc(), _RUNS.id.desc()).limit(1)


_EVIDENCE = (schema.runs, schema.comparisons, schema.readings)
"""The tables that answers follow from."""


@cache
def select_last() -> Select[Any]:
    """Return the number of the last row of each table that answers follow from."""
    return select(*(select(func.max(table.c.id)).scalar_subquery() for table in _EVIDENCE))


@cache
def select_changed() -> CompoundSelect[Any]:
    """Select the workloads of the rows of these tables that come after the numbers ``after0`` and so on."""
    each = (
        select(table.c.workload_key).where(table.c.id > bindparam(f"after{number}", type_=Integer))
        for number, table in enumerate(_EVIDENCE)
    )
    return union(*each)


@cache
def select_records(*given: str) -> Select[Any]:
    """Return runs by the order in which they were stored, those ``after`` a row id; ``given`` names what narrows, of
    ``workload``, ``target``, ``space``, ``job`` and ``traces``."""
    by = {"workload": _RUNS.workload_key == _WORKLOAD, "target": _RUNS.target_key == _TARGET}
    by |= {"space": _RUNS.space_key == _SPACE, "job": _RUNS.job == bindparam("job")}
    by["traces"] = _RUNS.trace_key.in_(bindparam("traces", expanding=True))
    later = _RUNS.id > bindparam("after", type_=Integer)
    return select_runs().where(later, *(by[name] for name in given)).order_by(_RUNS.id)
