"""The Optuna study of the precisions of a model's products: latency and error are its values, products its parameters.

It is in a storage of Optuna's, so that a job goes on where it was stopped, and optuna-dashboard draws its Pareto front.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from autotune.quantization.precision import FLOAT32, Precisions
from autotune.tuning.search.studies import StorageLike, opened_storage, reported

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

Choices = Mapping[str, Sequence[str]]
"""The precisions that each product may have, by its output."""
METRICS = ("latency / float32", "error")
_CHOICES, _STARTS, _REPEATS = "choices", "starts", "repeats"
_POPULATION = 6
"""The least number of plans of a generation: a job measures some tens of plans, not hundreds."""
_ASKS = 64
"""Optuna has no more to propose where so many proposals in a row are no new ones."""


class PrecisionStudy:
    """Proposes precisions: at first those that the study was begun with, then offspring of the best ones by NSGA-II
    (Deb et al., 2002), of which each is new.

    A study that is there already goes on, with the choices and beginnings that it was made with; trials that a killed
    process has left are proposed again.
    """

    def __init__(
        self, storage: StorageLike, name: str, choices: Choices, starts: Sequence[Precisions], seed: int
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.where, self.name = str(storage), name
        with reported("open", self.where):
            self._study = optuna.create_study(
                storage=opened_storage(storage),
                study_name=name,
                directions=["minimize"] * len(METRICS),
                load_if_exists=True,
            )
            if self._study.metric_names is None:
                self._begin(choices, starts)
            about = self._study.user_attrs
            self._study.sampler = _sampler(max(_POPULATION, len(about[_STARTS])), seed)
            self.choices: dict[str, list[str]] = about[_CHOICES]
            self.starts: list[dict[str, str]] = about[_STARTS]
            self._free = {
                product: CategoricalDistribution(each)
                for product, each in self.choices.items()
                if len(each) > 1
            }
            self._seen = {self._key(trial): trial.number for trial in self._trials() if _ended(trial)}
            for trial in self._trials():
                if trial.state == TrialState.RUNNING:
                    self._again(trial.number, trial.params)

    def _begin(self, choices: Choices, starts: Sequence[Precisions]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.set_metric_names(list(METRICS))
        self._study.set_user_attr(_CHOICES, {product: [*each] for product, each in choices.items()})
        self._study.set_user_attr(_STARTS, [dict(start) for start in starts])
        for start in starts:
            self._study.enqueue_trial(self._params(start, choices))

    @staticmethod
    def _params(precisions: Precisions, choices: Choices) -> dict[str, str]:
        return {product: precisions[product] for product, each in choices.items() if len(each) > 1}

    @property
    def measured(self) -> int:
        """Return the number of plans that were measured, in all sessions."""
        return sum(trial.state == TrialState.COMPLETE for trial in self._trials())

    def proposals(self) -> Iterator[tuple[Trial, dict[str, str]]]:
        """Yield new precisions, each to be told or pruned before the next; ends where Optuna proposes none any more."""
        none_new = 0
        while none_new < _ASKS:
            with reported("write", self.where):
                trial = self._study.ask(self._free)
                precisions = self._precisions(trial.params)
                number = self._seen.get(self._key(trial))
                is_new = number is None and any(each != FLOAT32 for each in precisions.values())
                if not is_new:
                    trial.set_user_attr(_REPEATS, FLOAT32 if number is None else number)
                    self._study.tell(trial, state=TrialState.PRUNED)
            none_new = 0 if is_new else none_new + 1
            if is_new:
                yield trial, precisions

    def tell(self, trial: Trial, latency: float, error: float, about: Mapping[str, Any]) -> None:
        """Store what was measured of a plan: latency over that of float32, error on held-back inputs."""
        with reported("write", self.where):
            for name, value in about.items():
                trial.set_user_attr(name, value)
            self._seen[self._key(trial)] = trial.number
            self._study.tell(trial, [latency, error])

    def prune(self, trial: Trial, why: str) -> None:
        """Store that a plan was not measured."""
        with reported("write", self.where):
            trial.set_user_attr("why", why)
            self._seen[self._key(trial)] = trial.number
            self._study.tell(trial, state=TrialState.PRUNED)

    @contextmanager
    def postponed(self, trial: Trial) -> Iterator[None]:
        """Propose a plan again, in this session or in another, unless it is told or pruned meanwhile."""
        try:
            yield
        finally:
            if self._study.trials[trial.number].state == TrialState.RUNNING:
                with reported("write", self.where):
                    self._again(trial.number, trial.params)

    def _again(self, number: int, params: Mapping[str, Any]) -> None:
        self._study.tell(number, state=TrialState.FAIL)
        self._study.enqueue_trial(dict(params))

    def facts(self) -> list[Mapping[str, Any]]:
        """Return what was told about each plan that was measured."""
        return [trial.user_attrs for trial in self._trials() if trial.state == TrialState.COMPLETE]

    def _precisions(self, params: Mapping[str, str]) -> dict[str, str]:
        return {product: params.get(product, each[-1]) for product, each in self.choices.items()}

    def _key(self, trial: Trial | FrozenTrial) -> tuple[str, ...]:
        return tuple(self._precisions(trial.params).values())

    def _trials(self) -> list[FrozenTrial]:
        found: list[FrozenTrial] = self._study.get_trials(deepcopy=False)
        return found


def _ended(trial: FrozenTrial) -> bool:
    """Return whether a trial says what becomes of its plan."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and _REPEATS not in trial.user_attrs


def _sampler(population: int, seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.NSGAIISampler(population_size=population, seed=seed)


__all__ = ["METRICS", "Choices", "PrecisionStudy"]
