"""The search of one workload: an Optuna study in which every candidate is legal and is measured once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.database.goal import Goal, Objective
from autotune.schedule.knob import Config, config_to_json
from autotune.tuning.search.parameters import KnobParameters

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

    from autotune.database.records import Footprint
    from autotune.tuning.search.studies import Record
    from search_spaces.space import Space

SamplerFactory = Callable[["Space", int], "optuna.samplers.BaseSampler"]
"""Makes the sampler of a search from its space and a seed."""

_REPEATS = 4
"""So many times a sampler is told the known result of a candidate that it proposes again, before each new one."""
_ASKS = 24
"""A sampler that proposes nothing new in so many trials has nothing left."""


@dataclass(frozen=True)
class Proposal:
    """A candidate to measure, and the Optuna trial that waits for its result."""

    config: Config
    trial: optuna.trial.Trial


@dataclass(frozen=True)
class _Result:
    """The latency of a candidate, None for one that failed; what it takes; and the number of its trial."""

    latency: float | None
    footprint: Footprint | None
    number: int


class Search:
    """Asks a sampler for candidates of one space, and tells it how they ended.

    The objectives are the latency over the default's (any measure of latency will do that is the same for all) and, if
    asked for, the bytes of memory and of the artifact. A failed candidate is a failed trial. A sampler that knows the
    space proposes legal candidates itself; the draws of any other become legal ones
    (:class:`autotune.tuning.search.legal.LegalSampler`). Samplers repeat points of discrete spaces by design: a
    repeated trial gets the known result of the candidate, up to four times; then the nearest new one is proposed.
    The trials are added to the ``record`` as they end, less those that repeat another.
    """

    def __init__(
        self,
        space: Space,
        make_sampler: SamplerFactory,
        seed: int,
        objectives: Sequence[Objective] = (Objective.LATENCY,),
        *,
        pruner: optuna.pruners.BasePruner | None = None,
        record: Record | None = None,
    ) -> None:
        import optuna

        from autotune.tuning.search.legal import LegalSampler, SpaceSampler

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = space
        self.exhausted = False
        self._objectives = objectives
        self._parameters = KnobParameters(space)
        self._results: dict[str, _Result] = {}
        self._pending: set[str] = set()
        self._asked = 0
        sampler = make_sampler(space, seed)
        if not isinstance(sampler, SpaceSampler):
            sampler = LegalSampler(space, sampler, self._may_propose)
        self.study = optuna.create_study(
            sampler=sampler,
            pruner=pruner or optuna.pruners.NopPruner(),
            directions=["minimize"] * len(objectives),
        )
        self._record = record
        self._pruned: set[int] = set()

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, config: Config) -> bool:
        text = config_to_json(config)
        return text in self._results or text in self._pending

    def add(
        self,
        config: Config,
        latency: float | None,
        footprint: Footprint | None = None,
        about: Mapping[str, Any] | None = None,
        *,
        recorded: bool = False,
    ) -> None:
        """Add a run that was measured before; None for one that failed. ``about`` are attributes of its trial, which
        is ``recorded`` if the run is one of this job."""
        import optuna

        if config in self:
            return
        self._results[config_to_json(config)] = _Result(
            latency, footprint, len(self.study.get_trials(deepcopy=False))
        )
        values = self._values(latency, footprint)
        state = optuna.trial.TrialState.COMPLETE if values else optuna.trial.TrialState.FAIL
        trial = optuna.trial.create_trial(
            params=self._parameters.of(config),
            distributions=self._parameters.distributions,
            values=values,
            state=state,
            user_attrs=dict(about or {}),
        )
        self.study.add_trial(trial)
        if recorded and self._record is not None:
            self._record.add(trial, restored=True)

    def suggest(self, config: Config) -> Proposal:
        """Propose this very candidate."""
        self.study.enqueue_trial(self._parameters.of(config))
        return self._pend(config, self.study.ask(self._parameters.distributions))

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
        for self._asked in range(_ASKS):
            trial = self.study.ask(self._parameters.distributions)
            config = self._parameters.config(trial.params)
            if config not in self:
                self._tell_moved(trial)
                return self._pend(config, trial)
            self._tell_known(trial, config)
        return None

    def _may_propose(self, config: Config) -> bool:
        """Return whether a candidate may have a trial now: a new one, or one whose result the sampler is told."""
        return config not in self or (self._asked < _REPEATS and config_to_json(config) in self._results)

    def _tell_moved(self, trial: optuna.trial.Trial) -> None:
        """Note what the sampler drew where that was no new, legal candidate."""
        from autotune.tuning.search.legal import LegalSampler

        sampler = self.study.sampler
        if isinstance(sampler, LegalSampler) and sampler.moved:
            trial.set_user_attr("drawn", sampler.moved)

    def _tell_known(self, trial: optuna.trial.Trial, config: Config) -> None:
        """End a trial whose candidate has one already."""
        known = self._results.get(config_to_json(config))
        if known is None:
            self._end(trial, None)
        else:
            trial.set_user_attr("repeats", known.number)
            self._end(trial, self._values(known.latency, known.footprint))

    def prunes(self, proposal: Proposal, latency: float, *, ever: bool = True) -> bool:
        """Report the isolated latency of a proposal, and return whether the pruner gives it up, if it ``ever`` may."""
        if len(self._objectives) > 1:
            return False  # Optuna has no pruning there
        proposal.trial.report(latency, step=0)
        if not ever or not proposal.trial.should_prune():
            return False
        self._pruned.add(proposal.trial.number)
        return True

    def tell(
        self,
        proposal: Proposal,
        latency: float | None,
        footprint: Footprint | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the result of a proposal; None for failed. ``about`` are attributes of its trial."""
        text = config_to_json(proposal.config)
        self._pending.discard(text)
        self._results[text] = _Result(latency, footprint, proposal.trial.number)
        for name, value in (about or {}).items():
            proposal.trial.set_user_attr(name, value)
        ended = self._end(proposal.trial, self._values(latency, footprint))
        if self._record is not None:
            self._record.add(ended)

    def _end(self, trial: optuna.trial.Trial, values: list[float] | None) -> FrozenTrial:
        from optuna.trial import TrialState

        from autotune.tuning.search.studies import stoppable, was_stopped

        pruned = trial.number in self._pruned
        with stoppable(self.study):  # a sampler stops its study when it has proposed everything
            if values is None:
                ended = self.study.tell(trial, state=TrialState.FAIL)
            elif pruned:
                ended = self.study.tell(trial, state=TrialState.PRUNED)
            else:
                ended = self.study.tell(trial, values)
        self.exhausted |= was_stopped(self.study)
        return ended

    def _values(self, latency: float | None, footprint: Footprint | None) -> list[float] | None:
        """Return the value of each objective; None if it failed, or if one of them is not known."""
        if latency is None or not math.isfinite(latency):
            return None
        values = []
        for objective in self._objectives:
            if objective is Objective.LATENCY:
                values.append(latency)
            elif footprint is None:
                return None
            else:
                values.append(float(Goal(objective).bytes_of(footprint)))
        return values


__all__ = ["Proposal", "SamplerFactory", "Search"]
