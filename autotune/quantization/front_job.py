"""The job of a front: schedules for a model in float32 and in short precisions, then plans of precisions, all measured.

Plans begin with rungs of ladders from the fastest to the most exact (:mod:`autotune.quantization.ladders`); Optuna
proposes offspring of what was measured (:mod:`autotune.quantization.study`). A plan that another one is predicted to
beat in both latency and error is not measured.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autotune import settings
from autotune.compiler.dividing import imported
from autotune.compiler.request import CompileRequest
from autotune.compiler.shared import SharedWork
from autotune.compiler.sites.decision import model_row
from autotune.database.opening import opened
from autotune.database.records import JobRow
from autotune.errors import UsageError, first_line
from autotune.frontends.onnx.read import origin_of, read_model
from autotune.graph.ir import Array, Graph
from autotune.machine_lock import Measuring
from autotune.quantization.compiling import Data, prepared, samples_of
from autotune.quantization.front import PrecisionPoint, front, stored_points, weights_of
from autotune.quantization.judged import Judge
from autotune.quantization.ladders import first_plans
from autotune.quantization.latencies import MixedModel
from autotune.quantization.precision import Precisions, products_by_precision
from autotune.quantization.quantize import calibrate_model, has_products
from autotune.quantization.study import PrecisionStudy
from autotune.quantization.tuning import stored, tolerance_of
from autotune.quantization.within import PrecisionSearch
from autotune.tuning.jobs.answered import ended_before, how_to_go_on
from autotune.tuning.jobs.budget import Budget, Meter
from autotune.tuning.jobs.heartbeat import PhasesHeartbeat
from autotune.tuning.measure.error_budget import Accuracy
from autotune.tuning.measure.gain import LEAST, Gain, gain_of
from autotune.tuning.measure.samples import Samples, input_shapes
from autotune.tuning.search.studies import StorageLike, default_storage, study_name

if TYPE_CHECKING:
    from optuna.trial import Trial

    from autotune.compiler.dividing import Model
    from autotune.database.store import Database
    from autotune.tuning.report.result import Report

OBJECTIVE = "latency,error"
"""The name of the objective on the command line."""
LARGEST = Accuracy.of(0.1)
"""Of the errors that are searched unless another one is given: outputs a tenth off are of little use."""
_SCHEDULES = 1 / 3
"""The share of what is left of the budget that goes to schedules; the rest is for measuring plans, some twenty of which
make a front."""
_LEAST_S = 30.0
"""In fewer seconds hardly a schedule is measured: plans have those that there are."""
_TUNED = 2
"""So many of the first plans, which are far apart, are tuned beside float32."""
Tune = Callable[[Sequence["Model"], float, Budget, PhasesHeartbeat], "Report"]
"""Tunes models with options of such a declared error within a part of the budget, and tells the job of it."""


@dataclass(frozen=True)
class FrontOptions:
    """Options of the search for a front: the study's storage (None: beside the database), the moment at which the
    command began (``time.monotonic``; None: now), and what hears the phases."""

    seed: int = 0
    storage: StorageLike | None = None
    begun: float | None = None
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class FrontReport:
    """The points that none beats of all that are known of a model; ``stopped`` where the job was stopped early."""

    points: tuple[PrecisionPoint, ...]
    stopped: bool
    job: str


def tune_front(
    request: CompileRequest,
    accuracy: Accuracy,
    data: Data,
    budget: Budget,
    tune: Tune,
    options: FrontOptions | None = None,
    *,
    again: bool = True,
) -> FrontReport:
    """Search precisions of a model's products for the front of latency and error, up to the error of ``accuracy``.

    All that is measured is stored at once; the same call goes on where a job was stopped or killed. Unless ``again``
    one that has come to its end within the same budget is not followed by another. Raises as
    :func:`autotune.quantization.compiling.compile_within` and tuning do; UsageError for a model without products.
    """
    begun, options = time.monotonic(), options or FrontOptions()
    request = prepared(request)
    model: Any = request.model
    if not has_products(model):
        raise UsageError(f"objective {OBJECTIVE}: no product of the model has constant float32 weights")
    samples = samples_of(model, data)
    with opened(request.database) as store:
        own = replace(request, database=store)
        graph, target = imported(own.model, own.shapes), own.one_target()
        asked = _asked_key(own, graph, samples, accuracy, options.seed)
        last = None if again else ended_before(store, asked, budget)
        if last is not None:
            options.say(how_to_go_on(last))
            return FrontReport(tuple(front(stored_points(own))), stopped=False, job=last.job.id)
        store.add_target(target)
        store.add_workload(model_row(graph))
        heart = PhasesHeartbeat.claimed(store, asked, graph.name, target.key, budget)
        meter = Meter(
            budget, before_s=heart.row.elapsed_s, head_s=time.monotonic() - (options.begun or begun)
        )
        own_options = replace(options, storage=options.storage or _journal(store, heart.row))
        job = _FrontJob(own, accuracy, samples, data is None, meter, heart, tune, own_options)
        stopped = job.run()
        return FrontReport(tuple(front(stored_points(own))), stopped, heart.row.id)


def _asked_key(
    request: CompileRequest, graph: Graph, samples: Mapping[str, Array], accuracy: Accuracy, seed: int
) -> str:
    """Return what is equal for calls that ask for the same job."""
    digests = [[name, hashlib.sha256(array.tobytes()).hexdigest()] for name, array in sorted(samples.items())]
    weights = weights_of(request.model)
    facts = [OBJECTIVE, model_row(graph).key, weights, request.one_target().key, str(accuracy), seed, digests]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _journal(store: Database, row: JobRow) -> StorageLike:
    home = settings.current().home_path() / "studies"
    return default_storage(store.where, study_name([row.model], row.id), home)


class _FrontJob:
    """One session of a job: what it has done before is in the study and in the database."""

    def __init__(
        self,
        request: CompileRequest,
        accuracy: Accuracy,
        samples: Mapping[str, Array],
        is_random: bool,
        meter: Meter,
        heart: PhasesHeartbeat,
        tune: Tune,
        options: FrontOptions,
    ) -> None:
        self.request, self.accuracy, self.is_random = request, accuracy, is_random
        self.meter, self.heart, self.tune = meter, heart, tune
        self.options = options
        source: Any = request.model
        self.name = origin_of(source)
        shapes = input_shapes(read_model(source).proto, samples)
        self.seen, self.held = Samples.of(samples, shapes).split()

    def run(self) -> bool:
        """Work until the budget is spent; returns whether it was stopped before."""
        state, why = JobRow.STOPPED, ""
        try:
            if self._tuned():
                self._measure()
                state = JobRow.DONE
        except KeyboardInterrupt as error:
            why = f"by {str(error) or 'Ctrl-C'}"
        except Exception as error:
            why = f"by an error: {first_line(error)}"
            raise
        finally:
            self.heart.end(state, why)
        return state != JobRow.DONE

    def say(self, text: str) -> None:
        """Say what is done."""
        self.heart.say(text)
        self.options.say(text)

    @cached_property
    def mixed(self) -> MixedModel:
        """Return the calibrated model."""
        calibrated = calibrate_model(self.request.model, self.seen.arrays, threads=self.request.threads)
        return MixedModel(calibrated, self.request, self.seen.arrays)

    @cached_property
    def search(self) -> PrecisionSearch:
        """Return what knows of each product the precisions to choose from, and the error that each makes."""
        self.say("choosing precisions by the errors that they make, one product at a time")
        return self._search(None)

    def _search(self, choices: Mapping[str, Sequence[str]] | None) -> PrecisionSearch:
        further = len(self.held.sets)
        return PrecisionSearch(self.mixed, self.seen, further, self.accuracy, faster=True, choices=choices)

    @cached_property
    def study(self) -> PrecisionStudy:
        """Return the study, which may have been begun with other choices, as latencies were predicted then."""
        name = study_name([self.heart.row.model], self.heart.row.id)
        storage, seed = self.options.storage, self.options.seed
        assert storage is not None
        study = PrecisionStudy(storage, name, self.search.choices, first_plans(self.search), seed)
        if study.choices != {product: [*each] for product, each in self.search.choices.items()}:
            self.search = self._search(study.choices)
        return study

    def _tuned(self) -> bool:
        """Tune the model in float32 and in the first plans; False where that was stopped."""
        phase = "schedules"
        self.heart.begin("choices")
        plans = self.study.starts[:_TUNED]
        if phase in self.heart.phases or _SCHEDULES * self.meter.left_s < _LEAST_S:
            return True
        self.heart.begin(phase)
        mixed = [
            self.mixed.written(plan).called(f"{self.name} with {products_by_precision(plan)}")
            for plan in plans
        ]
        report = self.tune([self.request.model, *mixed], tolerance_of(plans), self._part(), self.heart)
        if not report.stopped:
            self.heart.over()
        return not report.stopped

    def _part(self) -> Budget:
        budget, left = self.meter.budget, self.meter.left_s
        trials = None if budget.trials is None else max(1, round(_SCHEDULES * budget.trials))
        seconds = None if budget.limit_s is None else _SCHEDULES * left
        return replace(budget, time=None, trials=trials, seconds=seconds, minutes=None, hours=None)

    def _measure(self) -> None:
        """Measure plans until the budget is spent, or none are proposed any more."""
        self.heart.begin("front")
        request = replace(self.request, shared=SharedWork())  # schedules were measured since the choices
        judge = Judge(request, (self.seen, self.held), self.accuracy)
        mixed = MixedModel(self.mixed.calibrated, request, self.seen.arrays)
        measuring = _Measuring(self, judge, mixed)
        proposals = self.study.proposals()
        with Measuring(f"front of {self.heart.row.model}", self.say) as machine:
            while not self._spent and (proposal := next(proposals, None)) is not None:
                machine.offer()
                with self.study.postponed(proposal[0]):
                    measuring.decide(*proposal)
        self.heart.over()

    @property
    def _spent(self) -> bool:
        limit = self.meter.budget.trials
        of_front = float("inf") if limit is None else limit - round(_SCHEDULES * limit)
        return self.meter.spent or self.study.measured >= of_front


class _Measuring:
    """Measures plans, those that may be on the front."""

    def __init__(self, job: _FrontJob, judge: Judge, mixed: MixedModel) -> None:
        self.job, self.judge, self.mixed = job, judge, mixed
        self.weights = weights_of(job.request.model)
        self.known = [(each["predicted"], each["expected"]) for each in job.study.facts()]

    def decide(self, trial: Trial, precisions: Precisions) -> None:
        """Measure a plan and store it, or say why it is not worth that."""
        job = self.job
        predicted = self.mixed.predicted(precisions).total_ns
        expected = job.search.expected(precisions)
        if why := self._why_not(precisions, predicted, expected):
            job.study.prune(trial, why)
            return
        job.say(f"measuring plan {job.study.measured + 1}")
        within, compiled = self.judge.measured(self.mixed, precisions)
        plain, image = (each.cases[0].done.image for each in (self.judge.reference, compiled))
        if plain.same_code(image):
            job.study.prune(trial, "it is compiled to the machine code of float32")
            return
        gain = gain_of(plain, image, job.options.seed, job.meter.past(), processes=LEAST)
        if gain is None:
            if not job.meter.spent:
                job.study.prune(trial, "a version failed while it was timed")
            return
        facts = str(job.accuracy), within.held_back, job.is_random, self.weights
        (point,) = stored(job.request, [(PrecisionPoint(precisions, *facts), gain)], job.heart.row.id)
        self.known.append((predicted, expected))
        about = {"predicted": predicted, "expected": expected, "interval": gain.ratio.interval}
        job.study.tell(trial, gain.ratio.median, point.held_back.error, about)
        job.heart.gains = _best(job.heart.gains, job.heart.row.model, gain)
        job.say(str(point))

    def _why_not(self, precisions: Precisions, predicted: float, expected: float) -> str:
        if expected > self.job.accuracy.limit:
            return f"an error of {expected:.2g} is expected, more than {self.job.accuracy}"
        if precisions in self.job.study.starts:
            return ""
        beaten = any(latency <= predicted and error <= expected for latency, error in self.known)
        return "a measured plan is predicted to be as fast and as exact" if beaten else ""


def _best(gains: Mapping[str, Any], model: str, gain: Gain) -> dict[str, Any]:
    """Return the gain of the fastest plan, as a job shows it."""
    before = gains.get(model)
    if before is not None and before["ratio"] <= gain.ratio.median:
        return dict(gains)
    return {model: gain.ratio.to_json()}


__all__ = ["LARGEST", "OBJECTIVE", "FrontReport", "tune_front"]
