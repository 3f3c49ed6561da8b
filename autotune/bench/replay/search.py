"""A search as a job does it, with a recording for the measurer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from autotune.bench.replay.recording import CandidateRecording
from autotune.bench.replay.space import RecordedSpace
from autotune.database.records import Comparison, Key, Latency, Outcome, Reading, Run
from autotune.errors import InternalError
from autotune.passes.options import Option
from autotune.schedule.knob import Config, config_to_json
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.beliefs import Beliefs
from autotune.tuning.jobs.budget import Budget, Meter
from autotune.tuning.jobs.loop import TuningLoop
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.search.online_model import EVERY, Matrix, OnlineModel
from autotune.tuning.search.samplers import SamplerLike, factory
from autotune.tuning.search.study import Search
from search_spaces.population import Population

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from cost_models.ranker import Ranker
    from search_spaces.space import Space

BATCH = 8
"""Candidates that a job builds together."""
ALONE, INSIDE = "alone", "inside"
"""The latency of a candidate that counts: alone, or as a job scores it, inside the model and, where it was not read
there, alone but not below the default's."""


@dataclass(frozen=True)
class Answers:
    """The recorded candidates that are legal today: a pool, and how each ends."""

    recording: CandidateRecording
    by: str = ALONE

    @cached_property
    def space(self) -> RecordedSpace:
        """The pool."""
        return RecordedSpace.among(self.recording.space, self.recording.today[0])

    @cached_property
    def default(self) -> Config:
        """The schedule that was used untuned or, where it is no longer legal, the one nearest to today's."""
        from cost_models import analytic

        configs, table = self.recording.today
        if table.trace_key[0] == self.recording.table.trace_key[0]:
            return configs[0]
        untuned = self.space.of([analytic.default_config(self.recording.space)])
        return self.space.pool.config(int(self.space.distances(untuned.indexes[0]).argmin()))

    @cached_property
    def ratios(self) -> NDArray[np.float64]:
        """Latencies over the default's [n]; infinite for candidates that failed."""
        table = self.recording.today[1]
        alone = table.ratio.to_numpy()
        if self.by == ALONE:
            return np.where(np.isnan(alone), math.inf, alone)
        inside = table.inside.to_numpy()
        found = np.where(np.isnan(inside), np.fmax(1.0, alone), inside)
        return np.where(np.isnan(alone), math.inf, found)

    @property
    def best(self) -> float:
        """The least latency over the default's."""
        return float(self.ratios.min())

    @cached_property
    def built(self) -> Mapping[str, tuple[Built, Measurement]]:
        """Each candidate's identity and end, by the JSON of its configuration."""
        configs, table = self.recording.today
        found = {}
        for config, row, ratio in zip(configs, table.itertuples(), self.ratios, strict=True):
            candidate = Candidate(self.recording.facts.workload, self.recording.facts.target, config)
            outcome, ns = Outcome(row.outcome), ratio * self.recording.facts.default_ns
            latency = Latency(1, ns, ns, 0.0) if outcome is Outcome.OK else None
            built = Built(
                candidate, row.trace_key, "", payload={"code": row.code_key} if row.code_key else {}
            )
            found[config_to_json(config)] = (built, Measurement(outcome, latency))
        return found

    @cached_property
    def features(self) -> NDArray[Any]:
        """Return the features [n, F] of the pool, as cost models take them."""
        return OnlineModel().features(self.space, self.space.pool)


class RecordedMeasurer:
    """A Measurer that looks up what was recorded."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Return stand-ins for the candidates' code, which name their rows."""
        return [self._answers.built[config_to_json(candidate.config)][0] for candidate in candidates]

    def measure(self, built: Built, default_ns: float) -> Measurement:
        """Return the recorded measurement."""
        return self._answers.built[config_to_json(built.candidate.config)][1]

    def check(self, option: BuiltOption) -> Measurement:
        """Whole options are not recorded."""
        raise InternalError("options are not recorded")

    def rest(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing runs."""


class _Nowhere:
    """A store that keeps nothing: a search begins from nothing."""

    def record_all(self, runs: Sequence[Run]) -> list[bool]:
        return [True] * len(runs)

    def records(self, *, workload: str, target: str, space: str, after: int) -> list[Run]:
        return []

    def read_inside(self, key: Key, readings: Sequence[Reading], inside: str, job: str) -> None:
        pass

    def crashed_inside(self, key: Key, traces: Mapping[str, str], inside: str, job: str) -> None:
        """No in-model measurements are recorded."""

    def readings(self, key: Key) -> list[Reading]:
        return []

    def compared_schedules(self, key: Key) -> list[Comparison]:
        return []


class RecordedModel(OnlineModel):
    """A job's cost model that reads the features of a pool instead of working them out again and again."""

    def __init__(self, answers: Answers, prior: Ranker | None = None, every: int = EVERY) -> None:
        super().__init__(prior, every)
        self._rows = {code: row for row, code in enumerate(answers.space.pool.codes().tolist())}
        self._features = answers.features

    def features(self, space: Space, population: Population) -> Matrix:
        """The rows of candidates of the pool."""
        return self._features[[self._rows[code] for code in population.codes().tolist()]]


def search(
    answers: Answers,
    sampler: SamplerLike,
    cost_model: OnlineModel,
    *,
    trials: int,
    seed: int,
    near: Sequence[Config] = (),
) -> NDArray[np.float64]:
    """The least latency over the default's after each trial, of which the default is the first [trials].

    This is the loop of a job with one workload: the same batches, the same training of the cost model. Only the
    candidates are those of the pool, and their ends are known. ``near`` is what it begins with.
    """
    space, facts = answers.space, answers.recording.facts
    make = factory(sampler, cost_model, BATCH)
    task = Task((facts.name,), space.workload, space, Search(space, make, seed), answers.default, seed)
    site = Site((facts.name,), space.workload, (Option(cast("Workload", space.workload)),))
    TuningLoop(
        tasks=[task],
        policy=Policy(Beliefs(Sites([task], [site]), seed), in_model=False),
        measurer=RecordedMeasurer(answers),
        store=_Nowhere(),
        cost_model=cost_model,
        meter=Meter(Budget(trials=trials)),
        describe=lambda run: run,
        measured=lambda task, run: None,
        warm_start=lambda task: near,
        batch=BATCH,
    ).run()
    curve = np.asarray(task.curve[:trials]) / facts.default_ns
    return np.pad(curve, (0, trials - len(curve)), mode="edge")


__all__ = ["ALONE", "BATCH", "INSIDE", "Answers", "RecordedMeasurer", "RecordedModel", "search"]
