"""``autotune bench operators``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option
from autotune.errors import UsageError


@click.command(
    epilog="Example: autotune bench operators C2D GMM --threads 2 --db ops.db --trials 200 "
    "--peers onnxruntime,torch -o results/operators.md"
)
@click.argument("names", nargs=-1)
@shared.threads_option("2")
@shared.tuned_option
@shared.trials_option("--trials", "operator")
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
    from autotune.bench import machine, report
    from autotune.bench.compare import Plan, compare
    from autotune.bench.suites import operators
    from autotune.bench.tables import Document

    unknown = sorted(set(names) - set(operators.FAMILIES))
    if unknown:
        raise UsageError(f"unknown family {unknown[0]!r}; there are: {', '.join(operators.FAMILIES)}")
    chosen = operators.cases(names or tuple(operators.FAMILIES))
    cases = operators.smallest(chosen) if smallest else list(chosen)
    systems = shared.found_peers(peers, peer_pythons)
    before = machine.facts()
    plan = Plan(threads, systems, shared.pace_of(rounds, turn), database, trials)
    results, versions = compare(cases, plan, shared.say)
    labels = {system.name: system.label for system in systems}
    tables = []
    for number in threads:
        mine = [result for result in results if result.threads == number]
        plural = f"{number} thread{'s' if number > 1 else ''}"
        speed = [("GFLOP/s", report.gigaflops)]
        tables.append(report.side_by_side(f"Operators, {plural}", mine, labels, speed, first="operator"))
        tables.append(report.families(f"Families, {plural}", mine, labels))
    legend = [f"{family}: {operators.FAMILIES[family]}" for family in names or operators.FAMILIES]
    document = Document(
        "Operators",
        shared.command_line(context),
        machine.with_peers(before, versions),
        tuple(tables),
        [result.to_json() for result in results],
        notes=tuple(legend),
    )
    shared.finish(document, output, as_json)


__all__ = ["command"]
