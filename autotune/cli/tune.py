"""``autotune tune``."""

from __future__ import annotations

import signal
import sys

import click

from autotune.cli.options import (
    EPILOG_DATABASE,
    database_option,
    json_option,
    machine_options,
    model_argument,
    seed_option,
    tolerance_option,
)

DEFAULT_BUDGET = "10m"


@click.command(epilog=f"Example: autotune tune zoo:squeezenet --trials 200 --db tuning.db. {EPILOG_DATABASE}")
@model_argument
@click.option("--budget", metavar="TIME", help=f"Time, such as 90s, 10m or 8h. [default: {DEFAULT_BUDGET}]")
@click.option("--trials", type=int, metavar="N", help="Candidates to measure, instead of or beside a time.")
@database_option
@machine_options
@tolerance_option
@seed_option
@click.option(
    "--sampler",
    default="guided",
    show_default=True,
    metavar="NAME",
    help="guided by the cost model, or one of Optuna's: tpe, random, cmaes, gp, nsga2, qmc, grid.",
)
@json_option
def command(
    model: str,
    budget: str | None,
    trials: int | None,
    database: str | None,
    target: str,
    threads: int | None,
    tolerance: float,
    seed: int,
    sampler: str,
    as_json: bool,
) -> int:
    """Search faster schedules for all workloads of MODEL.

    Every measured run is stored. Ctrl-C ends the search and keeps the best so far; the same command
    continues a job that was stopped or killed. With --json each event is one JSON line.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stopped job reports, as with Ctrl-C
    from autotune.cli.main import INTERRUPTED
    from autotune.tuning.api import tune
    from autotune.tuning.budget import Budget
    from autotune.tuning.progress import display

    if budget is None and trials is None:
        budget = DEFAULT_BUDGET
    seconds = Budget.parse(budget).limit_s if budget is not None else None
    report = tune(
        model,
        budget=Budget(trials=trials, seconds=seconds),
        database=database,
        target=target,
        threads=threads,
        seed=seed,
        sampler=sampler,
        tolerance=tolerance,
        progress=display(sys.stdout, as_json=as_json),
    )
    return INTERRUPTED if report.stopped else 0


__all__ = ["DEFAULT_BUDGET", "command"]
