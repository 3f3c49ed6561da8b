"""Tuning a program of a user's own: ``autotune.tune_schedule``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune import te
from autotune.codegen import wire
from autotune.database import Hit, Miss
from autotune.database.opening import DatabaseLike, opened
from autotune.errors import MeasureError, UsageError
from autotune.functions.function import image_of
from autotune.graph.program import ProgramWorkload
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.api import builders_for, runnable, shown_to
from autotune.tuning.jobs.budget import Budget, BudgetLike
from autotune.tuning.measure.gain import Gain, gain_of
from autotune.tuning.measure.turns import Rounds, Turns
from autotune.tuning.measure.whole_model import UNWATCHED, Code, Profile, Version, Watch
from autotune.tuning.report.result import Report
from autotune.tuning.report.units import nanoseconds

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

    from autotune.compiler.plan import Ranking
    from autotune.runtime.image import ModuleImage
    from autotune.schedule.knob import Config
    from autotune.schedule.schedule import Schedule
    from autotune.te import Tensor
    from autotune.tuning.jobs.events import Callback
    from autotune.tuning.report.status import Progress
    from autotune.tuning.search.samplers import SamplerLike
    from autotune.tuning.search.studies import StorageLike, TrialCallback
    from search_spaces.sketch import ScheduleFunction, Sketch
    from search_spaces.space import Space


@dataclass(frozen=True, repr=False)
class TunedSchedule:
    """The best schedule that is known of a program.

    ``trace`` has its steps, and prints as Python; ``config`` the values of the knobs that made it. Latencies are in
    ns: ``before_ns`` with the knobs' defaults (None if that never worked), ``after_ns`` of this schedule; what it
    gains is the ``report``'s.
    """

    trace: Trace
    config: Config
    before_ns: float | None
    after_ns: float
    report: Report = field(compare=False)
    args: tuple[Tensor, ...] = field(compare=False)

    @property
    def speedup(self) -> float | None:
        """Return the speed-up over the default; None where that is not confirmed."""
        return self.report.speedup

    @property
    def schedule(self) -> Schedule:
        """A fresh schedule with these steps, for ``autotune.build(result.schedule, result.args)``."""
        fresh: Schedule = te.create_schedule([t.op for t in self.args if isinstance(t.op, te.ComputeOp)])
        return self.trace.apply(fresh)

    def __repr__(self) -> str:
        return (
            f"<TunedSchedule {self.report.model}: {nanoseconds(self.after_ns)}, default "
            f"{nanoseconds(self.before_ns)}, {self.report.gain.ratio if self.report.gain else 'unconfirmed'}>"
        )


def tune_schedule(
    function: ScheduleFunction | Sketch | None,
    args: Sequence[Tensor],
    *,
    budget: BudgetLike,
    database: DatabaseLike | None = None,
    target: Target | str = "host",
    threads: int | None = None,
    name: str = "program",
    seed: int = 0,
    sampler: SamplerLike = "guided",
    study_storage: StorageLike | None = None,
    callbacks: Sequence[TrialCallback] = (),
    pruner: BasePruner | None = None,
    quiet: bool = False,
    callback: Callback | None = None,
    progress: Progress | None = None,
    allow_oversubscription: bool = False,
) -> TunedSchedule:
    """Search the knobs of a schedule function for the fastest schedule of a program of tensor expressions.

    ``function`` takes a schedule and calls primitives on it; ``s.knob(name, values)`` declares what is searched, and
    ``s.require`` which values go together. None stands for a function made from the program's structure, with the cost
    model's choice as its default. ``args`` are the tensors of the program in the order of the call, as for
    ``autotune.build``; those that are computed are its outputs. Candidates are built, checked against NumPy and timed
    as those of models are, and stored in the same ``database``: the same call continues where the last one ended. The
    other arguments are those of :func:`autotune.tune`.

    Raises KnobError and ScheduleError where the function's declarations or default steps are wrong, UsageError for
    arguments of another kind, and MeasureError where no candidate works.
    """
    from autotune.tuning.jobs.job import Job, Options
    from autotune.tuning.jobs.subject import Subject, TunedModel
    from autotune.tuning.measure.pool import ProcessPool
    from autotune.tuning.search.online_model import OnlineModel
    from autotune.tuning.search.samplers import factory
    from cost_models.program_default import program_default
    from search_spaces.programs.automatic import Automatic
    from search_spaces.programs.program import space
    from search_spaces.sketch import Sketch

    begun = time.monotonic()
    _check_arguments(function, args)
    limit = Budget.of(budget)
    options = Options(sampler, seed, least=1, study_storage=study_storage, callbacks=callbacks, pruner=pruner)
    factory(sampler, OnlineModel(None), options.batch)  # an unknown sampler is noticed before workers start
    chosen = runnable(Target.parse(target, threads))
    builders = builders_for(chosen, allow_oversubscription=allow_oversubscription)
    workload = ProgramWorkload.of(args)
    outputs = [tensor for tensor in args if isinstance(tensor.op, te.ComputeOp)]
    if function is None:
        function = Automatic(tuple(outputs), chosen)
    sketch = function if isinstance(function, Sketch) else Sketch(function, outputs)
    if not sketch.knobs:
        raise UsageError(
            "the schedule function declares no knobs: write s.knob(name, values) for what may change"
        )
    mine = space(workload, chosen, sketch)
    default = program_default(mine, function) if isinstance(function, Automatic) else mine.default()
    with opened(database) as store, closing(ProcessPool.started(builders)) as pool:
        job = Job(
            models=[
                TunedModel(
                    name,
                    [Subject((name,), workload, mine, default)],
                    whole=ProgramAlone(name, mine, default, seed),
                )
            ],
            target=chosen,
            budget=limit,
            database=store,
            measurer=pool,
            progress=shown_to(progress, callback, quiet=quiet),
            options=options,
            head_s=time.monotonic() - begun,
        )
        report = job.run()
        found = store.lookup(workload.key, chosen.key, mine.key)
    return _result(found, report, tuple(args))


def _check_arguments(function: object, args: object) -> None:
    """Raise UsageError for what is no schedule function, or no list of tensors."""
    from search_spaces.sketch import Sketch

    if isinstance(args, te.Tensor):
        raise UsageError(
            f"args are all tensors of the program in the order of the call, got the tensor {args.name} alone: write "
            f"[..., {args.name}] with its inputs"
        )
    given = list(args) if isinstance(args, Sequence) else [args]
    items = [item for item in given if isinstance(item, te.Tensor)]
    if len(items) < len(given):
        kinds = ", ".join(type(item).__name__ for item in given)
        raise UsageError(f"args are the tensors of the program in the order of the call, got {kinds}")
    is_data = isinstance(function, te.Tensor | te.Operation)  # tensors can be called, with indices
    if function is None or isinstance(function, Sketch) or (callable(function) and not is_data):
        return
    got = f"{type(function).__name__} {getattr(function, 'name', function)}"
    listed = ", ".join(item.name for item in items)
    raise UsageError(
        f"tune_schedule takes a function that schedules, a Sketch or None first, got the {got}: write "
        f"tune_schedule(None, [{listed}], ...) for a function made from the program"
    )


def _result(found: Hit | Miss, report: Report, args: tuple[Tensor, ...]) -> TunedSchedule:
    """Return the schedule that the database answers with."""
    if isinstance(found, Miss):
        reasons = "; ".join(f"{name}: {text}" for name, text in report.failures.items())
        raise MeasureError(f"no candidate worked: {reasons or found.found}")
    before, after = found.latencies
    best = found.best
    return TunedSchedule(Trace.from_json(best.trace_json), best.config, before, after, report, args)


class ProgramAlone:
    """A program as the model in which its schedules are compared: one dispatch, whose versions are interleaved."""

    nbytes = 0
    most = 16

    def __init__(self, name: str, space: Space, default: Config, seed: int) -> None:
        self.name = name
        self._space = space
        self._default = default
        self._seed = seed

    def rankings(self) -> dict[str, Ranking]:
        """Return None: there is one way to compute it."""
        return {}

    def read(
        self,
        versions: Sequence[Version],
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        """Return the times of versions in an interleaved measurement; None for one that failed."""
        with Turns(self._seed) as turns:
            turns.start(rounds.processes)
            for version in versions:
                turns.add(self._image(version.code))
            return turns.profiles(rounds, out_of_time, watch)

    def gain(self, untuned: Code, tuned: Code, out_of_time: Callable[[], bool]) -> Gain | None:
        """Return the default and the ``tuned`` schedule, in several fresh processes."""
        return gain_of(self._image(untuned), self._image(tuned), self._seed, out_of_time)

    def _image(self, code: Code) -> ModuleImage:
        from autotune.codegen.backend import compile_schedule

        space = self._space
        built = code.get(space.workload.key)
        if built is not None:
            return image_of(
                wire.from_json(built.payload), space.target, self.name, workload=space.workload.key
            )
        program = space.workload.program()
        schedule = space.apply(program, self._default)
        default = compile_schedule(schedule, program.args, space.target, name=space.workload.symbol)
        return image_of(default, space.target, self.name, workload=space.workload.key)


__all__ = ["ProgramAlone", "TunedSchedule", "tune_schedule"]
