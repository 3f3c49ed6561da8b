"""The ranking of measured candidates by the analytic cost model: random samples of spaces of every family."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.replay.recording import CandidateRecording, read_all
from autotune.bench.side_by_side import Pace
from autotune.bench.suites.models import DEFAULT
from autotune.bench.tables import duration, number
from autotune.errors import UsageError
from autotune.graph.region import Workload
from autotune.suggest import counted
from autotune.target import Target
from autotune.tuning.report.units import size
from cost_models import analytic
from cost_models.known_error import LEVEL, KnownError, known_error, of_machine
from cost_models.microarchitectures import CORES
from results.bench import recorded_transfers, regions
from results.bench.whole_models import Foreseen, foresee, geometric_error
from search_spaces.spaces import space_for

T = TypeVar("T")
REGION, MODEL, KNOWN = "region", "model", "known error"
"""The kind of a record."""
Configs = tuple[Mapping[str, int | str | bool], ...]


@dataclass(frozen=True)
class Sample:
    """Random candidates of one workload with their times: minima over all turns, in nanoseconds."""

    family: str
    name: str
    workload: str
    target: str
    configs: Configs
    nanoseconds: tuple[float, ...]

    @cached_property
    def predicted(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The seconds that the model says now of the same candidates [n]."""
        space = space_for(Workload.parse(self.workload), Target.from_json(self.target))
        return analytic.predict(space, self.configs)

    @property
    def group(self) -> str:
        """Its family and target, in words."""
        target = Target.from_json(self.target)
        return f"{self.family}, {target.cpu}, {counted(target.threads, 'thread')}"

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of predicted and measured times."""
        from scipy.stats import spearmanr

        return float(spearmanr(self.predicted, self.nanoseconds).statistic)

    @property
    def scale(self) -> float:
        """The median of predicted over measured time."""
        return float(np.median(self.predicted * 1e9 / np.asarray(self.nanoseconds)))

    @property
    def regret(self) -> float:
        """The measured time of the candidate that the model likes best, over that of the best."""
        measured = np.asarray(self.nanoseconds)
        return float(measured[int(self.predicted.argmin())] / measured.min())

    @property
    def ratio(self) -> float:
        """Expected over measured time of the candidate that the model likes best; known scales are taken out."""
        best = int(self.predicted.argmin())
        scale = known_error(self.family).scale * of_machine(Target.from_json(self.target)).scale
        return float(self.predicted[best] * 1e9 / self.nanoseconds[best] / scale)


def cases(families: Sequence[str] = ()) -> list[tuple[str, str, Workload]]:
    """Family, name and workload of the suite, of some families or of all."""
    return [
        (family, name, workload)
        for family, named in regions.workloads().items()
        if not families or family in families
        for name, workload in named.items()
    ]


def measured(
    family: str, name: str, workload: Workload, target: Target, *, candidates: int, turns: int, seed: int = 0
) -> Sample:
    """Build random candidates and time them interleaved, so that a slow moment of the machine meets all of them.

    Candidates that fail are left out.
    """
    from autotune.tuning.measure.interface import Candidate
    from autotune.tuning.measure.pool import ProcessPool

    space = space_for(workload, target)
    configs = space.random(np.random.default_rng(seed), candidates)
    text = target.to_json()
    best = [float("inf")] * len(configs)
    with closing(ProcessPool(target.cores)) as pool:
        built = pool.build([Candidate(workload.text, text, config) for config in configs])
        for _ in range(turns):
            for index, one in enumerate(built):
                latency = pool.measure(one, float("inf")).latency
                best[index] = min(best[index], latency.min_ns if latency else float("inf"))
    kept = [index for index, time in enumerate(best) if time < float("inf")]
    found = tuple(configs[index] for index in kept)
    return Sample(family, name, workload.text, text, found, tuple(best[index] for index in kept))


def read(path: Path) -> tuple[list[Sample], list[Foreseen]]:
    """Return the samples and the models in the JSON of an earlier run, or the samples in a folder of recordings of
    ``autotune replay candidates``; raises UsageError for anything else."""
    if path.is_dir():
        found = map(_recorded, read_all(path))
        return [sample for sample in found if len(sample.configs) > 2], []
    try:
        data = json.loads(path.read_text(encoding="utf-8"))["data"]
        return _made(Sample, data, REGION), _made(Foreseen, data, MODEL)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} holds no samples of `python -m results.bench predictions --json` ({error})"
        ) from error


def _made(kind: type[T], records: Iterable[Mapping[str, Any]], of: str) -> list[T]:
    """Return the values whose fields the records of a kind hold."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]

    def value(cell: Any) -> Any:
        return tuple(cell) if isinstance(cell, list) else cell

    return [kind(**{name: value(record[name]) for name in names}) for record in records if record["of"] == of]


def _recorded(recording: CandidateRecording) -> Sample:
    """The candidates of a recording that are legal today, with their readings alone."""
    configs, rows = recording.today
    read = rows.ratio.notna()
    return Sample(
        recording.space.family,
        recording.title,
        recording.facts.workload,
        recording.facts.target,
        tuple(config for config, known in zip(configs, read, strict=True) if known),
        tuple(map(float, recording.facts.default_ns * rows.ratio[read])),
    )


def fitted(samples: Iterable[Sample]) -> dict[str, tuple[KnownError, int]]:
    """The error of each family, and of how many workloads: of the candidates that the model likes best, on processors
    that are known."""
    logs: dict[str, list[float]] = {}
    for sample in samples:
        if Target.from_json(sample.target).cpu in CORES:
            scale = sample.ratio * known_error(sample.family).scale
            logs.setdefault(sample.family, []).append(math.log(scale))
    return {family: (_error(found), len(found)) for family, found in sorted(logs.items())}


def fitted_level(samples: Iterable[Sample]) -> tuple[KnownError, int]:
    """The error that is left by the known scales of families, where all that is known of the processor is a level."""
    found = [
        math.log(sample.ratio * LEVEL.scale)
        for sample in samples
        if Target.from_json(sample.target).cpu not in CORES
    ]
    return _error(found), len(found)


def _error(logs: Sequence[float]) -> KnownError:
    spread = float(np.std(logs, ddof=1)) if len(logs) > 1 else math.nan
    return KnownError(math.exp(float(np.mean(logs))) if logs else math.nan, spread)


def measure(
    say: Say,
    names: Sequence[str],
    candidates: int,
    turns: int,
    earlier: Sequence[Path],
    threads: Sequence[int],
    models: str,
    model_threads: Sequence[int],
    rounds: int,
) -> Iterator[Sequence[Record]]:
    """Measure regions and whole models, or read what was measured; then say what known errors would be by that."""
    options.check_known(names, (family for family, _, _ in cases()), "family")
    chosen = _models(models)
    found, whole = list[Sample](), list[Foreseen]()
    for path in earlier:
        samples, foreseen = read(path)
        found, whole = found + samples, whole + foreseen
    for count in threads if not earlier else ():
        for family, name, workload in cases(names):
            say(f"{family} {name}: {candidates} candidates, {counted(count, 'thread')}")
            target = Target.detect(count)
            found.append(measured(family, name, workload, target, candidates=candidates, turns=turns))
            yield [record_of(found[-1])]
    for count in model_threads if not earlier else ():
        for one in foresee(chosen, count, Pace(rounds=rounds), say):
            yield [record_of(one)]
    wanted = [sample for sample in found if not names or sample.family in names]
    if earlier:
        yield [*map(record_of, wanted), *map(record_of, whole)]
    recorded = [recording for path in earlier if path.is_dir() for recording in read_all(path)]
    if recorded:
        yield [*_known(wanted), *recorded_transfers.summaries([*recorded_transfers.transferred(recorded)])]


def record_of(one: Sample | Foreseen) -> Record:
    """Return a sample or a model with all that is said of it."""
    fields_of = {field.name: getattr(one, field.name) for field in fields(one)}
    if isinstance(one, Foreseen):
        said = {"ratio": one.ratio, "holds": one.holds, "memory_ratio": one.memory_ratio}
        return {"of": MODEL, **fields_of, **said}
    said = {name: getattr(one, name) for name in ("group", "correlation", "scale", "regret", "ratio")}
    return {"of": REGION, **fields_of, **said}


def _models(text: str) -> Sequence[str]:
    """Return the zoo models of ``--models``."""
    if text in ("all", "none"):
        return DEFAULT if text == "all" else ()
    names = text.split(",")
    options.check_known(names, DEFAULT, "model")
    return names


def _known(samples: Sequence[Sample]) -> list[Record]:
    """Return what `cost_models.known_error` would have by these samples, and what it has."""
    found = [(name, *of, known_error(name)) for name, of in fitted(samples).items()]
    found += [("a level", *fitted_level(samples), LEVEL)]
    return [
        {
            "of": KNOWN,
            "family": name,
            "workloads": count,
            "scale": error.scale,
            "spread": error.spread,
            "known_scale": now.scale,
            "known_spread": now.spread,
        }
        for name, error, count, now in found
        if count
    ]


ABOUT = (
    "How well the analytic cost model ranks random candidates of each family of search spaces, measured interleaved; "
    "minima count. Correlation is Spearman's, of ranks: 1 for the same order, 0 for none. Scale: predicted over "
    "measured time, the median. Regret: the measured time of the candidate that the model likes best, over the best. "
    "Error: the factor that the expected time of that candidate is off by, which has the family's known scale "
    "(e to the root mean square of the logarithms). Whole models run their default schedules in fresh processes."
)


def _mean(column: str) -> Callable[[FrameRows], float]:
    return lambda rows: float(np.nanmean(rows.all(column)))


def _error_of(rows: FrameRows) -> float:
    return math.exp(math.sqrt(np.nanmean([math.log(ratio) ** 2 for ratio in rows.all("ratio")])))


def _model_notes(rows: FrameRows) -> list[str]:
    inside = sum(rows.all("holds"))
    return [
        f"latency is off by a factor of {geometric_error(rows.all('ratio')):.2f} (geometric)",
        f"{inside} of {len(rows)} measured latencies lie in their 95 % interval",
        f"memory is off by a factor of {geometric_error(rows.all('memory_ratio')):.4f} (geometric)",
    ]


def _bytes(*columns: str) -> Callable[[FrameRows], float]:
    return lambda rows: float(sum(rows.get(column) for column in columns))


EXPERIMENT = Experiment(
    title="Predictions of the cost model",
    about=ABOUT,
    summary="Measure the rank correlation of the analytic cost model with times; NAMES are families of search spaces.",
    example="pool depthwise --candidates 60 --json > runs.json",
    options=(
        options.words(),
        options.number("--candidates", 40, "Of each workload.", least=3),
        options.number("--turns", 3, "Of each one."),
        options.folders(
            "--from",
            "earlier",
            "Measure nothing: compare the model with times of an earlier run (its JSON) or of a folder of recordings "
            "(several may be given).",
            files=True,
        ),
        options.threads("1"),
        click.Option(
            ["--models"],
            default="none",
            show_default=True,
            metavar="NAME,NAME|all|none",
            help="Whole models whose latency and memory are predicted, measured and compared: zoo models, all of them "
            "or none.",
        ),
        options.threads("1", "--model-threads", "Numbers of threads of whole models."),
        options.number(
            "--rounds", 9, "Turns of each whole model, a third of them in each of three processes.", least=3
        ),
    ),
    measure=measure,
    views=(
        TableView(
            "Families and targets, means",
            ("group",),
            (
                Column("family, target", "group"),
                *(Column(name, _mean(name), number(2)) for name in ("correlation", "scale", "regret")),
                Column("error", _error_of, number(2)),
            ),
            of=REGION,
        ),
        TableView(
            "Whole models",
            ("model", "threads"),
            (
                Column(
                    "model", lambda rows: f"{rows.get('model')}, {counted(rows.get('threads'), 'thread')}"
                ),
                Column("expected", "predicted_ns", duration),
                Column("95 %", "interval_ns", lambda ends: " to ".join(map(duration, ends))),
                Column("measured", "measured_ns", duration),
                Column("ratio", "ratio", number(2)),
                Column("expected memory", _bytes("predicted_peak", "predicted_constants"), size),
                Column("real", _bytes("peak", "constants"), size),
                Column("memory ratio", "memory_ratio", number(3)),
            ),
            of=MODEL,
            notes=_model_notes,
        ),
        TableView(
            "Known errors",
            ("family",),
            (
                Column("family", "family"),
                Column("workloads", "workloads"),
                Column("scale", "scale", number(2)),
                Column("spread", "spread", number(2)),
                Column("scale that is known", "known_scale", number(2)),
                Column("spread that is known", "known_spread", number(2)),
            ),
            of=KNOWN,
            notes=(
                "of the candidates that the model likes best: predicted over measured, geometric mean and standard "
                "deviation of the logarithm; a level: code for x86-64-v3, after the known scale of its family",
            ),
        ),
        recorded_transfers.VIEW,
        TableView(
            "Workloads",
            ("group", "name", "workload"),
            (
                Column("workload", lambda rows: f"{rows.get('family')} {rows.get('name')}"),
                Column("candidates", lambda rows: len(rows.get("configs"))),
                Column("fastest", lambda rows: min(rows.get("nanoseconds")), duration),
                Column("slowest", lambda rows: max(rows.get("nanoseconds")), duration),
                *(Column(name, name, number(2)) for name in ("correlation", "scale", "regret")),
            ),
            of=REGION,
        ),
    ),
)

__all__ = ["EXPERIMENT", "Sample", "cases", "fitted", "fitted_level", "measured", "read", "record_of"]
