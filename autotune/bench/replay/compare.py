"""Samplers and cost models compared: many searches of recorded spaces each, and how far from the best they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas
from numpy.typing import NDArray

from autotune.bench.replay.near import warm_starts
from autotune.bench.replay.recording import CandidateRecording
from autotune.bench.replay.search import INSIDE, Answers, RecordedModel, search
from autotune.errors import UsageError
from autotune.schedule.knob import Config
from autotune.tuning.search.online_model import Matrix
from autotune.tuning.search.sampler import GUIDED
from autotune.tuning.search.samplers import SamplerLike, name_of
from cost_models import dataset, folds
from cost_models.feature_cache import FeatureCache
from cost_models.interval import ConfidenceInterval
from cost_models.ranker import Ranker
from search_spaces.population import Population

if TYPE_CHECKING:
    from search_spaces.space import Space

JOB = "job"
NEAR = 0.95
"""So large a share of the best recorded speed is near it."""


class _Blind(RecordedModel):
    """A cost model that takes all candidates for equal."""

    def score(self, space: Space, population: Population, features: Matrix) -> NDArray[Any]:
        return np.zeros(len(population))


@dataclass(frozen=True)
class _Reversed:
    """A cost model that likes best what another likes least."""

    ranker: Ranker

    def predict(self, x: Matrix) -> NDArray[Any]:
        return -self.ranker.predict(x)


def _known(answers: Answers, prior: Ranker | None) -> RecordedModel:
    return RecordedModel(answers, prior)


def _misled(answers: Answers, prior: Ranker | None) -> RecordedModel:
    return RecordedModel(answers, None if prior is None else cast("Ranker", _Reversed(prior)))


MODELS: Mapping[str, Callable[[Answers, Ranker | None], RecordedModel]] = {
    JOB: lambda answers, _: RecordedModel(answers),
    "analytic": lambda answers, _: RecordedModel(answers, every=1 << 40),
    "none": lambda answers, _: _Blind(answers),
    "prior": _known,
    "reversed": _misled,
}
"""Cost models that guide our sampler: a job's, analytic and then trained on what it measures; the analytic one alone;
none, so that only the neighbours of the best are preferred; a job's that begins with what was learnt from the
recordings of other models; and one that begins with the reverse of it."""
PRIORS = ("prior", "reversed")
"""Those that need other models' recordings."""
_FOLDS = 10
"""So many models are learnt at most: where there are more of those that were recorded, some share one."""


@dataclass(frozen=True)
class Method:
    """A sampler, the cost model that guides it if it is ours, and whether it has a warm start."""

    sampler: SamplerLike
    model: str = JOB
    near: bool = False
    """It begins with what was found for near workloads."""

    @property
    def name(self) -> str:
        """Of the sampler and, unless it is the usual one, of the model; and with what it begins."""
        name = name_of(self.sampler)
        model = f", model {self.model}" if self.model != JOB else ""
        return f"{name}{model}{', warm start' if self.near else ''}"


@dataclass(frozen=True)
class Searches:
    """The searches of each recording by each method: one a seed, of so many trials. ``by`` says which readings of the
    recording count, see :mod:`autotune.bench.replay.search`; ``processes`` search at once."""

    trials: int
    seeds: int
    by: str
    processes: int = 1


@dataclass(frozen=True)
class SearchComparison:
    """Searches compared: ``curves`` [methods, recordings, seeds, trials] are log(least latency so far ÷ the least
    recorded)."""

    methods: tuple[Method, ...]
    titles: tuple[str, ...]
    sizes: tuple[int, ...]
    bests: tuple[float, ...]
    """The least latency recorded over the default's."""
    curves: NDArray[np.float64]
    near: tuple[int, ...] = ()
    """Candidates that a warm start had of each recording; empty where no method has one."""

    def regret(self, method: int, trials: int) -> ConfidenceInterval:
        """Regret after so many trials: by how much slower what was found is than the best, the geometric mean over
        the recordings; the interval is over seeds."""
        return ConfidenceInterval.of(self.curves[method, :, :, trials - 1].mean(axis=0)).map(np.expm1)

    def regret_of(self, method: int, recording: int, trials: int) -> ConfidenceInterval:
        """The same for one recording."""
        return ConfidenceInterval.of(self.curves[method, recording, :, trials - 1]).map(np.expm1)

    def trials(self, method: int) -> NDArray[np.float64]:
        """The trial [recordings, seeds] that came within :data:`NEAR` of the best, the one after the last where none
        did; NaN for recordings whose default does."""
        near = self.curves[method] <= -np.log(NEAR)
        first = np.where(near.any(axis=-1), near.argmax(axis=-1), near.shape[-1]) + 1.0
        return np.where(near[:, :1, 0], np.nan, first)

    def trials_mean(self, method: int, over: int | None = None) -> ConfidenceInterval:
        """The geometric mean of :meth:`trials` over the recordings, or of those ``over`` a method's by them; the
        interval is over recordings, each the mean of its seeds."""
        logs = np.log(self.trials(method))
        logs = logs if over is None else np.log(self.trials(over)) - logs
        each = logs.mean(axis=1)
        return ConfidenceInterval.of(each[~np.isnan(each)]).map(np.exp)

    def ratio(self, method: int, other: int, trials: int) -> ConfidenceInterval:
        """Return the speed-up of a method over another one, with the same seeds."""
        logs = self.curves[method, :, :, trials - 1] - self.curves[other, :, :, trials - 1]
        return ConfidenceInterval.of(logs.mean(axis=0)).map(np.exp)


def compare(
    recordings: Sequence[CandidateRecording],
    methods: Sequence[Method],
    searches: Searches,
    say: Callable[[str], None] = lambda text: None,
) -> SearchComparison:
    """Search each recording by each method; recordings of no more candidates than a search has trials are left out, for
    there is nothing to choose.

    Cost models of earlier jobs are trained on the recordings of the other models first; warm starts draw on the
    recordings of all other workloads.
    """
    trials, seeds, by = searches.trials, searches.seeds, searches.by
    found = [answers for answers in (Answers(r, by) for r in recordings) if answers.space.size() > trials]
    known: dict[str, Ranker] = {}
    if any(method.model in PRIORS for method in methods):
        known = priors(recordings, inside=by == INSIDE, say=say)
    starts = warm_starts(recordings, found, by) if any(method.near for method in methods) else []
    work = partial(_searched, methods=methods, trials=trials, seeds=seeds)
    curves = []
    for answers, curve in zip(found, _mapped(work, found, known, starts, searches.processes), strict=True):
        say(f"{answers.recording.title}: {len(methods) * seeds} searches")
        curves.append(curve)
    return SearchComparison(
        tuple(methods),
        tuple(answers.recording.title for answers in found),
        tuple(answers.space.size() for answers in found),
        tuple(answers.best for answers in found),
        np.stack(curves, axis=1) if curves else np.zeros((len(methods), 0, seeds, trials)),
        tuple(map(len, starts)),
    )


def priors(
    recordings: Sequence[CandidateRecording], *, inside: bool, say: Callable[[str], None] = lambda text: None
) -> dict[str, Ranker]:
    """For each model what was learnt from the recordings of others, of workloads that it does not have."""
    tables = [recording.training_table(inside=inside) for recording in recordings]
    data = dataset.build(pandas.concat(tables, ignore_index=True), FeatureCache.of_user())
    models = sorted({recording.facts.model for recording in recordings})
    found: dict[str, Ranker] = {}
    for fold in range(min(_FOLDS, len(models))):
        mine = models[fold::_FOLDS]
        own = {r.space.workload.key for r in recordings if r.facts.model in mine}
        others = [key for key in data.workloads if key not in own]
        if len(set(others)) < 2:
            what = " and ".join(mine)
            raise UsageError(f"too few workloads of other models than {what}: {len(set(others))}, needed 2")
        known = data.take(data.rows_of(others))
        say(
            f"learning from {len(known)} runs of {len(set(others))} workloads that are not of {', '.join(mine)}"
        )
        ranker = Ranker.fit(known, folds.by_workload(others, f"{fold}"))
        found |= dict.fromkeys(mine, ranker)
    return found


def _mapped(
    work: Callable[[Answers, Ranker | None, Sequence[Config]], NDArray[np.float64]],
    found: Sequence[Answers],
    known: Mapping[str, Ranker],
    starts: Sequence[Sequence[Config]],
    processes: int,
) -> Iterator[NDArray[np.float64]]:
    """In order; processes get the recordings alone and work the rest out themselves."""
    rankers = [known.get(answers.recording.facts.model) for answers in found]
    starts = starts or [()] * len(found)
    if processes == 1:
        yield from map(work, found, rankers, starts)
        return
    bare = [Answers(replace(answers.recording), answers.by) for answers in found]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(work, bare, rankers, starts)


def _searched(
    answers: Answers,
    prior: Ranker | None,
    near: Sequence[Config],
    methods: Sequence[Method],
    trials: int,
    seeds: int,
) -> NDArray[np.float64]:
    """Curves of one recording [methods, seeds, trials]."""

    def curve(method: Method, seed: int) -> NDArray[np.float64]:
        cost_model = MODELS[method.model](answers, prior)
        begin = near if method.near else ()
        found = search(answers, method.sampler, cost_model, trials=trials, seed=seed, near=begin)
        return np.asarray(np.log(found / answers.best))

    return np.stack([np.stack([curve(method, seed) for seed in range(seeds)]) for method in methods])


def methods_of(samplers: Sequence[str], models: Sequence[str], *, warm_start: bool = False) -> list[Method]:
    """Our sampler with each cost model, and the other samplers, which use none; if so asked each with a warm start,
    too."""
    starts = (False, True) if warm_start else (False,)
    return [
        Method(name, model, near)
        for name in samplers
        for model in (models if name == GUIDED else (JOB,))
        for near in starts
    ]


__all__ = [
    "JOB",
    "MODELS",
    "NEAR",
    "PRIORS",
    "Method",
    "SearchComparison",
    "Searches",
    "compare",
    "methods_of",
    "priors",
]
