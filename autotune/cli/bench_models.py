"""``autotune bench models``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option

ABOUT = (
    "Whole models beside other runtimes, float32, batch as the model has it. `default`: nothing tuned; `tuned`: "
    "with the schedules of the database. All contenders get the same model and the same random input."
)


@click.command(
    epilog="Example: autotune bench models squeezenet resnet50 --threads 1,2 --db tuning.db -o results/models.md"
)
@click.argument("names", nargs=-1)
@shared.threads_option("1,2")
@shared.tuned_option
@shared.trials_option("--tune-trials", "distinct workload of a model")
@shared.minutes_option
@shared.peer_options("onnxruntime,openvino")
@shared.pace_options(10)
@shared.output_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    names: Sequence[str],
    threads: Sequence[int],
    database: str | None,
    trials: int | None,
    minutes: float | None,
    peers: Sequence[str],
    peer_pythons: Sequence[str],
    rounds: int,
    turn: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Whole models beside peers; NAMES are zoo models or ONNX files (the whole zoo by default)."""
    from autotune.bench import report
    from autotune.bench.compare import Plan, Result
    from autotune.bench.session import Page, run
    from autotune.bench.suites import models
    from autotune.bench.tables import Table

    systems = shared.found_peers(peers, peer_pythons)
    labels = {system.name: system.label for system in systems}

    def tables(threads_text: str, results: Sequence[Result]) -> list[Table]:
        facts = [("compile", report.compile_time)]
        if database is not None:
            facts.insert(0, ("tuned dispatches", report.coverage))
        each = report.side_by_side(
            f"Models, {threads_text}", results, labels, facts, first="model", with_family=False
        )
        gains = report.family_gains(f"What tuning gains, {threads_text}", results)
        shares = report.kernel_families(f"Where our time goes, {threads_text}", results)
        return [each, shares, *([gains] if gains is not None else [])]

    page = Page("Models", shared.command_line(context), ABOUT)
    pace, tune_s = shared.pace_of(rounds, turn), 60 * minutes if minutes else None
    plan = Plan(threads, systems, pace, database, trials, trials_per_workload=True, tune_s=tune_s)
    cases = models.models(names or models.DEFAULT)
    document = run(page, cases, plan, tables, shared.say, shared.saver(output))
    shared.finish(document, output, as_json)


__all__ = ["command"]
