"""Matches beside the exact key: the workload on other targets, and workloads of other sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from autotune.database import rows, schema
from autotune.database.describe import dtypes_of, operators_of, shapes_of
from autotune.database.distance import TargetDistance
from autotune.database.records import Key, Outcome, WorkloadRow
from autotune.target import Target

_ATTRIBUTE_WEIGHT = 4.0
"""The weight of a window or a stride against the size of a tensor."""
_CLOSEST = 16
"""Of so many workloads the runs are looked for."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
_ATTRIBUTES = re.compile(r"\{[^{}\n]*\}")


@dataclass(frozen=True)
class FieldDifference:
    """A field in which what was asked for differs from what was found."""

    field: str
    asked: str
    found: str

    def __str__(self) -> str:
        return f"{self.field}: {self.asked} here, {self.found} there"


@dataclass(frozen=True)
class Neighbour:
    """A workload with runs that worked, near what was asked for.

    ``distance`` is that of the sizes: the mean over all of them of the factor between them, as its log2; 0 for the same
    workload. Of ``kin``, a workload of the same kind and another structure, it is that of the operations and bytes.
    ``compatible``: its schedules may be used on the target that was asked for.
    """

    workload: WorkloadRow
    target: Target
    key: Key
    runs: int
    distance: float
    compatible: bool
    differences: tuple[FieldDifference, ...]
    kin: bool = False
    stale: bool = False
    """It is the workload itself, measured here with other code."""
    apart: TargetDistance = field(default_factory=TargetDistance)
    """The distance of its target."""

    @property
    def what(self) -> str:
        """In words what differs."""
        return "; ".join(map(str, self.differences))


@dataclass(frozen=True)
class Sizes:
    """A workload's text without its numbers, and these: those of types, then those of attributes."""

    structure: str
    types: tuple[int, ...]
    attributes: tuple[int, ...]

    def distance(self, other: Sizes) -> float:
        """Return the distance of the sizes of a workload of the same structure from these."""
        pairs = [(a, b, 1.0) for a, b in zip(self.types, other.types, strict=True)]
        pairs += [(a, b, _ATTRIBUTE_WEIGHT) for a, b in zip(self.attributes, other.attributes, strict=True)]
        apart = sum(w * abs(math.log2((1 + abs(a)) / (1 + abs(b))) or (a != b)) for a, b, w in pairs)
        return apart / max(1.0, sum(w for _, _, w in pairs))


@lru_cache(maxsize=8192)
def sizes_of(text: str) -> Sizes:
    """Return the sizes in the text of a workload.

    >>> sizes_of("v0 = Transpose(i0) {perm=[1, 0]} : float32[16, 3]")
    Sizes(structure='v0 = Transpose(i0) {perm=[#, #]} : float32[#, #]', types=(16, 3), attributes=(1, 0))
    """
    attributes = [int(n) for found in _ATTRIBUTES.findall(text) for n in _NUMBER.findall(found)]
    types = [int(n) for n in _NUMBER.findall(_ATTRIBUTES.sub("", text))]
    return Sizes(_NUMBER.sub("#", text), tuple(types), tuple(attributes))


def compatible(asked: Target, found: Target) -> bool:
    """Return whether schedules for ``found`` may be used on ``asked``: vectors of the same width, and no instruction
    that it lacks. All else is a distance (:class:`autotune.database.distance.TargetDistance`)."""
    return asked.vector_bits == found.vector_bits and not asked.lacks(found)


def differences(asked: Target, found: Target) -> tuple[FieldDifference, ...]:
    """Return the fields in which two targets differ; of the instructions those that one of them lacks."""
    differing = []
    for name, here in vars(asked).items():
        there = getattr(found, name)
        if name == "features":
            here, there = sorted({*here} - {*there}), sorted({*there} - {*here})
            if here or there:
                differing.append(FieldDifference("instructions", _listed(here), _listed(there)))
        elif here != there:
            shown = _bytes if name.endswith("_bytes") else str
            differing.append(FieldDifference(name.removesuffix("_bytes"), shown(here), shown(there)))
    return tuple(differing)


def _listed(names: list[str]) -> str:
    return f"also {', '.join(names)}" if names else "no other"


def _bytes(value: int) -> str:
    return f"{value >> 10} KiB" if value < 1 << 20 else f"{value / (1 << 20):g} MiB"


def neighbours_of(
    connection: Connection,
    asked: WorkloadRow,
    target: Target,
    space: str,
    *,
    any_target: bool,
    with_kin: bool,
) -> list[Neighbour]:
    """Return the near matches of a key, the nearest first: the same workload on other targets, then other sizes.

    ``with_kin``: then workloads of the same kind and another structure. Those of targets that are not compatible come
    last, and only with ``any_target``.
    """
    known = {row.key: rows.target_from_row(row) for row in connection.execute(select(schema.targets))}
    targets = {key: other for key, other in known.items() if any_target or compatible(target, other)}
    near = [(False, 0.0, asked), *_of_the_kind(connection, asked, with_kin)]
    measured = _measured(connection, [row.key for _, _, row in near], targets)
    found = []
    for kin, distance, row in near:
        differing = _of_another_structure(asked, row) if kin else _sizes_differing(asked, row)
        for key, runs in measured[row.key]:
            if key != Key(asked.key, target.key, space):
                there = targets[key.target]
                found.append(_neighbour(row, there, key, runs, distance, differing, target, kin))
    return sorted(found, key=lambda n: (not n.compatible, n.kin, n.distance, n.apart.loss))


def _of_the_kind(
    connection: Connection, asked: WorkloadRow, with_kin: bool
) -> list[tuple[bool, float, WorkloadRow]]:
    """Return the closest workloads of other sizes and, if so asked, those of another structure in the same types, each
    with its distance: a schedule of another precision is for other instructions and other bytes."""
    columns = schema.workloads.c
    mine, dtypes = sizes_of(asked.text), dtypes_of(asked.text)
    query = select(schema.workloads).where(columns.kind == asked.kind, columns.key != asked.key)
    near = []
    for found in connection.execute(query):
        # Most are of another structure: only what is near becomes a value, and what has no text says so.
        theirs = sizes_of(found.text if isinstance(found.text, str) else rows.workload_from_row(found).text)
        kin = theirs.structure != mine.structure
        if not kin or with_kin:
            row = rows.workload_from_row(found)
            if kin and dtypes_of(row.text) != dtypes:
                continue
            near.append((kin, _of_work(asked, row) if kin else mine.distance(theirs), row))
    return sorted(near, key=lambda entry: (entry[0], entry[1], entry[2].key))[:_CLOSEST]


def _of_work(one: WorkloadRow, other: WorkloadRow) -> float:
    """Return the distance of the operations and the bytes of two workloads, as log2 of the factors."""
    pairs = ((one.flops, other.flops), (one.bytes, other.bytes))
    return sum(abs(math.log2((1 + a) / (1 + b))) for a, b in pairs)


def _measured(
    connection: Connection, workloads: Sequence[str], targets: Collection[str]
) -> dict[str, list[tuple[Key, int]]]:
    """Return the keys of each workload that have runs that worked, with their number: of each target that of the newest
    search space, the newest first."""
    columns = schema.runs.c
    groups = (columns.workload_key, columns.target_key, columns.space_key)
    query = (
        select(*groups, func.count().label("runs"))
        .where(columns.workload_key.in_(list(workloads)), columns.target_key.in_(list(targets)))
        .where(columns.outcome == Outcome.OK.value)
        .group_by(*groups)
        .order_by(func.max(columns.id).desc())
    )
    newest: dict[str, dict[str, tuple[Key, int]]] = {workload: {} for workload in workloads}
    for row in connection.execute(query):
        key = Key(row.workload_key, row.target_key, row.space_key)
        newest[key.workload].setdefault(key.target, (key, row.runs))
    return {workload: list(found.values()) for workload, found in newest.items()}


def _neighbour(
    workload: WorkloadRow,
    there: Target,
    key: Key,
    runs: int,
    distance: float,
    sizes: tuple[FieldDifference, ...],
    target: Target,
    kin: bool,
) -> Neighbour:
    """Return a workload on one of its targets, with all in which it differs."""
    differing = (*sizes, *differences(target, there))
    if not differing:
        differing = (FieldDifference("search space", "this version's", "that of another version"),)
    apart = TargetDistance.of(target, there)
    usable = compatible(target, there)
    return Neighbour(workload, there, key, runs, distance, usable, differing, kin, apart=apart)


def _of_another_structure(asked: WorkloadRow, found: WorkloadRow) -> tuple[FieldDifference, ...]:
    """Return the operators and the shapes of two workloads."""
    fields = (("operators", operators_of), ("shapes", shapes_of))
    return tuple(
        FieldDifference(name, of(asked.text), of(found.text))
        for name, of in fields
        if of(asked.text) != of(found.text)
    )


def _sizes_differing(asked: WorkloadRow, found: WorkloadRow) -> tuple[FieldDifference, ...]:
    """Return the lines of two workloads of the same structure that differ, by the value that each declares."""
    pairs = [
        (a.strip(), b.strip())
        for a, b in zip(asked.text.splitlines(), found.text.splitlines(), strict=True)
        if a != b and not a.strip().startswith("v")
    ]
    split = [(a.partition(": "), b.partition(": ")) for a, b in pairs]
    return tuple(FieldDifference(a[0].split()[-1], a[2], b[2]) for a, b in split)


__all__ = [
    "FieldDifference",
    "Neighbour",
    "Sizes",
    "compatible",
    "differences",
    "neighbours_of",
    "sizes_of",
]
