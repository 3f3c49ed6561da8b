"""Compiling by a lock: its plan in the place of a database's, and the same machine code or an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.compiler.estimate import estimated
from autotune.compiler.lock import AGAIN, FORMAT, VERSION, Lock, LockedSchedule, LockedShape, LockedTarget
from autotune.compiler.plan import Plan, Ranking, regions_of
from autotune.compiler.planned import Planned, apply
from autotune.compiler.sites.decision import DECIDED, PLACED
from autotune.compiler.tiers import Tier
from autotune.database.evidence import Evidence, State
from autotune.database.goal import FASTEST
from autotune.errors import LockError, ScheduleError
from autotune.frontends.sizes import as_shape
from autotune.graph.region import Workload
from autotune.passes.options import options_of
from autotune.schedule.trace import Trace
from autotune.suggest import counted
from autotune.target import Target
from autotune.versions import versions_of

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation, CompiledSegment

LOCKED = Evidence(State.LOCKED)
"""Of a schedule that a lock has."""


def lock_of(done: Compilation) -> Lock:
    """Return the lock of a compiled model."""
    parts: dict[Target, list[CompiledSegment]] = {}
    for segment in done.segments:
        parts.setdefault(segment.image.target, []).append(segment)
    first, *others = (_locked(target, segments) for target, segments in parts.items())
    metadata = done.segments[0].image.metadata
    return Lock(
        FORMAT,
        VERSION,
        done.program.name,
        versions_of(("autotune", "llvmlite")),
        first.target,
        metadata["layout"],
        done.tolerance,
        tuple(LockedShape(name, as_shape(shape)) for name, shape in (done.shapes or {}).items()),
        json.loads(metadata[DECIDED]),
        json.loads(metadata[PLACED]),
        first.sites,
        first.schedules,
        tuple(others),
    )


def _locked(target: Target, segments: Sequence[CompiledSegment]) -> LockedTarget:
    """Return the options and schedules of segments of one target, which have one plan."""
    plan, names, code = segments[0].plan, dict[str, list[str]](), dict[str, str]()
    for segment in segments:
        code |= _digests(segment)
        for dispatch in segment.image.dispatches:
            names.setdefault(dispatch.workload_key, []).append(dispatch.name)
    schedules = list[LockedSchedule]()
    for key, planned in plan.schedules.items():
        evidence, _ = plan.evidence(key)
        kind, text = planned.workload.kind, planned.trace.to_json()
        schedules.append(LockedSchedule(key, kind, tuple(names.get(key, ())), str(evidence), code[key], text))
    return LockedTarget(target, {key: o.name for key, o in plan.options.items()}, tuple(schedules))


def _digests(segment: CompiledSegment) -> dict[str, str]:
    """Return the digests of the object code of a segment, by workload key."""
    return {key: code_digest(code) for key, code in zip(segment.keys, segment.image.objects, strict=True)}


def locked_plan(lock: Lock, workloads: Sequence[Workload]) -> Plan:
    """Return the plan that a lock has for a model with these workloads; raises LockError where it does not fit."""
    schedules = {schedule.workload: schedule for schedule in lock.schedules}
    rankings = {w.key: _ranking(w, lock) for w in workloads if w.key in lock.sites}
    resulting = {region.key: region for w in workloads for region in regions_of(w, rankings)}
    _check_fit(lock, set(schedules), resulting, set(lock.sites) - set(rankings))
    planned = {key: _planned(schedules[key], region) for key, region in resulting.items()}
    return Plan(rankings, planned, dict.fromkeys(planned, FASTEST))


def _ranking(workload: Workload, lock: Lock) -> Ranking:
    """Return the option that a lock has, as the only one."""
    wanted = lock.sites[workload.key]
    options = options_of(workload, speculative=True, tolerance=lock.tolerance)
    found = next((option for option in options if option.name == wanted), None)
    if found is None:
        raise LockError(
            f"the lock does not fit: it has the option {wanted!r} for the {workload.kind} {workload.key[:12]}, "
            f"whose options are {', '.join(option.name for option in options)}; {AGAIN}"
        )
    return Ranking(workload, tuple(estimated([found], lock.target, 1.0)))


def _check_fit(lock: Lock, locked: set[str], resulting: Mapping[str, Workload], sites: set[str]) -> None:
    """Check that a lock has exactly the workloads of the model."""
    missing = [f"  {w.kind} {key[:12]}" for key, w in resulting.items() if key not in locked]
    left = [s for s in lock.schedules if s.workload not in resulting]
    if not missing and not left and not sites:
        return
    lines = [
        f"the lock of {lock.model!r} does not fit this model, or this autotune divides it otherwise",
        f"  in the model and not in the lock: {len(missing)} of {counted(len(resulting), 'workload')}",
        *("  " + line for line in missing[:4]),
        f"  in the lock and not in the model: {len(left)} of {counted(len(locked), 'workload')}",
        *(f"    {s.kind} {s.workload[:12]} of {', '.join(s.names[:2])}" for s in left[:4]),
        *(
            [f"  in the lock and not in the model: the options of {counted(len(sites), 'workload')}"]
            if sites
            else []
        ),
        f"  locked by {_shown(lock.versions)}; this is {_shown(versions_of(lock.versions))}",
        f"  {AGAIN}",
    ]
    raise LockError("\n".join(lines))


def _planned(schedule: LockedSchedule, workload: Workload) -> Planned:
    trace = Trace.from_json(schedule.trace)
    try:
        applied = apply(workload, trace)
    except ScheduleError as error:
        where = ", ".join(schedule.names[:2]) or workload.kind
        raise LockError(
            f"the schedule that the lock has for {where} does not apply: {error}; {AGAIN}"
        ) from error
    return Planned(
        workload, trace, LOCKED, f"when locked: {schedule.evidence}", tier=Tier.LOCKED, scheduled=applied
    )


def changed_code(lock: Lock, done: Compilation) -> list[LockedSchedule]:
    """Return the schedules of a lock that have made other machine code now than when it was locked."""
    now = dict[tuple[Target, str], str]()
    for segment in done.segments:
        now |= {(segment.image.target, key): code for key, code in _digests(segment).items()}
    return [
        schedule
        for part in lock.targets
        for schedule in part.schedules
        if now[part.target, schedule.workload] != schedule.code
    ]


def check_code(lock: Lock, done: Compilation) -> None:
    """Raise LockError unless the machine code is what was locked."""
    changed = changed_code(lock, done)
    if not changed:
        return
    shown = [f"  {', '.join(s.names[:3])} ({s.kind} {s.workload[:12]})" for s in changed[:4]]
    raise LockError(
        "\n".join(
            [
                f"the locked schedules make other machine code here for {len(changed)} of {lock.workloads} "
                "workloads:",
                *shown,
                *([f"  ... and {len(changed) - len(shown)} more"] if len(changed) > len(shown) else []),
                f"  locked by {_shown(lock.versions)}; this is {_shown(versions_of(lock.versions))}",
                f"  use the versions that it was locked by, or {AGAIN}",
            ]
        )
    )


def _shown(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def code_digest(code: bytes) -> str:
    """Return the digest of object code in a lock."""
    return hashlib.sha256(code).hexdigest()


__all__ = ["LOCKED", "changed_code", "check_code", "code_digest", "lock_of", "locked_plan"]
