"""The search of one workload: an Optuna study that never proposes the same candidate twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.database.goal import Goal, Objective
from autotune.schedule.knob import Config, Knob, Value, config_to_json

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

    from autotune.database.records import Footprint
    from search_spaces.population import Population
    from search_spaces.space import Space

SamplerFactory = Callable[["Space", int], "optuna.samplers.BaseSampler | optuna.Study"]
"""Makes the sampler of a search, or its study, from its space and a seed."""

_TRIES = 24
_LINE = 64
"""Bytes that make no difference: nothing needs none at all."""
_FAILED = "failed"
_ILLEGAL = "illegal"


@dataclass(frozen=True)
class Proposal:
    """A candidate to measure, and the Optuna trial that waits for its result."""

    config: Config
    trial: optuna.trial.Trial


def distribution(knob: Knob) -> optuna.distributions.BaseDistribution:
    """Return the distribution of a knob: an ordered one is the index of its value, so that neighbours stay near."""
    import optuna

    if knob.ordered:
        return optuna.distributions.IntDistribution(0, len(knob.values) - 1)
    return optuna.distributions.CategoricalDistribution(knob.values)


def to_params(space: Space, config: Config) -> dict[str, Value]:
    """Return a configuration as Optuna's parameters."""
    return {k.name: k.index(config[k.name]) if k.ordered else config[k.name] for k in space.knobs}


def to_config(space: Space, params: Mapping[str, Any]) -> dict[str, Value]:
    """Return Optuna's parameters as a configuration."""
    return {k.name: k.values[params[k.name]] if k.ordered else params[k.name] for k in space.knobs}


def known_trials(study: optuna.Study, space: Space) -> list[FrozenTrial]:
    """Return those with a value for every knob: the trial that is being asked for has part of them."""
    return [t for t in study.get_trials(deepcopy=False) if len(t.params) == len(space.knobs)]


def population_of(space: Space, trials: Iterable[FrozenTrial]) -> Population:
    """Return the candidates of trials."""
    return space.of([to_config(space, trial.params) for trial in trials])


class Search:
    """Asks a sampler for candidates of one space, and tells it how they ended.

    The objectives are log2 of the latency in ns and, if asked for, of the bytes of memory and of the artifact. A
    failed candidate is told as complete with a violated constraint: Optuna's samplers forget failed trials and would
    propose them again. They also repeat points of discrete spaces by design; such a proposal is answered from what is
    known.
    """

    def __init__(
        self,
        space: Space,
        make_sampler: SamplerFactory,
        seed: int,
        objectives: Sequence[Objective] = (Objective.LATENCY,),
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = space
        self.exhausted = False
        self._rng = np.random.default_rng(seed)
        self._distributions = {knob.name: distribution(knob) for knob in space.knobs}
        self._objectives = objectives
        self._results: dict[str, tuple[float | None, Footprint | None]] = {}
        self._pending: set[str] = set()
        self._worst = 40.0
        made = make_sampler(space, seed)
        directions = ["minimize"] * len(objectives)
        self._study = (
            made
            if isinstance(made, optuna.Study)
            else optuna.create_study(sampler=made, directions=directions)
        )

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, config: Config) -> bool:
        text = config_to_json(config)
        return text in self._results or text in self._pending

    def add(self, config: Config, latency_ns: float | None, footprint: Footprint | None = None) -> None:
        """Add a run that was measured before; None for one that failed."""
        import optuna

        if config in self:
            return
        self._results[config_to_json(config)] = latency_ns, footprint
        values, violated = self._values(latency_ns, footprint)
        self._study.add_trial(
            optuna.trial.create_trial(
                params=to_params(self.space, config),
                distributions=self._distributions,
                values=values,
                constraints={_FAILED: violated},
            )
        )

    def suggest(self, config: Config) -> Proposal:
        """Propose this very candidate."""
        self._study.enqueue_trial(to_params(self.space, config))
        trial = self._study.ask(self._distributions)
        return self._pend(config, trial)

    def _pend(self, config: Config, trial: optuna.trial.Trial) -> Proposal:
        self._pending.add(config_to_json(config))
        return Proposal(config, trial)

    def ask(self, count: int) -> list[Proposal]:
        """Propose up to ``count`` new, legal candidates; fewer only when the space is exhausted."""
        proposals = []
        for _ in range(count):
            proposal = self._ask_one()
            if proposal is None:
                self.exhausted = True
                break
            proposals.append(proposal)
        return proposals

    def _ask_one(self) -> Proposal | None:
        import optuna

        for _ in range(_TRIES):
            trial = self._study.ask(self._distributions)
            config = to_config(self.space, trial.params)
            text = config_to_json(config)
            if text in self._pending:
                self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            elif text in self._results:
                self._answer(trial, *self._results[text])
            elif self.space.broken(config) is not None:
                self._answer(trial, None, None, _ILLEGAL)
            else:
                return self._pend(config, trial)
        config_or_none = self._unseen()
        return None if config_or_none is None else self.suggest(config_or_none)

    def _unseen(self) -> Config | None:
        """Return any legal candidate that was not proposed yet."""
        population: Population = self.space.population(self._rng, len(self._results) + 64)
        return next((c for c in population if c not in self), None)

    def tell(self, proposal: Proposal, latency_ns: float | None, footprint: Footprint | None = None) -> None:
        """Record the result of a proposal; None for failed."""
        text = config_to_json(proposal.config)
        self._pending.discard(text)
        self._results[text] = latency_ns, footprint
        self._answer(proposal.trial, latency_ns, footprint)

    def _answer(
        self,
        trial: optuna.trial.Trial,
        latency_ns: float | None,
        footprint: Footprint | None,
        constraint: str = _FAILED,
    ) -> None:
        values, violated = self._values(latency_ns, footprint)
        trial.set_constraint(constraint, violated)
        self._study.tell(trial, values)

    def _values(self, latency_ns: float | None, footprint: Footprint | None) -> tuple[list[float], float]:
        """Return the value of each objective, and whether it failed; an unknown footprint counts as the worst."""
        if latency_ns is None or not math.isfinite(latency_ns):
            return [self._worst] * len(self._objectives), 1.0
        values = []
        for objective in self._objectives:
            if objective is Objective.LATENCY:
                values.append(math.log2(max(latency_ns, 1.0)))
            else:
                nbytes = None if footprint is None else Goal(objective).bytes_of(footprint)
                values.append(self._worst if nbytes is None else math.log2(_LINE + nbytes))
        return values, 0.0


__all__ = [
    "Proposal",
    "SamplerFactory",
    "Search",
    "distribution",
    "known_trials",
    "population_of",
    "to_config",
    "to_params",
]
