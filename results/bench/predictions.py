"""How well the analytic cost model ranks candidates that are measured: random samples of spaces of every family."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autotune.bench.replay.recording import Recording, read_all
from autotune.errors import UsageError
from autotune.graph.region import Workload
from autotune.suggest import counted
from autotune.target import Target
from cost_models import analytic
from cost_models.known_error import LEVEL, KnownError, known_error, of_machine
from cost_models.microarchitectures import CORES
from results.bench import regions
from results.bench.whole_models import Foreseen
from search_spaces.spaces import space_for

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
    """Build random candidates and time them in turns, so that a slow moment of the machine meets all of them.

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
    """The samples and the models in the JSON of an earlier run, or the samples in a folder of recordings of
    ``autotune replay record``; raises UsageError for anything else."""
    if path.is_dir():
        found = map(_recorded, read_all(path))
        return [sample for sample in found if len(sample.configs) > 2], []
    try:
        data = json.loads(path.read_text(encoding="utf-8"))["data"]
        samples = [
            Sample(
                **{**entry, "configs": tuple(entry["configs"]), "nanoseconds": tuple(entry["nanoseconds"])}
            )
            for entry in data["regions"]
        ]
        whole = [
            Foreseen(**{**entry, "interval_ns": tuple(entry["interval_ns"])}) for entry in data["models"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} holds no samples of `python -m results.bench predictions --json` ({error})"
        ) from error
    return samples, whole


def _recorded(recording: Recording) -> Sample:
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


def by_group(samples: Iterable[Sample], value: Callable[[Sample], float]) -> dict[str, float]:
    """The mean over the workloads of each family and target; those without a value are left out."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        values.setdefault(sample.group, []).append(value(sample))
    return {group: float(np.nanmean(found)) for group, found in sorted(values.items())}


__all__ = ["Sample", "by_group", "cases", "fitted", "fitted_level", "measured", "read"]
