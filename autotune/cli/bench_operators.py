"""``autotune bench operators``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option
from autotune.errors import UsageError

ABOUT = (
    "Single operators, float32. Weights are constants for everybody; our tensors lie channels last, the "
    "peers' as they want them. PyTorch runs op by op, without folding a batch norm into a convolution."
)


@click.command(
    epilog="Example: autotune bench operators C2D GMM --threads 2 --db ops.db --trials 200 "
    "--peers onnxruntime,torch -o results/operators.md"
)
@click.argument("names", nargs=-1)
@shared.threads_option("2")
@shared.tuned_option
@shared.trials_option("--trials", "operator")
@shared.minutes_option
@shared.peer_options("onnxruntime,openvino")
@shared.pace_options(10)
@click.option("--smallest", is_flag=True, help="Only the smallest operator of each family.")
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
    smallest: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """The Ansor operator suite beside peers; NAMES are families such as C2D (all of them by default).

    Weights are constants for everybody. Our tensors lie channels last, the peers' as they want them.
    """
    from autotune.bench import report
    from autotune.bench.compare import Plan, Result
    from autotune.bench.session import Page, run
    from autotune.bench.suites import operators
    from autotune.bench.tables import Table

    unknown = sorted(set(names) - set(operators.FAMILIES))
    if unknown:
        raise UsageError(f"unknown family {unknown[0]!r}; there are: {', '.join(operators.FAMILIES)}")
    chosen = operators.cases(names or tuple(operators.FAMILIES))
    systems = shared.found_peers(peers, peer_pythons)
    labels = {system.name: system.label for system in systems}

    def tables(threads_text: str, results: Sequence[Result]) -> list[Table]:
        rate = [("GFLOP/s", report.gigaflops)]
        title = f"Operators, {threads_text}"
        each = report.side_by_side(title, results, labels, rate, first="operator")
        return [each, report.families(f"Families, {threads_text}", results, labels)]

    legend = [f"{family}: {operators.FAMILIES[family]}" for family in names or operators.FAMILIES]
    page = Page("Operators", shared.command_line(context), ABOUT, tuple(legend))
    tune_s = 60 * minutes if minutes else None
    plan = Plan(threads, systems, shared.pace_of(rounds, turn), database, trials, tune_s=tune_s)
    cases = operators.smallest(chosen) if smallest else list(chosen)
    document = run(page, cases, plan, tables, shared.say, shared.saver(output))
    shared.finish(document, output, as_json)


__all__ = ["command"]
