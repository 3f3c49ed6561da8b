"""The public functions: tune, compile, predict, query and retrain."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from autotune import settings
from autotune.compiler.request import (
    ChoiceOptions,
    CompileOptions,
    CompileRequest,
    MachineOptions,
    keywords_of,
)
from autotune.database import Key, Miss, WorkloadRow
from autotune.database.goal import searched
from autotune.database.opening import DatabaseLike, default_database, opened
from autotune.errors import UsageError
from autotune.files import scratch_folder
from autotune.garbage import collector_paused
from autotune.hardware import check_threads, usable_cores
from autotune.suggest import counted
from autotune.target import Target
from autotune.tuning.jobs.budget import Budget, BudgetLike
from autotune.tuning.report.answer import Answer
from autotune.tuning.report.asked import Asked, entries
from autotune.tuning.report.result import Report
from autotune.tuning.requested import open_database, with_database

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from pandas import DataFrame

    from autotune.compiler.dividing import Model
    from autotune.compiler.forecast import Prediction
    from autotune.compiler.plan import Plan, Ranking
    from autotune.compiler.sites.decision import Decision
    from autotune.database.store import Database
    from autotune.frontends.sizes import Given
    from autotune.graph.ir import Graph
    from autotune.graph.program import AnyWorkload
    from autotune.passes.partition import Partition
    from autotune.runtime.module import Module
    from autotune.runtime.programs.device_program import DeviceProgram
    from autotune.tuning.fleet.opening import OnFleet
    from autotune.tuning.jobs.events import Callback
    from autotune.tuning.jobs.forecast import Forecast
    from autotune.tuning.jobs.models import AskedModel
    from autotune.tuning.measure.interface import Measurer
    from autotune.tuning.report.status import Progress
    from autotune.tuning.search.prior import CostModelLike
    from autotune.tuning.search.samplers import SamplerLike
    from autotune.tuning.search.studies import StorageLike, TrialCallback
    from cost_models.registry import Registry
    from cost_models.retrain import RetrainReport


NEAREST = 3
"""So many neighbours of what is missing are shown."""


def model_folder() -> Path:
    """Return the folder of trained cost models, in the settings' home folder."""
    return settings.current().home_path() / "cost_models"


def cost_model_registry() -> Registry:
    """Return the models in that folder, and those that come with the package."""
    from cost_models.builtin import SHIPPED
    from cost_models.registry import Registry

    return Registry(model_folder(), SHIPPED)


@keywords_of(MachineOptions)
def tune(
    model: Model | Sequence[Model],
    *,
    budget: BudgetLike,
    seed: int = 0,
    sampler: SamplerLike = "guided",
    cost_model: CostModelLike = "current",
    objective: str = "latency",
    transfer: bool = True,
    study_storage: StorageLike | None = None,
    callbacks: Sequence[TrialCallback] = (),
    pruner: BasePruner | None = None,
    quiet: bool = False,
    callback: Callback | None = None,
    progress: Progress | None = None,
    time_model: bool = True,
    begun: float | None = None,
    measurer: Callable[[int], Measurer] | None = None,
    fleet: str | None = None,
    sites: Sequence[str] | None = None,
    again: bool = True,
    stop_when: float | None = None,
    **options: Unpack[MachineOptions],
) -> Report:
    """Search faster schedules for all workloads of a model, and store every measured run in the database.

    Several models, or a folder of ONNX files, are one job: it searches a workload that they share once, and makes the
    geometric mean of their latencies smaller, so that a part of a model's latency counts the same in each of them. The
    report has the result of each. All of them get the same ``options``.

    ``budget`` is a Budget, a time such as ``"8h"``, or seconds. ``sampler`` is a name (``guided`` or one of Optuna's),
    an Optuna sampler, a function that makes one from a ``seed``, or a study, whose sampler and pruner are used and
    which gets the trials.
    ``cost_model`` ranks candidates before they are measured: ``current`` (`autotune models` shows which), ``analytic``,
    ``builtin``, a version, the name that an installed package gives its own, or an object with a method ``predict``.
    ``objective`` is latency, or what is searched beside it: memory, size (of the artifact), or front for all three.
    With ``transfer`` each search begins with schedules of near workloads (other shapes, other threads). With
    ``time_model`` the report has the whole model's latency. A time budget covers everything from ``begun`` (by
    ``time.monotonic``; the call, if not given) to the report. The ``options`` are those of
    :class:`~autotune.compiler.request.CompileRequest` that change workloads; above the default tolerance the report
    has the error of the whole model from end to end.

    The studies of the job are kept in ``study_storage``: a URL of a database, the path of a journal file, or a storage
    of Optuna's; a journal in the folder ``DATABASE.studies`` if not given. Each of the ``callbacks`` is called with a
    study and each trial that has ended, as those of ``study.optimize`` are: ``study.stop()`` ends the search. A
    candidate that the ``pruner`` gives up by its isolated latency is not measured in the model.

    Unless ``quiet``, the job displays its progress on standard output; ``progress`` is another display. ``callback``
    is called with a TuningEvent at the start, after each trial, at each phase and at the end. It may raise StopTuning
    to end the search early; any other exception ends the job and is raised here. ``measurer`` makes the object that
    builds, checks and times candidates on so many cores, instead of worker processes. With ``fleet``, the address of a
    Ray cluster, the seats of its nodes measure instead of this machine, those of the job's target (docs/fleet.md).

    ``sites`` are those of the whole model that are compared first, by their names in :mod:`autotune.compiler.sites`:
    threads, layout, order. By default they are all that never were, if the budget is a time of five minutes or more.
    Schedules are searched for what was decided; with no sites, ``()``, for an untuned model.

    With ``stop_when``, such as 0.02, the search ends when what is left of it is expected to make less than that part of
    the latency go; the whole model is timed as at any end.

    A job that was stopped or killed is continued when the same call is made again; one that came to its end is followed
    by a new one, or, unless ``again`` or with ``sites`` to compare again, its report is shown and returned at once, if
    the budget is the same. Ctrl-C ends the search early: the report says ``stopped`` and the best so far is kept.
    Raises UsageError, also for more threads than usable cores without ``allow_oversubscription``, ModelImportError,
    DatabaseError and MeasureError.
    """
    from autotune.calibration.host import ensure
    from autotune.runtime.random_inputs import checked_seed
    from autotune.tuning.compare.decide import CompiledVersions, decide_for
    from autotune.tuning.jobs.answered import answered_before
    from autotune.tuning.jobs.job import Job, Options
    from autotune.tuning.jobs.model import tuned_model
    from autotune.tuning.jobs.models import asked_key, common_target, read_models, source_of, sources_of
    from autotune.tuning.measure.pool import ProcessPool
    from autotune.tuning.measure.turns import Turns
    from autotune.tuning.report.progress import signs_of_life
    from autotune.tuning.search.online_model import OnlineModel
    from autotune.tuning.search.prior import prior_for
    from autotune.tuning.search.samplers import factory, name_of

    begun = time.monotonic() if begun is None else begun
    limit = Budget.of(budget)
    limit = limit if stop_when is None else replace(limit, stop_when=stop_when)
    search = Options(
        sampler,
        checked_seed(seed),
        time_model=time_model,
        objective=objective,
        transfer=transfer,
        study_storage=study_storage,
        callbacks=callbacks,
        pruner=pruner,
    )
    # An unknown sampler or objective is noticed before workers start.
    factory(sampler, OnlineModel(None), search.batch, len(searched(objective)))
    models = read_models(sources_of(model), **options)
    request = models[0].request
    chosen = request.one_target() if fleet is not None else runnable(request.one_target())
    builders = builders_for(
        chosen, allow_oversubscription=request.allow_oversubscription or fleet is not None
    )
    shown = shown_to(progress, callback, quiet=quiet)
    ensure(chosen, shown.preparing)
    identity = (name_of(sampler), search.seed, objective)
    with opened(request.database) as store, ExitStack() as cleanup:
        if not (again or sites):
            known = models if sites is not None else _as_decided(models, store)
            before = answered_before(store, asked_key(known, identity), limit, shown)
            if before is not None:
                return before
        seats = None if fleet is None else cleanup.enter_context(_seats(fleet, chosen, builders, shown))
        turns_of = Turns if seats is None else seats.turns_of
        decided = []
        for asked in models:
            own, decisions, begun = decide_for(
                asked,
                store,
                sites,
                limit,
                begun,
                shown.preparing,
                partial(CompiledVersions, seed=seed, turns_of=turns_of),
                fixed=("threads",) if len(models) > 1 else (),
            )
            decided.append((asked.by(own), decisions))
        models = [asked for asked, _ in decided]
        chosen = common_target(models)
        ensure(chosen, shown.preparing)
        local = measurer or ProcessPool.started
        pool = cleanup.enter_context(closing(local(builders) if seats is None else seats.measurer))
        dispatches = sum(len(asked.parts.dispatches) for asked in models)
        choosing = f"choosing default schedules for {counted(dispatches, 'dispatch')}"
        with signs_of_life(shown.preparing, choosing):
            tuned = [tuned_model(asked, decisions, store, seed, turns_of) for asked, decisions in decided]
        job = Job(
            models=tuned,
            target=chosen,
            budget=limit,
            database=store,
            measurer=pool,
            progress=shown,
            options=search,
            prior=prior_for(cost_model, chosen, cost_model_registry()),
            head_s=time.monotonic() - begun,
            source=source_of(models, options),
            fleet=seats,
            asked=asked_key(models, identity),
        )
        return job.run()


def _seats(address: str, target: Target, builders: int, shown: Progress) -> AbstractContextManager[OnFleet]:
    """Return the seats of a Ray cluster for a target, to be entered."""
    from autotune.tuning.fleet.opening import on_fleet
    from autotune.tuning.fleet.ray_cluster import RayCluster

    shown.preparing(f"joining the fleet at {address}")
    return on_fleet(RayCluster(address), target, "measure for a fleet", builders)


def _as_decided(models: Sequence[AskedModel], store: Database) -> list[AskedModel]:
    """Return models with what the database has decided of each as a whole."""
    from autotune.compiler.sites.decision import decided

    return [replace(each, request=decided(each.request, each.graph, store)[0]) for each in models]


@keywords_of(MachineOptions)
def forecast(
    model: Model | Sequence[Model], *, budget: BudgetLike, **options: Unpack[MachineOptions]
) -> Forecast | None:
    """Return what :func:`tune` is expected to gain with the same budget and options, without measuring anything.

    It follows from what the database knows, else from the cost model; None where nothing is known at all.
    """
    from autotune.compiler.sites.decision import decided_of_model
    from autotune.tuning.jobs.dry_run import foreseen
    from autotune.tuning.jobs.model import tuned_model
    from autotune.tuning.jobs.models import common_target, read_models, sources_of

    models = read_models(sources_of(model), **options)
    with ExitStack() as cleanup:
        store = cleanup.enter_context(_read_or_empty(models[0].request.database))
        decided = [decided_of_model(asked.request, asked.graph, store) for asked in models]
        asked = [one.by(own) for one, (own, _, _) in zip(models, decided, strict=True)]
        tuned = [tuned_model(one, made, store, 0) for one, (_, _, made) in zip(asked, decided, strict=True)]
        return foreseen(tuned, common_target(asked), Budget.of(budget), store)


@contextmanager
def _read_or_empty(database: DatabaseLike | None) -> Iterator[Database]:
    """Yield a database to read from: an empty one where there is none yet."""
    where = default_database() if database is None else database
    if isinstance(where, str | Path) and "://" not in str(where) and not Path(where).exists():
        with scratch_folder("autotune-forecast-") as folder, opened(folder / "empty.db") as empty:
            yield empty
        return
    with opened(database, read_only=True) as store:
        yield store


def shown_to(progress: Progress | None, callback: Callback | None, *, quiet: bool) -> Progress:
    """Return everything that hears of the job."""
    from autotune.tuning.jobs.events import Calls, Several
    from autotune.tuning.report.progress import display
    from autotune.tuning.report.status import Progress

    shown = progress or (Progress() if quiet else display(sys.stdout))
    return shown if callback is None else Several([shown, Calls(callback)])


def builders_for(target: Target, *, allow_oversubscription: bool = False) -> int:
    """Return the number of processes that build candidates; raises UsageError for more threads than usable cores."""
    if target.group_items:
        return usable_cores()
    check_threads(target.threads, allow_oversubscription=allow_oversubscription)
    return target.cores


def runnable(target: Target) -> Target:
    """Return the target, if this machine can run its code; raises UsageError otherwise."""
    if target.group_items:
        return _on_device(target)
    if not Target.detect().lacks(target):
        return target
    raise UsageError(
        f"tuning measures on this machine, which cannot run code for {target.cpu}; "
        "use the target 'host', or tune on a machine of that kind"
    )


def _on_device(target: Target) -> Target:
    """Return the target, if it is a device of this machine; raises UsageError otherwise."""
    from autotune.runtime.device_code import device_for

    info = device_for(target)
    if info is not None and info.target == target:
        return target
    if info is not None and info.target is not None and info.target == target.with_threads(info.cores):
        raise UsageError(f"{info.name} has {info.cores} compute units and uses them all: leave out threads")
    raise UsageError(
        f"tuning measures on devices of this machine, and none is {target.name}; `autotune devices` lists them"
    )


@keywords_of(CompileOptions)
def compile(model: Model, **options: Unpack[CompileOptions]) -> Module:
    """Compile a model with the best schedules of the database; workloads without one get the default schedule.

    The ``options`` are those of :class:`~autotune.compiler.request.CompileRequest`. The module runs on all devices that
    are named, by a ``placement``, by ``devices`` or by the model itself, and for the ``target`` "opencl" on a device as
    a whole (docs/opencl.md); with ranges of sizes among the ``shapes`` it takes requests of many shapes, as of
    :func:`compile_for_sizes`. Of several targets the best one runs.

    Raises UsageError for options that exclude one another and for more threads than usable cores without
    ``allow_oversubscription``, PlacementError for devices that contradict one another or are not there, LockError for
    a lock that does not fit, and MissError with ``require_hit`` when nothing was searched for a workload (there is a
    choice, but no candidate was measured alongside the default).
    """
    return module_of(CompileRequest(model, **options))


@keywords_of(CompileOptions, without=("shapes",))
def compile_for_sizes(
    model: Model,
    sizes: Given,
    *,
    on_miss: str = "error",
    kept: int = 4,
    **options: Unpack[CompileOptions],
) -> Module:
    """Compile a model for requests of many shapes: each takes the smallest bucket that it fits in.

    ``sizes`` are by the names of the dimensions that the model leaves open (``INPUT.AXIS`` for one without a name):
    "1..32" has the powers of two as buckets, "1..32:8,32" has those, and 8 is one size; the shape of an input may be
    given by its name, ``(1, 128)``. The ``options`` are those of :func:`compile`.

    With ``on_miss="compile"`` a request out of the ranges is compiled for its exact sizes when it comes, which is
    logged as a warning; the last ``kept`` of such are kept, with constants of their own.

    Raises UsageError for other dimensions than the model's, PaddingError where a request's answer would depend on what
    lies beyond its sizes, and what :func:`compile` raises.
    """
    from autotune.frontends.models import read_model
    from autotune.tuning.compiling import program_for

    if on_miss not in ("error", "compile"):
        raise UsageError(f"on_miss is error or compile, not {on_miss!r}")
    if kept < 1:
        raise UsageError(f"at least 1 module is kept of those that are compiled on a miss, got {kept}")
    request = replace(CompileRequest(model, **options), shapes=sizes).checked()
    request = replace(request, model=read_model(request.model))
    missed = partial(program_for, request) if on_miss == "compile" else None
    return module_of(request, open_sizes=True, on_miss=missed, kept=kept)


def module_of(
    request: CompileRequest,
    *,
    open_sizes: bool = False,
    on_miss: Callable[[dict[str, int]], DeviceProgram] | None = None,
    kept: int = 4,
) -> Module:
    """Return the module of a request, whatever names it; raises as :func:`compile` and :func:`compile_for_sizes`."""
    from autotune.runtime.module import Module
    from autotune.tuning.compiling import compile_request

    check_cores(request)
    done = compile_request(request, open_sizes=open_sizes)
    workers = request.threads if request.allow_oversubscription else None
    return Module(done.model, workers, on_miss=on_miss, kept=kept)


def check_cores(request: CompileRequest) -> None:
    """Refuse more threads than cores for a target that is this machine: a named level is another's."""
    if request.threads is not None and any(t == "host" or isinstance(t, Target) for t in request.targets):
        check_threads(request.threads, allow_oversubscription=request.allow_oversubscription)


@keywords_of(ChoiceOptions)
def predict(model: Model, **options: Unpack[ChoiceOptions]) -> Prediction:
    """Predict the result of :func:`compile` with the same options, before any machine code is generated.

    The prediction has the latency of the model and of each dispatch with 95 % intervals, and its memory.

    Latencies are measured ones where the database has them, else those that the analytic cost model predicts for this
    machine; the memory between dispatches is exact.
    """
    return predicted(CompileRequest(model, **options))


def predicted(request: CompileRequest, graph: Graph | None = None) -> Prediction:
    """:func:`predict` of a request; ``graph`` is the model where it was imported already."""
    from autotune.compiler import predict_in_detail

    if request.lock is not None:
        return predict_in_detail(request)
    return with_database(request, lambda own: predict_in_detail(own, graph))[0]


@collector_paused()
@keywords_of(ChoiceOptions)
def query(
    what: Model,
    *,
    top: int = 1,
    with_front: bool = False,
    with_near: bool = False,
    only: str | None = None,
    check_code: bool = False,
    **options: Unpack[ChoiceOptions],
) -> list[Answer]:
    """Return the best schedule of the database for each workload of a model, or for one workload by its key.

    The ``options`` are those of :func:`compile`, which uses the same results.
    Where another algorithm than the direct one is used, the workloads that it makes of one follow it, each once.
    A workload is given by its key or the beginning of it (at least 6 hex digits). Raises UsageError
    for an unknown one, and for a database that does not exist. Results have the ``top`` fastest runs, if more
    than one, their Pareto front with ``with_front``, and, for workloads that were not measured, the three nearest that
    were with ``with_near``. ``only`` selects the dispatches of a model whose name, or whose nodes' names, contain it.
    With ``check_code`` the code of each schedule is generated (about 16 ms each), so that what was measured with other
    code is stale and never exact; without it the results say that this was not checked.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.compiler.plan import plan_of
    from autotune.compiler.sites.decision import decided_of_model
    from autotune.compiler.stale import CodeCheck
    from autotune.database.front import front
    from autotune.graph.region import Workload
    from cost_models import analytic
    from search_spaces.spaces import space_for

    request = CompileRequest(what, **options).checked()
    with opened(request.database, read_only=True) as store:
        graph = None
        if not (isinstance(what, str) and is_key(what)):
            graph = on_one_device(imported(request.model, request.shapes))
            request, _, _ = decided_of_model(request, graph, store)
        chosen, preference = request.one_target(), request.preference
        asked, parts = _workloads(request, graph, store)
        if only is not None and preference.goal.is_latency:  # what is small enough depends on the whole model
            asked = [one for one in asked if _named(only, one[1], one[2])] or asked
        workloads = [workload for workload, _, _ in asked if isinstance(workload, Workload)]

        def planned_without(stale: frozenset[int]) -> Plan:
            return plan_of(workloads, chosen, store, preference, parts=parts, stale=stale)

        plan = CodeCheck(chosen).plan(planned_without) if check_code else planned_without(frozenset())

        def answer(
            workload: AnyWorkload,
            names: tuple[str, ...],
            nodes: tuple[str, ...],
            ranking: Ranking | None = None,
            space: str = "",
        ) -> Answer:
            divided = ranking is not None and ranking.chosen.steps is not None
            planned = None if divided else plan.schedules.get(workload.key)
            mine = floor_ns = None
            if isinstance(workload, Workload):
                mine = (planned and planned.space) or space_for(workload, chosen)
                space, floor_ns = mine.key, 1e9 * analytic.floor(workload, chosen)
            key = Key(workload.key, chosen.key, space)
            goal = plan.goals.get(workload.key, preference.goal)
            found = None if planned is None else planned.found
            found = found or store.lookup(key.workload, key.target, key.space, goal)
            fastest = tuple(store.top(key, top)) if top > 1 else ()
            if planned is not None:
                evidence, _ = plan.evidence(workload.key)
            else:
                evidence = found.evidence
            best = front(store.points(key)) if with_front else ()
            near = []
            if with_near and isinstance(found, Miss):
                near = store.near(WorkloadRow.of(workload), chosen, key.space, any_target=True)[:NEAREST]
            return Answer(
                names,
                workload,
                found,
                fastest,
                evidence,
                ranking,
                planned,
                nodes,
                tuple(best),
                tuple(near),
                mine,
                floor_ns,
                check_code and planned is not None,
            )

        answers = []
        for entry in entries(asked, plan):
            workload, names, nodes = entry.workload, tuple(entry.names), tuple(entry.nodes)
            if isinstance(workload, Workload):
                answers.append(answer(workload, names, nodes, entry.ranking))
            else:
                spaces = _spaces(store, workload, chosen)
                answers += [answer(workload, names, nodes, space=space) for space in spaces]
        return [found for found in answers if only is None or _named(only, found.names, found.nodes)]


def _named(text: str, names: Sequence[str], nodes: Sequence[str]) -> bool:
    """Return whether a dispatch, a step of one, or a node has a text in its name."""
    return any(text in name for name in (*names, *nodes))


def _spaces(store: Database, workload: AnyWorkload, target: Target) -> list[str]:
    """Return the spaces in which a program of a user's own was tuned here: one a schedule function; one
    unknown if none."""
    return store.tuned_spaces(workload.key, target.key) or [""]


def decided_request(request: CompileRequest) -> tuple[CompileRequest, tuple[Decision, ...]]:
    """Return the request of a model with what its database has decided of the whole of it, and these decisions.

    Devices that the model names count as one.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.compiler.sites.decision import decided_of_model

    def look_up(own: CompileRequest) -> tuple[CompileRequest, tuple[Decision, ...]]:
        graph = on_one_device(imported(own.model, own.shapes))
        decided, _, decisions = decided_of_model(own, graph, open_database(own))
        return decided, decisions

    return with_database(request, look_up)[0]


def _workloads(
    request: CompileRequest, graph: Graph | None, store: Database
) -> tuple[list[Asked], Partition | None]:
    """Return each workload with its dispatches and the model's nodes that they come from; the model in
    parts, if it is one."""
    from autotune.compiler import divide
    from autotune.graph.program import parse_workload

    what = request.model
    if graph is None:
        if request.shapes:
            raise UsageError(
                f"shapes were given for the workload {what}, which has fixed ones; they are for models"
            )
        rows = store.find_workload(str(what))
        if not rows:
            raise UsageError(f"no workload {what} in {store.where}; `autotune db stats` lists them")
        return [(parse_workload(row.text), (), ()) for row in rows], None
    parts = divide(graph, layout=request.layout, target=request.one_target())
    names: dict[str, list[str]] = {}
    nodes: dict[str, dict[str, None]] = {}
    for dispatch in parts.dispatches:
        names.setdefault(dispatch.workload.key, []).append(dispatch.name)
        nodes.setdefault(dispatch.workload.key, {}).update(dict.fromkeys(dispatch.origins))
    workloads = {d.workload.key: d.workload for d in parts.dispatches}
    return [(workloads[key], tuple(names[key]), tuple(nodes[key])) for key in workloads], parts


def is_key(text: str) -> bool:
    """Return whether a text can be the key of a workload, or the beginning of one."""
    return 6 <= len(text) <= 64 and set(text) <= set("0123456789abcdef")


def retrain(
    *,
    database: DatabaseLike | Sequence[DatabaseLike] | None = None,
    dry_run: bool = False,
    remembered: bool = False,
    recordings: Mapping[str, DataFrame] | None = None,
    export: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> RetrainReport:
    """Train the cost model on all runs of one or several databases, and promote it only if it is better.

    Better means statistically significant, on workloads that neither has seen (:mod:`cost_models.gate`). With
    ``remembered`` the databases that the model in use learnt from are read, too; ``recordings`` are more runs
    (:func:`cost_models.dataset.build`) by where they are from. A model that is to be ``export``ed must be better than
    the analytic one, goes to that folder and is not put in use. ``say`` hears of the progress. Raises UsageError for a
    database that does not exist and for a folder that does, and CostModelError for a damaged registry.
    """
    from autotune.database.training import training_table
    from cost_models.feature_cache import FeatureCache
    from cost_models.registry import Registry
    from cost_models.retrain import retrain as train

    if export is not None and export.exists():
        raise UsageError(f"{export} is there already; name a folder that is not")

    wanted: list[DatabaseLike | None] = []
    if isinstance(database, Sequence) and not isinstance(database, str):
        wanted += database
    else:
        wanted.append(database)
    tables = dict(recordings or {})
    for one in [*wanted, *(_remembered() if remembered else ())]:
        with opened(one, read_only=True) as store:
            name = store.where if "://" in store.where else str(Path(store.where).resolve())
            if name not in tables:
                say(f"reading {name}")
                tables[name] = training_table(store, say=say)
    cache = FeatureCache.of_user()
    if export is None:
        return train(tables, cost_model_registry(), dry_run, cache=cache, say=say)
    with scratch_folder("autotune-cost-model-") as folder:
        report = train(tables, registry := Registry(folder), dry_run, cache=cache, say=say)
        if report.version is not None:
            registry.export(report.version, export)
    return report


def _remembered() -> list[str]:
    """Return the databases that the model in use learnt from; recordings are given anew."""
    registry = cost_model_registry()
    name = registry.current()
    sources = registry.manifest(name).sources if name else ()
    return [source.name for source in sources if not Path(source.name).is_dir()]


__all__ = [
    "Answer",
    "builders_for",
    "check_cores",
    "compile",
    "compile_for_sizes",
    "cost_model_registry",
    "decided_request",
    "forecast",
    "is_key",
    "model_folder",
    "predict",
    "predicted",
    "query",
    "retrain",
    "runnable",
    "tune",
]
