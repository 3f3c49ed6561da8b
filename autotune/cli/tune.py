"""``autotune tune``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli import completion
from autotune.cli.common import EPILOG_DATABASE, json_option
from autotune.cli.echo import echo
from autotune.cli.long_job import long_job
from autotune.cli.options import (
    FLAGS,
    accuracy_options,
    models_argument,
    parse_devices,
    proofs_json,
    proofs_lines,
    request_flags,
    seed_option,
)
from autotune.cli.verbosity import is_quiet, is_verbose, verbosity
from autotune.compiler.request import CompileRequest, MachineOptions
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.quantization.front import PrecisionPoint
    from autotune.tuning.jobs.budget import Budget
    from autotune.tuning.jobs.tune_devices import DevicesReport
    from autotune.tuning.report.result import Report

DEFAULT_BUDGET = "10m"


@click.command(epilog=f"Example: autotune tune zoo:squeezenet --trials 200 --db tuning.db. {EPILOG_DATABASE}")
@models_argument
@click.option("--budget", metavar="TIME", help=f"Time, such as 90s, 10m or 8h. [default: {DEFAULT_BUDGET}]")
@click.option("--trials", type=int, metavar="N", help="Candidates to measure, instead of or beside a time.")
@click.option(
    "--stop-when",
    metavar="PART",
    help="End the search when less than this part of the latency, such as 2%, is expected to go in the rest of it.",
)
@request_flags(MachineOptions)
@seed_option
@click.option(
    "--sampler",
    default="guided",
    show_default=True,
    metavar="NAME",
    help="guided by the cost model, or one of Optuna's: tpe, random, cmaes, gp, nsga2, qmc, grid.",
)
@click.option(
    "--cost-model",
    default="current",
    show_default=True,
    metavar="NAME",
    help="What ranks candidates before they are measured: current, analytic, builtin, a version of `autotune models`, "
    "or one of an installed package.",
)
@click.option(
    "--study-storage",
    metavar="URL",
    help="Where the studies are kept: a database of Optuna's or a journal file. [default: in DATABASE.studies]",
)
@click.option(
    "--objective",
    default="latency",
    show_default=True,
    metavar="NAME",
    help="What is searched: latency; memory or size (of the artifact) beside it; front, all three; or latency,error: "
    "precisions of one model's products, each plan measured for both (--data, --accuracy for the largest error).",
)
@click.option(
    "--no-transfer",
    is_flag=True,
    help="Do not begin with what was found for near workloads: of other shapes, with other threads.",
)
@click.option(
    "--devices",
    metavar="A,B,...",
    callback=lambda context, parameter, text: parse_devices(text),
    shell_complete=completion.devices,
    help="Search schedules for all of these devices and a placement of the model's parts, alternately.",
)
@click.option(
    "--sites",
    multiple=True,
    metavar="NAME",
    help="Compare again what is decided of the whole model: threads, layout, order. [default: what never was, where "
    "the budget is five minutes or more]",
)
@click.option(
    "--fleet",
    metavar="ADDRESS",
    help="Measure on the nodes of a Ray cluster instead of this machine: auto, HOST:PORT or ray://HOST:PORT.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Begin a new job where the same one has come to its end, from what is known. [default: show its report]",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what a job is expected to gain, by what is known and by the cost model; measure and store nothing.",
)
@accuracy_options(multiple=True)
@FLAGS["verify"]
@verbosity("Print only the result.", "Print a line for each step, and why it is the next.")
@json_option
@long_job
def command(
    models: tuple[str, ...],
    budget: str | None,
    trials: int | None,
    stop_when: str | None,
    seed: int,
    sampler: str,
    cost_model: str,
    study_storage: str | None,
    objective: str,
    no_transfer: bool,
    devices: tuple[str, ...],
    sites: tuple[str, ...],
    fleet: str | None,
    again: bool,
    dry_run: bool,
    accuracy: tuple[str, ...],
    data: Path | None,
    verify: bool,
    as_json: bool,
    **options: Unpack[MachineOptions],
) -> int:
    """Search faster schedules for all workloads of MODEL, or of several models, or of the ONNX files of a folder.

    Several models are one job: what they share is searched once, and a part of a model's time counts the same in each.
    Every measured run is stored. Ctrl-C, SIGTERM and SIGHUP end the search and keep the best so far; the same
    command continues a job that was stopped or killed, and shows the report of one that has ended. With --json each
    event is one JSON line.

    With --accuracy, once or several times, the model is tuned in float32 and in the precisions that each budget allows,
    as one job; each is then measured alongside float32, and stored for `autotune compile --accuracy`.
    """
    what = f"{models[0]}: reading the model" if len(models) == 1 else f"{len(models)} models: reading them"
    if not is_quiet():
        echo(f"tuning {what}", err=True)  # before what follows is imported
    from autotune.cli.main import INTERRUPTED
    from autotune.lower.verify_isl import load_isl
    from autotune.tuning.api import tune
    from autotune.tuning.jobs.budget import Budget, part_of, process_age
    from autotune.tuning.jobs.models import sources_of
    from autotune.tuning.report.progress import display

    if verify:
        load_isl()  # missing is noticed before the search, not after it
    if budget is None and trials is None:
        budget = DEFAULT_BUDGET
    sources = sources_of(models)
    requests = [CompileRequest(each, devices=devices, verify=verify, **options).checked() for each in sources]
    enough = None if stop_when is None else part_of(stop_when)
    limit, begun = Budget(budget, trials, stop_when=enough), time.monotonic() - process_age()
    search: dict[str, Any] = {
        "seed": seed,
        "sampler": sampler,
        "study_storage": study_storage,
        "again": again,
    }
    if devices:
        refuse_beside_devices(
            {"--objective": objective != "latency", "--no-transfer": no_transfer, "--sites": bool(sites)}
            | {"--cost-model": cost_model != "current"}
        )
    else:
        search |= {"objective": objective, "transfer": not no_transfer, "sites": sites or None}
        search["cost_model"] = cost_model
    if fleet is not None:
        if devices or accuracy or data is not None or requests[0].has_ranges or _is_front(objective):
            raise UsageError("--fleet is for schedules of models of fixed sizes on one device")
        search["fleet"] = fleet
    if len(sources) > 1 and (devices or requests[0].has_ranges):
        raise UsageError("--devices, and ranges of --shape, are for one model: tune the models one by one")
    if dry_run:
        if devices or requests[0].has_ranges:
            raise UsageError("--dry-run is for one device, and for fixed sizes")
        _foresee(sources, limit, as_json, options)
        return 0
    if fleet is not None and len(requests[0].targets) > 1:
        from autotune.cli.tune_targets import TargetsCall, tune_for_targets

        call = TargetsCall(sources, limit, search, options, as_json, is_quiet(), is_verbose())
        stopped = tune_for_targets(call, [*map(str, requests[0].targets)])
    elif _is_front(objective):
        if len(accuracy) > 1 or len(sources) > 1 or devices or requests[0].has_ranges:
            raise UsageError(
                f"--objective {objective} is for one model of fixed sizes on one device, with at most one --accuracy"
            )
        search["objective"] = "latency"
        stopped = _tune_front(requests[0], accuracy, data, limit, as_json, search | {"begun": begun}, options)
    elif accuracy or data is not None:
        if not accuracy or len(sources) > 1 or devices or requests[0].has_ranges:
            raise UsageError(
                "--accuracy is for one model of fixed sizes on one device, and --data for --accuracy"
            )
        stopped = _tune_within(
            requests[0], accuracy, data, limit, as_json, search | {"begun": begun}, options
        )
    elif requests[0].has_ranges:
        search["devices"] = devices
        stopped = _tune_for_sizes(sources[0], limit, as_json, search | {"begun": begun}, options)
    elif devices:
        stopped = _tune_on_devices(sources[0], devices, limit, as_json, search, options)
    else:
        shown = display(sys.stdout, as_json=as_json, quiet=is_quiet(), verbose=is_verbose())
        stopped = tune(sources, budget=limit, progress=shown, begun=begun, **search, **options).stopped
    if verify:
        for request in requests:
            _verify_winners(request, as_json)
    return INTERRUPTED if stopped else 0


def _foresee(sources: Sequence[Model], budget: Budget, as_json: bool, options: MachineOptions) -> None:
    from autotune.tuning.api import forecast

    found = forecast(sources, budget=budget, **options)
    if as_json:
        echo(json.dumps({"event": "forecast", "forecast": None if found is None else found.to_json()}))
        return
    echo("nothing is known of the latencies of this model" if found is None else str(found))


def _is_front(objective: str) -> bool:
    return {*objective.split(",")} == {"latency", "error"}


def _tune_front(
    request: CompileRequest,
    accuracy: Sequence[str],
    data: Path | None,
    budget: Budget,
    as_json: bool,
    search: dict[str, Any],
    options: MachineOptions,
) -> bool:
    from autotune.quantization.compiling import RANDOM
    from autotune.quantization.front import HEADING
    from autotune.quantization.front_job import LARGEST, FrontOptions, tune_front
    from autotune.tuning.api import tune
    from autotune.tuning.jobs.events import Several
    from autotune.tuning.jobs.heartbeat import PhasesHeartbeat
    from autotune.tuning.measure.error_budget import Accuracy
    from autotune.tuning.report.progress import display

    again, storage = search.pop("again"), search.pop("study_storage")
    begun = search.pop("begun")

    def tuned(models: Sequence[Model], tolerance: float, part: Budget, heart: PhasesHeartbeat) -> Report:
        shown = display(sys.stdout, as_json=as_json, quiet=is_quiet(), verbose=is_verbose())
        own: MachineOptions = {**options, "tolerance": tolerance}
        return tune(
            models, budget=part, progress=Several([heart, shown]), study_storage=storage, **search, **own
        )

    def say(text: str) -> None:
        if not (as_json or is_quiet()):
            echo(text, err=True)

    if data is None:
        echo(f"warning: {RANDOM}", err=True)
    report = tune_front(
        request,
        Accuracy.of(accuracy[0]) if accuracy else LARGEST,
        data,
        budget,
        tuned,
        FrontOptions(int(search["seed"]), storage, begun, say),
        again=again,
    )
    _show_points(report.points, HEADING, report.stopped, as_json)
    return report.stopped


def _show_points(points: Sequence[PrecisionPoint], heading: str, stopped: bool, as_json: bool) -> None:
    if not as_json and (points or not stopped):
        echo(heading if points else "no choice of precisions was measured to be faster than float32")
    for point in points:
        echo(json.dumps({"event": "point", "text": str(point)}) if as_json else f"  {point}", whole=as_json)


def _tune_within(
    request: CompileRequest,
    accuracies: Sequence[str],
    data: Path | None,
    budget: Budget,
    as_json: bool,
    search: Mapping[str, Any],
    options: MachineOptions,
) -> bool:
    from autotune.quantization.compiling import RANDOM
    from autotune.quantization.tuning import tune_within
    from autotune.tuning.api import tune
    from autotune.tuning.measure.error_budget import Accuracy
    from autotune.tuning.report.progress import display

    def tuned(models: Sequence[Model], tolerance: float) -> Report:
        shown = display(sys.stdout, as_json=as_json, quiet=is_quiet(), verbose=is_verbose())
        own: MachineOptions = {**options, "tolerance": tolerance}
        return tune(models, budget=budget, progress=shown, **search, **own)

    def say(text: str) -> None:
        if not (as_json or is_quiet()):
            echo(text, err=True)

    if data is None:
        echo(f"warning: {RANDOM}", err=True)
    seed, budgets = int(search["seed"]), [Accuracy.of(each) for each in accuracies]
    report, points = tune_within(request, budgets, data, tuned, seed, say)
    _show_points(points, "within its budget alongside float32:", report.stopped, as_json)
    return report.stopped


def _tune_for_sizes(
    model: Model, budget: Budget, as_json: bool, search: Mapping[str, Any], options: MachineOptions
) -> bool:
    from autotune.tuning.jobs.tune_devices import DevicesReport
    from autotune.tuning.jobs.tune_sizes import tune_for_sizes
    from autotune.tuning.report.progress import display

    def say(text: str) -> None:
        echo(json.dumps({"event": "bucket", "text": text}) if as_json else text, whole=as_json)

    ranges = options.pop("shapes") or {}
    done = tune_for_sizes(
        model,
        ranges,
        budget=budget,
        progress=lambda: display(sys.stdout, as_json=as_json, quiet=is_quiet(), verbose=is_verbose()),
        say=say,
        **search,
        **options,
    )
    for each in done:
        if isinstance(each.report, DevicesReport):
            say(f"placements for {each.label}")
            _show_placements(each.report, as_json)
    return any(each.report is not None and each.report.stopped for each in done)


def refuse_beside_devices(given: Mapping[str, bool]) -> None:
    """Raise UsageError for options of a search that are given beside --devices although they mean one device."""
    names = [name for name, there in given.items() if there]
    if names:
        raise UsageError(
            f"{', '.join(names)} given beside --devices\n  the devices say for what is tuned: leave out one of them"
        )


def _tune_on_devices(
    model: Model,
    devices: tuple[str, ...],
    budget: Budget,
    as_json: bool,
    search: Mapping[str, Any],
    options: MachineOptions,
) -> bool:
    from autotune.tuning.jobs.tune_devices import tune_on_devices
    from autotune.tuning.report.progress import display

    def say(text: str) -> None:
        if not as_json:
            echo(text)

    report = tune_on_devices(
        model,
        devices,
        budget=budget,
        progress=lambda: display(sys.stdout, as_json=as_json, quiet=is_quiet(), verbose=is_verbose()),
        say=say,
        **search,
        **options,
    )
    _show_placements(report, as_json)
    return report.stopped


def _show_placements(report: DevicesReport, as_json: bool) -> None:
    from autotune.cli.place import report_lines

    for placed in report.placed:
        if as_json:
            echo(json.dumps({"event": "placement", **placed.to_json()}), whole=True)
        else:
            echo("\n".join(report_lines(placed)))


def _verify_winners(request: CompileRequest, as_json: bool) -> None:
    """Prove the schedules that a compilation takes now, and say so."""
    from autotune.tuning.compiling import compile_request

    for case in compile_request(request).cases:
        if as_json:
            echo(json.dumps({"event": "proofs", "proofs": proofs_json(case.done)}), whole=True)
        else:
            echo("\n".join(proofs_lines(case.done)))


__all__ = ["DEFAULT_BUDGET", "command"]
