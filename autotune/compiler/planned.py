"""The schedule of a workload: one that the caller gives, the best measured one, or the default."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotune import te
from autotune.compiler.tiers import Tier, Transfer, transferred
from autotune.database.evidence import Evidence, State
from autotune.database.goal import FASTEST, Goal
from autotune.database.query import Hit, Miss, MissReason
from autotune.database.records import Key, WorkloadRow
from autotune.errors import ScheduleError
from autotune.graph.region import RegionProgram, Workload
from autotune.schedule.trace import Trace
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.database.near import Neighbour
    from autotune.database.records import Footprint
    from autotune.database.store import Database
    from autotune.schedule.schedule import Schedule
    from search_spaces.space import Space

GIVEN = Evidence(State.GIVEN)
"""Of a schedule that a caller gives."""
UNKNOWN = Evidence(State.DEFAULT)
"""Of a default schedule without a database."""
TRANSFERRED = Evidence(State.TRANSFERRED)
"""Of a schedule that was found for another target, for other sizes, or with other code."""
STALE = "what was measured here is stale: other code is generated now"
"""The reason where a run is no answer any more."""


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A program and its schedule."""

    program: RegionProgram
    schedule: Schedule


@dataclass(frozen=True)
class Planned:
    """The schedule of a workload, how well it is known to be the one to use, and why there is none of the database.

    ``latency_ns`` and ``footprint`` are what was measured of a schedule of the database, None for others. ``tier`` says
    where it comes from, ``transfer`` what is known of one that was found for another target or other sizes, ``found``
    what the database answered for exactly this target in the search ``space``.
    ``stale``: that is of other code than is generated now.
    ``scheduled`` is the trace already applied to the program, where that was done to choose it.
    """

    workload: Workload
    trace: Trace
    evidence: Evidence
    reason: str = ""
    latency_ns: float | None = None
    footprint: Footprint | None = None
    tier: Tier = Tier.ANALYTIC
    transfer: Transfer | None = None
    found: Hit | Miss | None = field(default=None, compare=False, repr=False)
    space: Space | None = field(default=None, compare=False, repr=False)
    stale: bool = False
    scheduled: Scheduled | None = field(default=None, compare=False, repr=False)


def schedule_for(
    workload: Workload,
    target: Target,
    database: Database | None,
    schedules: Mapping[str, Trace],
    goal: Goal = FASTEST,
    stale: Collection[int] = (),
) -> Planned:
    """Return the schedule of a workload: given, else the database's best for the goal, else what it knows of other
    targets and sizes, else the analytic model's pick.

    What is transferred serves latency only: nothing is known of its memory and size. A stored schedule that does not
    apply any more counts as a miss; the reason says so. What the database found is no answer if the number of its run
    is among those that are ``stale``: it is transferred too.
    """
    if workload.key in schedules:
        return Planned(workload, schedules[workload.key], GIVEN, tier=Tier.GIVEN)
    from search_spaces.spaces import space_for

    space = space_for(workload, target)
    if database is None:
        return replace(_default(workload, space, "no database was given"), space=space)
    found = database.lookup(workload.key, target.key, space.key, goal)
    if isinstance(found, Hit) and found.best.id in stale:
        other = _of_other_code(workload, target, space, database, found, goal)
        return replace(other, found=found, space=space, stale=True)
    return replace(_resolved(workload, target, space, database, found, goal), found=found, space=space)


def _of_other_code(
    workload: Workload, target: Target, space: Space, database: Database, found: Hit, goal: Goal
) -> Planned:
    """Return the schedule that follows from a run of other code."""
    if not goal.is_latency:
        return _default(workload, space, STALE)
    from autotune.database.near import (  # SQLAlchemy is loaded by what has a database
        FieldDifference,
        Neighbour,
    )

    same = Neighbour(
        WorkloadRow.of(workload),
        target,
        Key(workload.key, target.key, space.key),
        found.runs,
        0.0,
        True,
        (FieldDifference("code", "this version's", "that of another version"),),
        stale=True,
    )
    own = [(same, found)] if found.evidence.searched else []
    return _transferred(workload, target, space, database, STALE, own)


def _resolved(
    workload: Workload, target: Target, space: Space, database: Database, found: Hit | Miss, goal: Goal
) -> Planned:
    """Return the schedule that follows from what the database answered."""
    if isinstance(found, Miss):
        if not goal.is_latency or found.reason is MissReason.ALL_FAILED:
            return _default(workload, space, found.found, found.evidence)
        return _transferred(workload, target, space, database, found.found)
    try:
        trace = Trace.from_json(found.best.trace_json)
        applied = apply(workload, trace)
    except ScheduleError as error:
        return _default(workload, space, f"the stored schedule does not apply: {error}")
    evidence = evidence_in(space, found.evidence)
    best = found.best
    return Planned(
        workload,
        trace,
        evidence,
        latency_ns=best.latency_ns,
        footprint=best.footprint,
        tier=Tier.EXACT,
        scheduled=applied,
    )


def _transferred(
    workload: Workload,
    target: Target,
    space: Space,
    database: Database,
    missed: str,
    own: Sequence[tuple[Neighbour, Hit]] = (),
) -> Planned:
    """Return the transferred schedule of other targets and sizes, else the default with the reason why not."""
    from cost_models import analytic

    transfer, reason = transferred(workload, target, space, database, own)
    if transfer is None:
        return _default(workload, space, "; ".join(filter(None, (missed, reason))))
    if transfer.config == analytic.default_config(space):
        return replace(_default(workload, space, str(transfer)), tier=transfer.tier, transfer=transfer)
    program = workload.expressions
    schedule = space.apply(program, transfer.config)
    return Planned(
        workload,
        schedule.trace,
        TRANSFERRED,
        str(transfer),
        tier=transfer.tier,
        transfer=transfer,
        scheduled=Scheduled(program, schedule),
    )


def _default(workload: Workload, space: Space, reason: str, evidence: Evidence = UNKNOWN) -> Planned:
    from cost_models import analytic

    program = workload.expressions
    schedule = space.apply(program, analytic.default_config(space))
    evidence = evidence_in(space, evidence)
    return Planned(workload, schedule.trace, evidence, reason, scheduled=Scheduled(program, schedule))


def evidence_in(space: Space, evidence: Evidence) -> Evidence:
    """Return the meaning of the database's evidence in a space: without a choice, nothing has to be searched."""
    return Evidence(State.ONLY) if _single(space) and not evidence.searched else evidence


def _single(space: Space) -> bool:
    return all(len(knob.values) == 1 for knob in space.knobs)


def apply(workload: Workload, trace: Trace) -> Scheduled:
    """Return the program of the workload and its schedule after the trace.

    Raises:
        ScheduleError: the trace does not apply to this program.
    """
    program = workload.expressions
    return Scheduled(program, trace.apply(te.create_schedule(list(program.outputs))))


__all__ = ["GIVEN", "TRANSFERRED", "Planned", "Scheduled", "apply", "evidence_in", "schedule_for"]
