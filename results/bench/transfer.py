"""The speed of schedules that were found for another size, compared with what a job finds for the size itself.

The shapes of a family are independent operators of one model, so that a job tunes them together and what is compared
is read where schedules are used, a dispatch at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.tables import duration, number, plain
from autotune.compiler import Compilation, compile_in_detail, divide
from autotune.compiler.request import CompileRequest
from autotune.compiler.tiers import ERRORS, LATENCY_ERRORS, Tier
from autotune.database.records import SAME_CODE, Ratio
from autotune.errors import MeasureError
from autotune.files import scratch_folder
from autotune.passes.options import DIRECT
from autotune.target import Target
from autotune.tuning.api import tune
from autotune.tuning.compare.paired import ratio
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.measure.turns import Rounds, Turns
from autotune.tuning.measure.whole_model import Profile
from cost_models.interval import ConfidenceInterval, around
from results.bench import neighbours
from results.bench.neighbours import Pair, model

PROCESSES = 9
WANTED = 0.93
"""Of the speed of a tuned schedule."""
_ROUNDS = 5
"""Of each process."""


@dataclass(frozen=True)
class Expectation:
    """An expectation of one dispatch by a transferred schedule, and its reading; ``ratio`` and ``expected_ratio``
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
        """Return whether a neighbour's schedule serves any of its dispatches."""
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
    target = Target.detect()
    parts = divide(asked, target=target)
    workload_of = {output: d.workload.key for d in parts.dispatches for output in d.outputs}
    read = [_Read(version, profile) for version, profile in zip(versions, profiles, strict=True)]
    return [
        _row(pair, workload_of[output], output, *read)
        for pair, output in zip(pairs, asked.outputs, strict=True)
    ]


def _profiles(versions: Sequence[Compilation], processes: int) -> list[Profile]:
    """Return profiles of versions of a model, interleaved in fresh processes."""
    most = _ROUNDS * processes
    with Turns(0) as turns:
        turns.start(processes)
        for version in versions:
            turns.add(version.image)
        read = turns.profiles(Rounds(most, least=most, processes=processes), lambda: False)
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
        """Return the code of a dispatch: its workloads and the keys of their schedules."""
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
    for step, at in asked.steps(name).items():
        transfer = asked.version.plan.schedules[step[1]].transfer
        if transfer is None:
            continue
        mine = asked.profile.ns[:, at]
        found = Expectation(transfer.tier.value, transfer.latency_ns, float(np.median(mine)))
        if transfer.ratio != SAME_CODE and step in untuned:
            there = ratio(mine, default.profile.ns[:, untuned[step]], _ROUNDS)
            found = replace(found, expected_ratio=transfer.ratio.median, ratio=there.median)
        yield found


def geometric_mean(ratios: Sequence[Ratio]) -> ConfidenceInterval:
    """Return the mean of the speeds that belong to ratios of latencies, with its interval over shapes."""
    return ConfidenceInterval.of(np.array([-np.log(one.median) for one in ratios])).map(np.exp)


def measure(
    say: Say,
    families: Sequence[str],
    trials: int,
    shapes: int | None,
    processes: int,
    folder: Path | None,
    threads: Sequence[int],
) -> Iterator[Sequence[Record]]:
    """Yield the records of one family after the other: of its shapes, and of what was expected of their dispatches."""
    options.check_known(families, neighbours.PAIRS, "family")
    pairs = neighbours.pairs(families, shapes)
    with nullcontext(folder) if folder else scratch_folder("autotune-bench-") as where:
        for count in threads:
            for rows in measured(pairs, trials, count, processes, where):
                say(f"{rows[0].family}: {geometric_mean([row.asked for row in rows])}")
                yield records_of(rows, count)


def records_of(rows: Sequence[Row], threads: int) -> list[Record]:
    """Return the records of shapes, and those of the expectations of their dispatches."""
    shapes = [{field.name: getattr(row, field.name) for field in fields(row)} for row in rows]
    found: list[Record] = [
        {"of": SHAPE, "threads": threads, **shape, "served": row.from_neighbour}
        for shape, row in zip(shapes, rows, strict=True)
    ]
    for one in (expectation for row in rows for expectation in row.expectations):
        known = {
            "ratio to the default": (one.expected_ratio, one.ratio),
            "latency": (one.expected_ns, one.ns),
        }
        for what, (said, got) in known.items():
            pair = {"said": said, "got": got} if said and got else {}
            found.append({"of": EXPECTATION, "threads": threads, "what": what, **pair})
    return found


SHAPE, EXPECTATION = "shape", "expectation"
"""The kind of a record."""
_STATED = {"ratio to the default": ERRORS[Tier.SHAPE], "latency": LATENCY_ERRORS[Tier.SHAPE]}
ABOUT = (
    "Shapes that were never tuned, answered from a database that knows a neighbour of each: another batch or length, "
    "other channels, another image. Beside them the schedules that a job of as many trials finds for the shapes "
    "themselves, and the defaults."
)


def _text(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))


def _algorithm(rows: FrameRows) -> str | None:
    used, own = rows.get("options")
    return str(used) if used == own else f"{used} ({own})"


def _speeds(column: str) -> Callable[[FrameRows], Any]:
    """Return what reads a ratio of one shape with whether a neighbour serves it, or the mean over several shapes."""

    def read(rows: FrameRows) -> Any:
        if len(rows) == 1:
            return rows.get(column), rows.get("served")
        return geometric_mean(rows.all(column))

    return read


def _served(values: Sequence[tuple[Ratio, bool]]) -> ConfidenceInterval | None:
    found = [one for one, served in values if served]
    return geometric_mean(found) if found else None


def _speed(value: Any) -> str:
    if value is None or isinstance(value, ConfidenceInterval):
        return plain(value)
    one: Ratio = value[0]
    if one.interval is None or one == SAME_CODE:
        return f"{1 / one.median:.2f}"
    low, high = one.interval
    return f"{1 / one.median:.2f} ({1 / high:.2f} to {1 / low:.2f})"


def _single(read: Callable[[FrameRows], str | None]) -> Callable[[FrameRows], str | None]:
    """Return what reads one shape, and nothing of all together."""
    return lambda rows: read(rows) if len(rows) == 1 else ""


def _pairs(rows: FrameRows) -> list[tuple[float, float]]:
    return [(row["said"], row["got"]) for row in rows if row["said"]]


def _of_logs(compute: Callable[[Any], float]) -> Callable[[FrameRows], float | None]:
    def read(rows: FrameRows) -> float | None:
        found = _pairs(rows)
        return float(compute(np.array([np.log(got / said) for said, got in found]))) if found else None

    return read


def _covered(rows: FrameRows) -> str | None:
    found = _pairs(rows)
    intervals = [(around(said, _STATED[rows.get("what")]), got) for said, got in found]
    inside = sum(low <= got <= high for (low, high), got in intervals)
    return f"{inside} of {len(found)}" if found else None


EXPERIMENT = Experiment(
    title="Schedules from the nearest shape",
    about=ABOUT,
    summary="Measure how fast schedules are that were found for other shapes; of all FAMILIES by default.",
    example="softmax pool --trials 32 -o results/transfer.md",
    options=(
        options.words("families"),
        options.number("--trials", 32, "Of each shape, those of its algorithms together."),
        options.number("--shapes", None, "So many shapes; all (30) by default."),
        options.number("--processes", 9, "Fresh processes that read the versions of a family."),
        options.folder(
            "--folder",
            "Keep databases and rows here; a family whose rows are there is not measured again.",
        ),
        options.threads("2"),
    ),
    measure=measure,
    views=(
        TableView(
            "Speed, {threads}",
            ("family", "shape"),
            (
                Column("asked for", lambda rows: f"{rows.get('family')} {_text(rows.get('shape'))}"),
                Column("tuned", _single(lambda rows: _text(rows.get("known")))),
                Column("tier", _single(lambda rows: ", ".join(rows.get("tiers")))),
                Column("algorithm", _single(_algorithm)),
                Column("tuned latency", _single(lambda rows: duration(rows.get("tuned_ns")))),
                Column("asked ÷ tuned", _speeds("asked"), _speed, _served),
                Column("default ÷ tuned", _speeds("default"), _speed, _served),
            ),
            ("threads",),
            of=SHAPE,
            last="nearest shape",
            overall="all",
            notes=lambda rows: [
                f"nearest shape: the {sum(rows.all('served'))} of {len(rows)} shapes that a neighbour serves",
                "tier: where the schedules come from that a model of the asked shapes gets with the database of the "
                "known ones; several where an algorithm has several dispatches",
                "asked, default: their speed over that of the schedule which a job of as many trials found for the "
                "shape itself, with 95 % intervals, interleaved in fresh processes; 1.00 where the code is the same",
                "the last rows: geometric means with 95 % intervals over shapes (bootstrap)",
            ],
        ),
        TableView(
            "Expectations, {threads}",
            ("what",),
            (
                Column("expected", "what"),
                Column("dispatches", lambda rows: len(_pairs(rows))),
                Column("bias", _of_logs(np.mean), number(2)),
                Column("error", _of_logs(lambda logs: float(np.sqrt((logs**2).mean()))), number(2)),
                Column("error that is stated", lambda rows: _STATED[rows.get("what")], number(2)),
                Column("covered", _covered),
            ),
            ("threads",),
            of=EXPECTATION,
            notes=(
                "each dispatch whose schedule was found for another size: what was said of it and what was read",
                "bias and error: the mean and the root mean square of the logarithm of what was read over what was "
                "expected",
                "covered: how many of the 95 % intervals held what was read",
            ),
        ),
    ),
)

__all__ = [
    "EXPERIMENT",
    "PROCESSES",
    "WANTED",
    "Expectation",
    "Row",
    "geometric_mean",
    "measured",
    "records_of",
]
