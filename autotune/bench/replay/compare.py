"""Samplers and cost models compared: many searches of recorded spaces each, and how far from the best they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.replay.recording import Recording
from autotune.bench.replay.search import Answers, RecordedModel, search
from autotune.tuning.online_model import Matrix
from autotune.tuning.sampler import GUIDED
from autotune.tuning.samplers import SamplerLike, name_of
from cost_models.interval import ConfidenceInterval
from search_spaces.population import Population

if TYPE_CHECKING:
    from search_spaces.space import Space

JOB = "job"


class _Blind(RecordedModel):
    """A cost model that takes all candidates for equal."""

    def score(self, space: Space, population: Population, features: Matrix) -> NDArray[Any]:
        return np.zeros(len(population))


MODELS: Mapping[str, Callable[[Answers], RecordedModel]] = {
    JOB: RecordedModel,
    "analytic": partial(RecordedModel, every=1 << 40),
    "none": _Blind,
}
"""Cost models that guide our sampler: a job's, analytic and then trained on what it measures; the analytic one alone;
none, so that only the neighbours of the best are preferred."""


@dataclass(frozen=True)
class Method:
    """A sampler, and the cost model that guides it if it is ours."""

    sampler: SamplerLike
    model: str = JOB

    @property
    def name(self) -> str:
        """Of the sampler and, unless it is the usual one, of the model."""
        name = name_of(self.sampler)
        return f"{name}, model {self.model}" if self.model != JOB else name


@dataclass(frozen=True)
class SearchComparison:
    """What searches found: ``curves`` [methods, recordings, seeds, trials] are log(least latency so far ÷ the least
    recorded)."""

    methods: tuple[Method, ...]
    titles: tuple[str, ...]
    sizes: tuple[int, ...]
    bests: tuple[float, ...]
    """The least latency recorded over the default's."""
    curves: NDArray[np.float64]

    def regret(self, method: int, trials: int) -> ConfidenceInterval:
        """Regret after so many trials: by how much slower what was found is than the best, the geometric mean over
        the recordings; the interval is over seeds."""
        return ConfidenceInterval.of(self.curves[method, :, :, trials - 1].mean(axis=0)).map(np.expm1)

    def regret_of(self, method: int, recording: int, trials: int) -> ConfidenceInterval:
        """The same for one recording."""
        return ConfidenceInterval.of(self.curves[method, recording, :, trials - 1]).map(np.expm1)

    def ratio(self, method: int, other: int, trials: int) -> ConfidenceInterval:
        """What a method found over what another one did with the same seeds."""
        logs = self.curves[method, :, :, trials - 1] - self.curves[other, :, :, trials - 1]
        return ConfidenceInterval.of(logs.mean(axis=0)).map(np.exp)


def compare(
    recordings: Sequence[Recording],
    methods: Sequence[Method],
    *,
    trials: int,
    seeds: int,
    by: str,
    processes: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> SearchComparison:
    """Search each recording by each method ``seeds`` times; recordings of no more candidates than ``trials`` are left
    out, for there is nothing to choose. ``by``: see :mod:`autotune.bench.replay.search`.
    """
    found = [answers for answers in (Answers(r, by) for r in recordings) if answers.space.size() > trials]
    work = partial(_searched, methods=methods, trials=trials, seeds=seeds)
    curves = []
    for answers, curve in zip(found, _mapped(work, found, processes), strict=True):
        say(f"{answers.recording.title}: {len(methods) * seeds} searches")
        curves.append(curve)
    return SearchComparison(
        tuple(methods),
        tuple(answers.recording.title for answers in found),
        tuple(answers.space.size() for answers in found),
        tuple(answers.best for answers in found),
        np.stack(curves, axis=1) if curves else np.zeros((len(methods), 0, seeds, trials)),
    )


def _mapped(
    work: Callable[[Answers], NDArray[np.float64]], found: Sequence[Answers], processes: int
) -> Iterator[NDArray[np.float64]]:
    """In order; processes get the recordings alone and work the rest out themselves."""
    if processes == 1:
        yield from map(work, found)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(work, [Answers(replace(answers.recording), answers.by) for answers in found])


def _searched(answers: Answers, methods: Sequence[Method], trials: int, seeds: int) -> NDArray[np.float64]:
    """Curves of one recording [methods, seeds, trials]."""

    def curve(method: Method, seed: int) -> NDArray[np.float64]:
        cost_model = MODELS[method.model](answers)
        found = search(answers, method.sampler, cost_model, trials=trials, seed=seed)
        return np.asarray(np.log(found / answers.best))

    return np.stack([np.stack([curve(method, seed) for seed in range(seeds)]) for method in methods])


def methods_of(samplers: Sequence[str], models: Sequence[str]) -> list[Method]:
    """Our sampler with each cost model, and the other samplers, which use none."""
    return [Method(name, model) for name in samplers for model in (models if name == GUIDED else (JOB,))]


__all__ = [
    "JOB",
    "MODELS",
    "Method",
    "SearchComparison",
    "compare",
    "methods_of",
]
