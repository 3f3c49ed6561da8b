"""``autotune tune``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli.echo import echo
from autotune.cli.long_job import long_job
from autotune.cli.options import (
    EPILOG_DATABASE,
    database_option,
    finite_option,
    json_option,
    machine_options,
    model_argument,
    oversubscription_option,
    parse_devices,
    print_proofs,
    proofs_json,
    ranges_option,
    seed_option,
    tolerance_option,
    traffic_options,
    verify_option,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.compiler.driver import ModelOptions
    from autotune.tuning.budget import Budget

DEFAULT_BUDGET = "10m"


@click.command(epilog=f"Example: autotune tune zoo:squeezenet --trials 200 --db tuning.db. {EPILOG_DATABASE}")
@model_argument
@click.option("--budget", metavar="TIME", help=f"Time, such as 90s, 10m or 8h. [default: {DEFAULT_BUDGET}]")
@click.option("--trials", type=int, metavar="N", help="Candidates to measure, instead of or beside a time.")
@database_option
@machine_options
@tolerance_option
@finite_option
@ranges_option
@traffic_options
@oversubscription_option
@seed_option
@click.option(
    "--sampler",
    default="guided",
    show_default=True,
    metavar="NAME",
    help="guided by the cost model, or one of Optuna's: tpe, random, cmaes, gp, nsga2, qmc, grid.",
)
@click.option(
    "--objective",
    default="latency",
    show_default=True,
    metavar="NAME",
    help="What is searched: latency; memory or size (of the artifact) beside it; or front, all three.",
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
    help="Search schedules for all of these devices, and where the parts of the model run, in turns.",
)
@verify_option
@json_option
@long_job
def command(
    model: str,
    budget: str | None,
    trials: int | None,
    database: str | None,
    allow_oversubscription: bool,
    seed: int,
    sampler: str,
    objective: str,
    no_transfer: bool,
    devices: tuple[str, ...],
    verify: bool,
    traffic: str | None,
    most_buckets: int,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> int:
    """Search faster schedules for all workloads of MODEL.

    Every measured run is stored. Ctrl-C, SIGTERM and SIGHUP end the search and keep the best so far; the same
    command continues a job that was stopped or killed. With --json each event is one JSON line.
    """
    echo(f"tuning {model}: reading the model", err=True)  # before what follows is imported
    from autotune.cli.main import INTERRUPTED
    from autotune.lower.verify_isl import load_isl
    from autotune.tuning.api import tune
    from autotune.tuning.budget import Budget, process_age
    from autotune.tuning.progress import display

    if verify:
        load_isl()  # missing is noticed before the search, not after it
    if budget is None and trials is None:
        budget = DEFAULT_BUDGET
    from autotune.tuning.sized import has_ranges

    shapes: Mapping[str, Any] | None = options["shapes"]
    if has_ranges(shapes):
        if devices or verify:
            raise UsageError("ranges of sizes were given: leave out --devices and --verify")
        return _tune_for_sizes(
            model,
            shapes or {},
            as_json=as_json,
            traffic=traffic,
            most_buckets=most_buckets,
            budget=Budget(budget, trials),
            database=database,
            seed=seed,
            sampler=sampler,
            objective=objective,
            transfer=not no_transfer,
            allow_oversubscription=allow_oversubscription,
            begun=time.monotonic() - process_age(),
            target=options["target"],
            threads=options["threads"],
            tolerance=options["tolerance"],
            finite=options.get("finite", False),
        )
    if traffic:
        raise UsageError("--traffic was given without a range of sizes: --shape seq=1..512")
    if devices:
        others = {
            "--target": options["target"] != "host",
            "--threads": options["threads"] is not None,
            "--objective": objective != "latency",
            "--no-transfer": no_transfer,
            "--finite": options.get("finite", False),
            "--verify": verify,
        }
        refuse_beside_devices(others)
        return _tune_on_devices(
            model, devices, Budget(budget, trials), database, seed, sampler, as_json, options
        )
    report = tune(
        model,
        budget=Budget(budget, trials),
        database=database,
        seed=seed,
        sampler=sampler,
        objective=objective,
        transfer=not no_transfer,
        allow_oversubscription=allow_oversubscription,
        progress=display(sys.stdout, as_json=as_json),
        begun=time.monotonic() - process_age(),
        **options,
    )
    if verify:
        _verify_winners(model, database, as_json, options)
    return INTERRUPTED if report.stopped else 0


def _tune_for_sizes(model: str, ranges: Mapping[str, Any], *, as_json: bool, **options: Any) -> int:
    from autotune.cli.main import INTERRUPTED
    from autotune.tuning.progress import display
    from autotune.tuning.tune_sizes import tune_for_sizes

    def say(text: str) -> None:
        echo(json.dumps({"event": "bucket", "text": text}) if as_json else text)

    done = tune_for_sizes(
        model, ranges, progress=lambda: display(sys.stdout, as_json=as_json), say=say, **options
    )
    return INTERRUPTED if any(each.report is not None and each.report.stopped for each in done) else 0


def refuse_beside_devices(given: Mapping[str, bool]) -> None:
    """Raise UsageError for options that are given beside --devices although they mean one device."""
    names = [name for name, there in given.items() if there]
    if names:
        raise UsageError(
            f"{', '.join(names)} given beside --devices\n  the devices say for what is tuned: leave out one of them"
        )


def _tune_on_devices(
    model: str,
    devices: tuple[str, ...],
    budget: Budget,
    database: str | None,
    seed: int,
    sampler: str,
    as_json: bool,
    options: ModelOptions,
) -> int:
    from autotune.cli.main import INTERRUPTED
    from autotune.cli.place import report_lines
    from autotune.tuning.progress import display
    from autotune.tuning.tune_devices import tune_on_devices

    def say(text: str) -> None:
        if not as_json:
            echo(text)

    report = tune_on_devices(
        model,
        devices,
        budget=budget,
        database=database,
        seed=seed,
        sampler=sampler,
        tolerance=options["tolerance"],
        shapes=options["shapes"],
        progress=lambda: display(sys.stdout, as_json=as_json),
        say=say,
    )
    for placed in report.placed:
        if as_json:
            echo(json.dumps({"event": "placement", **placed.to_json()}))
        else:
            echo("\n".join(report_lines(placed)))
    return INTERRUPTED if report.stopped else 0


def _verify_winners(model: str, database: str | None, as_json: bool, options: ModelOptions) -> None:
    """Prove the schedules that a compilation takes now, and say so."""
    from autotune.tuning.api import compile_with_database

    done, _ = compile_with_database(model, database=database, verify=True, **options)
    if as_json:
        echo(json.dumps({"event": "proofs", "proofs": proofs_json(done.proofs)}))
    else:
        print_proofs(done)


__all__ = ["DEFAULT_BUDGET", "command"]
