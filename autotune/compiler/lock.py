"""Lock files: the options and schedules of a compiled model as text, so that other machines compile the same code.

The form is JSON, a step of a schedule a line::

    format, version      "autotune-lock", 2
    model                what it was called
    versions             of autotune and llvmlite, which made the code
    target               the machine that the code is for
    layout, tolerance    what changes the dispatches of the model and their options
    shapes               sizes that the model leaves open, by the name of a dimension or of an input
    decisions            the options of sites of the whole model, by kind (since version 2)
    placement            devices of its parts by patterns, if it runs on several (since version 2)
    sites                the option of each workload that has several, by workload key
    schedules            of each workload: its dispatches, how well the schedule was known, its trace, and the
                         SHA-256 of the object code
    others               target, sites and schedules of each further target of its devices (since version 2)

Reading it executes nothing: traces are data that is checked step by step when it is applied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autotune.errors import ArtifactError, LockError, ScheduleError
from autotune.files import replacing
from autotune.foreign import parse_json
from autotune.runtime.artifacts.manifest import decode
from autotune.schedule.trace import Trace
from autotune.target import Target

FORMAT = "autotune-lock"
VERSION = 2
_WITHOUT_DECISIONS = 1
"""The version whose locks have no decisions: those of an untuned model on one device."""
_MOST_BYTES = 64 << 20

AGAIN = "make the lock again by `autotune lock`"


@dataclass(frozen=True)
class LockedShape:
    """The shape of an input, or the size of a dimension, that the model leaves open."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LockedSchedule:
    """The schedule of a workload: ``names`` are its dispatches, ``evidence`` says how well it was known to be the one
    to use, ``trace`` is the trace as canonical JSON, ``code`` the SHA-256 of the object code that it made."""

    workload: str
    kind: str
    names: tuple[str, ...]
    evidence: str
    code: str
    trace: str


@dataclass(frozen=True)
class LockedTarget:
    """The options of workloads, by their keys, and the schedules that a lock has for one target."""

    target: Target
    sites: Mapping[str, str]
    schedules: tuple[LockedSchedule, ...]


@dataclass(frozen=True)
class Lock:
    """The contents of a lock file."""

    format: str
    version: int
    model: str
    versions: Mapping[str, str]
    target: Target
    layout: str
    tolerance: float
    shapes: tuple[LockedShape, ...]
    decisions: Mapping[str, str]
    placement: Mapping[str, str]
    sites: Mapping[str, str]
    schedules: tuple[LockedSchedule, ...]
    others: tuple[LockedTarget, ...]

    @property
    def targets(self) -> tuple[LockedTarget, ...]:
        """Return what there is for each target."""
        return (LockedTarget(self.target, self.sites, self.schedules), *self.others)

    @property
    def workloads(self) -> int:
        """Return the number of schedules of all targets."""
        return sum(len(each.schedules) for each in self.targets)

    def of_target(self, target: Target) -> Lock:
        """Return the lock of the parts that run on one target; raises LockError where there is none."""
        found = next((each for each in self.targets if each.target == target), None)
        if found is None:
            names = ", ".join(each.target.name for each in self.targets)
            raise LockError(
                f"the lock of {self.model!r} has code for {names}, and a device here is {target.name}; {AGAIN}"
            )
        return replace(self, target=target, sites=found.sites, schedules=found.schedules, others=())

    @property
    def sizes(self) -> dict[str, tuple[int, ...]] | None:
        """Sizes by name; None without any."""
        return {shape.name: shape.shape for shape in self.shapes} or None

    def to_json(self) -> str:
        """Return the canonical text, read back by :meth:`from_json`."""
        values = asdict(self)
        for part in (values, *values["others"]):
            for schedule in part["schedules"]:
                schedule["trace"] = json.loads(schedule["trace"])
        return _pretty(values) + "\n"

    @staticmethod
    def from_json(text: str | bytes) -> Lock:
        """Read what :meth:`to_json` wrote; raises LockError that says where anything else is wrong."""
        try:
            raw = parse_json(text, object_pairs_hook=_once)
        except ValueError as error:
            raise LockError(f"it is not JSON: {error}; {AGAIN}") from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise LockError(
                f"it is not a lock: its format is not {FORMAT!r}; give what `autotune lock` wrote"
            )
        if raw.get("version") == _WITHOUT_DECISIONS:
            raw = {"decisions": {}, "placement": {}, "others": [], **raw, "version": VERSION}
        if raw.get("version") != VERSION:
            found = str(raw.get("version"))[:20]
            raise LockError(f"it has version {found}, this autotune reads version {VERSION}; {AGAIN}")
        try:
            lock = decode(Lock, _with_traces_as_text(raw), "lock")
            _check(lock)
        except (ArtifactError, ScheduleError) as error:
            raise LockError(f"{error}; {AGAIN}") from error
        return lock

    @staticmethod
    def read(path: Path) -> Lock:
        """Read a file; raises LockError that names it."""
        try:
            with open(path, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise LockError(f"cannot read the lock {path}: {error.strerror or error}") from error
        if len(data) > _MOST_BYTES:
            raise LockError(f"cannot use the lock {path}: it has more than {_MOST_BYTES >> 20} MiB")
        try:
            return Lock.from_json(data)
        except LockError as error:
            raise LockError(f"cannot use the lock {path}: {error}") from error

    def write(self, path: Path) -> None:
        """Write a file, all or nothing; raises LockError."""
        try:
            with replacing(path) as temporary:
                temporary.write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            raise LockError(f"cannot write the lock {path}: {error.strerror or error}") from error


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key is there twice in {sorted(found)[:4]}")
    return found


def _with_traces_as_text(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same with the traces as their readers take them: the rest of the types is checked by the fields."""
    schedules, others = raw.get("schedules"), raw.get("others")
    made = dict(raw)
    if isinstance(schedules, list):
        made["schedules"] = [_with_trace_as_text(item) for item in schedules]
    if isinstance(others, list):
        made["others"] = [_with_traces_as_text(each) if isinstance(each, dict) else each for each in others]
    return made


def _with_trace_as_text(item: Any) -> Any:
    if not isinstance(item, dict) or "trace" not in item:
        return item
    return {**item, "trace": json.dumps(item["trace"], separators=(",", ":"))}


def _check(lock: Lock) -> None:
    """Check what the types of the fields do not say."""
    for part in lock.targets:
        known = set[str]()
        for number, schedule in enumerate(part.schedules):
            if schedule.workload in known:
                key = schedule.workload[:12]
                raise LockError(f"lock.schedules[{number}]: the workload {key} is there twice")
            known.add(schedule.workload)
            Trace.from_json(schedule.trace)


def _pretty(value: Any, indent: str = "") -> str:
    """Return JSON with a line for each entry of an object and each step of a trace."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        lines = [f"{inner}{json.dumps(name)}: {_pretty(entry, inner)}" for name, entry in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(inner + _pretty(entry, inner) for entry in value) + f"\n{indent}]"
    if isinstance(value, list | tuple) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(inner + json.dumps(entry) for entry in value) + f"\n{indent}]"
    return json.dumps(value)


__all__ = ["AGAIN", "FORMAT", "VERSION", "Lock", "LockedSchedule", "LockedShape", "LockedTarget"]
