"""How fast a schedule is that was found for another size: beside what a job finds for the size itself.

The shapes of a family are independent operators of one model, so that a job tunes them together and what is compared
is read where schedules are used, a dispatch at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.bench.tables import NOTHING, Table, duration
from autotune.compiler import Compilation, compile_in_detail, divide
from autotune.compiler.request import CompileRequest
from autotune.compiler.tiers import ERRORS, LATENCY_ERRORS, Tier
from autotune.database.records import SAME_CODE, Ratio
from autotune.errors import MeasureError
from autotune.passes.options import DIRECT
from autotune.target import Target
from autotune.tuning.api import tune
from autotune.tuning.budget import Budget
from autotune.tuning.paired import ratio
from autotune.tuning.turns import Rounds, Turns
from autotune.tuning.whole_model import Profile
from cost_models.interval import ConfidenceInterval, around
from results.bench.neighbours import Pair, model

PROCESSES = 9
WANTED = 0.93
"""Of the speed of a tuned schedule."""
_ROUNDS = 5
"""Of each process."""
_NOTES = (
    "tier: where the schedules come from that a model of the asked shapes gets with the database of the known ones; "
    "several where an algorithm has several dispatches",
    "asked, default: their speed over that of the schedule which a job of as many trials found for the shape itself, "
    "with 95 % intervals, read in turns in fresh processes; 1.00 where the code is the same",
    "all: geometric means with 95 % intervals over shapes (bootstrap)",
)
_EXPECTED_NOTES = (
    "each dispatch whose schedule was found for another size: what was said of it beside what was read",
    "bias and error: the mean and the root mean square of the logarithm of what was read over what was expected",
    "covered: how many of the 95 % intervals held what was read",
)


@dataclass(frozen=True)
class Expectation:
    """What was expected of one dispatch by a transferred schedule, and what was read; ``ratio`` and ``expected_ratio``
    are over the default, None where the schedule is the default."""

    tier: str
    expected_ns: float
    ns: float
    expected_ratio: float | None = None
    ratio: float | None = None


@dataclass(frozen=True)
class Row:
    """One shape that was asked for. ``asked`` and ``default`` are latencies over the tuned one's, ``tuned_ns``."""

    family: str
    known: tuple[int, ...]
    shape: tuple[int, ...]
    tiers: tuple[str, ...]
    options: tuple[str, str]
    """The algorithm that is used with the database of the known shape, and with its own."""
    tuned_ns: float
    asked: Ratio
    default: Ratio
    expectations: tuple[Expectation, ...]

    @property
    def from_neighbour(self) -> bool:
        """Whether a neighbour's schedule serves any of its dispatches."""
        return Tier.SHAPE.value in self.tiers

    def to_json(self) -> dict[str, Any]:
        """All of it, latencies in ns."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Row:
        """The row that :meth:`to_json` gave."""
        return Row(
            value["family"],
            tuple(value["known"]),
            tuple(value["shape"]),
            tuple(value["tiers"]),
            (value["options"][0], value["options"][1]),
            value["tuned_ns"],
            _ratio(value["asked"]),
            _ratio(value["default"]),
            tuple(Expectation(**one) for one in value["expectations"]),
        )


def _ratio(value: Mapping[str, Any]) -> Ratio:
    interval = value["interval"]
    return Ratio(value["median"], None if interval is None else (interval[0], interval[1]))


def measured(
    pairs: Mapping[str, Sequence[Pair]], trials: int, threads: int, processes: int, folder: Path
) -> Iterator[list[Row]]:
    """The rows of one family after the other; those that the folder has are not measured again.

    Raises what tuning raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for family, chosen in pairs.items():
        stem = f"{re.sub('[^a-z0-9]+', '-', family)}-{len(chosen)}-{trials}-{threads}"
        kept = folder / f"{stem}.json"
        if not kept.exists():
            rows = _measured(family, chosen, trials, threads, processes, folder / stem)
            kept.write_text(json.dumps([row.to_json() for row in rows]), encoding="utf-8")
        yield [Row.from_json(row) for row in json.loads(kept.read_text(encoding="utf-8"))]


def _measured(
    family: str, pairs: Sequence[Pair], trials: int, threads: int, processes: int, stem: Path
) -> list[Row]:
    """Tune the known shapes and, by themselves, those that are asked for; read these by what each job found."""
    asked = model(family, [pair.asked for pair in pairs])
    databases = [stem.with_name(f"{stem.name}-{which}.db") for which in ("known", "asked")]
    for graph, database in zip((model(family, [p.known for p in pairs]), asked), databases, strict=True):
        budget = Budget(trials=trials * len(pairs), per_workload=trials)
        tune(graph, budget=budget, database=database, threads=threads, quiet=True, time_model=False)
    versions = [
        compile_in_detail(CompileRequest(asked, threads=threads, database=d)) for d in (None, *databases)
    ]
    profiles = _profiles(versions, processes)
    parts = divide(asked, activations=Target.detect().activations)
    workload_of = {output: d.workload.key for d in parts.dispatches for output in d.outputs}
    read = [_Read(version, profile) for version, profile in zip(versions, profiles, strict=True)]
    return [
        _row(pair, workload_of[output], output, *read)
        for pair, output in zip(pairs, asked.outputs, strict=True)
    ]


def _profiles(versions: Sequence[Compilation], processes: int) -> list[Profile]:
    """What versions of a model take that take turns in fresh processes."""
    most = _ROUNDS * processes
    dispatches = [[(d.name, d.workload.key) for d in v.partition.dispatches] for v in versions]
    with Turns(0) as turns:
        turns.start(processes)
        for version in versions:
            turns.add(version.image)
        read = turns.profiles(dispatches, Rounds(most, least=most, processes=processes), lambda: False)
    found = [profile for profile in read if profile is not None]
    if len(found) < len(read):
        raise MeasureError(f"a version of {versions[0].partition.name} ended its process: {turns.failures}")
    return found


@dataclass(frozen=True)
class _Read:
    """A version of a model and what it took."""

    version: Compilation
    profile: Profile

    def option(self, workload: str) -> str:
        """The algorithm of a workload."""
        option = self.version.plan.options.get(workload)
        return DIRECT if option is None else option.name

    def name(self, output: str) -> str:
        """The dispatch that an output of the model comes from, without its steps."""
        (name,) = (d.name for d in self.version.partition.dispatches if output in d.outputs)
        return name.partition("/")[0]

    def steps(self, name: str) -> dict[tuple[str, str], int]:
        """The steps of a dispatch by name and workload, with their numbers."""
        numbered = enumerate(self.profile.dispatches)
        return {step: number for number, step in numbered if step[0].partition("/")[0] == name}

    def code(self, name: str) -> list[tuple[str, str]]:
        """What a dispatch runs: workloads and the keys of their schedules."""
        return [(key, self.version.plan.schedules[key].trace.key) for _, key in self.steps(name)]

    def over(self, other: _Read, name: str) -> Ratio:
        """The latency of a dispatch over that in another version."""
        if self.code(name) == other.code(name):
            return SAME_CODE
        mine, theirs = (read.profile.series("", [name]) for read in (self, other))
        return ratio(mine, theirs, _ROUNDS)


def _row(pair: Pair, workload: str, output: str, default: _Read, asked: _Read, tuned: _Read) -> Row:
    name = default.name(output)
    schedules = asked.version.plan.schedules
    tiers = dict.fromkeys(schedules[key].tier.value for _, key in asked.steps(name))
    return Row(
        pair.family,
        pair.known,
        pair.asked,
        tuple(tiers),
        (asked.option(workload), tuned.option(workload)),
        float(np.median(tuned.profile.series("", [name]))),
        asked.over(tuned, name),
        default.over(tuned, name),
        tuple(_expectations(name, default, asked)),
    )


def _expectations(name: str, default: _Read, asked: _Read) -> Iterator[Expectation]:
    """Of each step of a dispatch whose schedule was transferred."""
    untuned = default.steps(name)
    for step, number in asked.steps(name).items():
        transfer = asked.version.plan.schedules[step[1]].transfer
        if transfer is None:
            continue
        mine = asked.profile.ns[:, number]
        found = Expectation(transfer.tier.value, transfer.latency_ns, float(np.median(mine)))
        if transfer.ratio != SAME_CODE and step in untuned:
            there = ratio(mine, default.profile.ns[:, untuned[step]], _ROUNDS)
            found = replace(found, expected_ratio=transfer.ratio.median, ratio=there.median)
        yield found


def geometric_mean(ratios: Sequence[Ratio]) -> ConfidenceInterval:
    """Of the speeds that belong to ratios of latencies, with its interval over shapes."""
    return ConfidenceInterval.of(np.array([-np.log(one.median) for one in ratios])).map(np.exp)


def speeds_table(title: str, rows: Sequence[Row]) -> Table:
    """A row a shape; the last ones have geometric means: of those that a neighbour serves, and of all."""
    lines: list[tuple[str, ...]] = [
        (
            f"{row.family} {_text(row.shape)}",
            _text(row.known),
            ", ".join(row.tiers),
            row.options[0] if row.options[0] == row.options[1] else f"{row.options[0]} ({row.options[1]})",
            duration(row.tuned_ns),
            _speed(row.asked),
            _speed(row.default),
        )
        for row in rows
    ]
    served = [row for row in rows if row.from_neighbour]
    for name, some in (("nearest shape", served), ("all", rows)):
        sides = ([row.asked for row in some], [row.default for row in some])
        means = (str(geometric_mean(side)) if side else NOTHING for side in sides)
        lines.append((f"{name} ({len(some)})", "", "", "", "", *means))
    head = ("asked for", "tuned", "tier", "algorithm", "tuned latency", "asked ÷ tuned", "default ÷ tuned")
    return Table(title, head, tuple(lines), _NOTES)


def _text(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))


def _speed(ratio: Ratio) -> str:
    if ratio.interval is None or ratio == SAME_CODE:
        return f"{1 / ratio.median:.2f}"
    low, high = ratio.interval
    return f"{1 / ratio.median:.2f} ({1 / high:.2f} to {1 / low:.2f})"


def expectations_table(title: str, rows: Sequence[Row]) -> Table:
    """How good expectations of transferred schedules were: of the ratio to the default, and of the latency."""
    every = [expectation for row in rows for expectation in row.expectations]
    ratios = [(e.expected_ratio, e.ratio) for e in every if e.expected_ratio and e.ratio]
    latencies = [(e.expected_ns, e.ns) for e in every]
    lines = [
        (what, *_calibration(found, error))
        for what, found, error in (
            ("ratio to the default", ratios, ERRORS[Tier.SHAPE]),
            ("latency", latencies, LATENCY_ERRORS[Tier.SHAPE]),
        )
    ]
    head = ("expected", "dispatches", "bias", "error", "error that is stated", "covered")
    return Table(title, head, tuple(lines), _EXPECTED_NOTES)


def _calibration(found: Sequence[tuple[float, float]], stated: float) -> tuple[str, ...]:
    if not found:
        return ("0", NOTHING, NOTHING, f"{stated:.2f}", NOTHING)
    logs = np.array([np.log(got / said) for said, got in found])
    inside = sum(
        low <= got <= high for (low, high), got in ((around(said, stated), got) for said, got in found)
    )
    figures = (logs.mean(), np.sqrt((logs**2).mean()), stated)
    return (str(len(found)), *(f"{figure:.2f}" for figure in figures), f"{inside} of {len(found)}")


__all__ = [
    "PROCESSES",
    "WANTED",
    "Expectation",
    "Row",
    "expectations_table",
    "geometric_mean",
    "measured",
    "speeds_table",
]
