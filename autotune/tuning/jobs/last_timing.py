"""The last measurement of a job: whole models, untuned and as they will be compiled, interleaved in fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from autotune.database import Database
from autotune.database.answers import KeptAnswers
from autotune.database.posterior import Posterior
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.compare.step import code_in_use
from autotune.tuning.compare.whole import InUse, Parts, parts_of, refusals_of
from autotune.tuning.jobs.loop import TuningLoop
from autotune.tuning.jobs.subject import TunedModel
from autotune.tuning.measure.gain import PROCESSES, Gain
from autotune.tuning.measure.interface import Measurer
from autotune.tuning.report.status import Status
from autotune.tuning.report.units import duration

FEWER = 1 / 3
"""The part of what timing whole models takes, in which it can be done in fewer processes."""
_ALL = 0.95
"""The part of the time left after the search for all but the report."""
_TIMED = 2
"""The most times that a whole model is timed, where each time another plan is used by that."""

Told: TypeAlias = Callable[[Gain, InUse, Sites, Callable[[Site], Mapping[str, Posterior]]], Parts]
"""Reads a measurement of the whole model: rows of all that is used in it."""


@dataclass
class LastTiming:
    """Times models at the end of a job. It is a claim and no evidence, so that what it is about stays in use; but for
    that of a plan which is clearly slower than untuned."""

    database: Database
    models: Sequence[TunedModel]
    """Those to time; of them, those that are measured as a whole are."""
    answers: KeptAnswers
    measurer: Measurer
    say: Callable[[str], None]
    use: Callable[[], None]
    """Called after each timing: takes up what is used from then on."""
    gains: dict[str, Gain | None] = field(default_factory=dict)
    """The gain of each model; None where the plan in use was not timed."""
    untimed_by: dict[str, str] = field(default_factory=dict)
    """The reason for which a model was not timed."""

    def time(self, status: Status, loop: TuningLoop, least_s: float) -> None:
        """Time the models, which takes so many seconds, and those again of which another plan is used by that."""
        timed = dict[str, InUse]()
        for more in reversed(range(_TIMED)):
            models = self._untimed(status, timed)
            if models and status.meter.left_s < FEWER * least_s:
                self._leave_out(models, status.meter.left_s, FEWER * least_s)
                break
            timed |= {model.name: self._in_use(status, model) for model in models}
            begin = status.meter.session_s
            self._time(status, models)
            least_s = status.meter.session_s - begin
            again = more > 0 and status.meter.left_s >= FEWER * least_s
            for model in models:
                gain = self.gains[model.name]
                if gain is not None and (again or _is_slower(gain)):
                    self._learn(status, loop, model, parts_of, timed[model.name], gain)
            self.use()
        self._refuse(status, loop, timed)
        self._withdraw(self._untimed(status, timed))

    def _leave_out(self, models: Sequence[TunedModel], left_s: float, least_s: float) -> None:
        why = f"the budget is over before that ({duration(left_s)} left, it takes {duration(least_s)})"
        self.untimed_by |= dict.fromkeys((model.name for model in models), why)
        self.say(f"not timed: {why}")

    def _refuse(self, status: Status, loop: TuningLoop, timed: Mapping[str, InUse]) -> None:
        """Give up all that is used in models that were slower with it, and still have it in use."""
        others = {model.name for model in self._untimed(status, timed)}
        for model in self.models:
            gain = self.gains.get(model.name)
            if gain is not None and model.name not in others and _is_slower(gain):
                self._learn(status, loop, model, refusals_of, timed[model.name], gain)
        self.use()

    def _withdraw(self, models: Sequence[TunedModel]) -> None:
        """Take back the gains of models of which another plan is used than was timed."""
        for model in models:
            if (gain := self.gains.get(model.name)) is not None:
                why = f"{gain} is of the plan before; by that another is used"
                self.say(f"{model.name}: {why}")
                self.gains[model.name], self.untimed_by[model.name] = None, why

    def _untimed(self, status: Status, timed: Mapping[str, InUse]) -> list[TunedModel]:
        """Return the models to time of which another plan is used than was ``timed``."""
        return [
            model
            for model in self.models
            if model.whole is not None
            and (model.name not in timed or timed[model.name].names != self._in_use(status, model).names)
        ]

    def _in_use(self, status: Status, model: TunedModel) -> InUse:
        return InUse.of(status.sites.of(model.name), self.answers)

    def _learn(
        self, status: Status, loop: TuningLoop, model: TunedModel, told: Told, used: InUse, gain: Gain
    ) -> None:
        """Take what a whole model takes as evidence about all that is used in it."""
        parts = told(gain, used, status.sites.of(model.name), status.policy.beliefs.known)
        self.database.measured_whole(parts, model.name, status.job)
        loop.seats[model.name].comparing.learn_of_whole(parts)

    def _time(self, status: Status, models: Sequence[TunedModel]) -> None:
        """Time models untuned and tuned, one after another."""
        if not models:
            return
        self.gains |= dict.fromkeys(model.name for model in models)
        tasks = {model.name: status.sites.of(model.name).tasks for model in models}
        tuned = {name: code_in_use(mine, self.answers, self.measurer) for name, mine in tasks.items()}
        self.measurer.rest()  # nothing else may run while models are timed
        for number, model in enumerate(models):
            out_of_time = status.meter.over(_ALL / (len(models) - number))
            which = f"{model.name}, " if len(models) > 1 else ""
            self.say(f"{which}untuned and tuned, interleaved in up to {PROCESSES} fresh processes")
            untuned = {
                task.workload.key: task.default_code for task in tasks[model.name] if task.default_code
            }
            assert model.whole is not None
            gain = model.whole.gain(untuned, tuned[model.name], out_of_time)
            self.gains[model.name] = gain
            if gain is None:
                over = "the budget was over before enough of it was timed"
                self.untimed_by[model.name] = over if out_of_time() else "a version failed"


def _is_slower(gain: Gain) -> bool:
    """Return whether a model is confirmed to be slower than untuned."""
    return gain.ratio.changed and gain.ratio.median > 1


__all__ = ["FEWER", "LastTiming"]
