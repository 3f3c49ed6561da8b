"""``autotune bench int8``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option
from autotune.errors import UsageError

ABOUT = (
    "Quantised matrix products (MatMulInteger) and convolutions (QLinearConv, channels first) with constant "
    "weights, as an ONNX model that everybody gets. `float32` is our time of the same product in float32."
)


@click.command(
    epilog="Example: autotune bench int8 matmul --threads 1,2 --peers onnxruntime -o results/int8.md"
)
@click.argument("words", nargs=-1)
@shared.threads_option("1")
@shared.tuned_option
@shared.trials_option("--trials", "problem")
@shared.peer_options("onnxruntime")
@shared.pace_options(10)
@shared.output_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    words: Sequence[str],
    threads: Sequence[int],
    database: str | None,
    trials: int | None,
    peers: Sequence[str],
    peer_pythons: Sequence[str],
    rounds: int,
    turn: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Quantised operators beside peers and beside float32; WORDS choose those whose names have one of them."""
    from autotune.bench import report
    from autotune.bench.compare import Plan, Result
    from autotune.bench.session import Page, run
    from autotune.bench.suites import quantised
    from autotune.bench.tables import NOTHING, Table, ratio

    chosen = [c for c in quantised.cases() if not words or any(word in c.name for word in words)]
    if not chosen:
        names = ", ".join(c.name for c in quantised.cases() if c.family == quantised.INTEGER)
        raise UsageError(f"no problem's name has {' or '.join(map(repr, words))}; there are: {names}")
    systems = shared.found_peers(peers, peer_pythons)
    labels = {system.name: system.label for system in systems}

    def tables(threads_text: str, results: Sequence[Result]) -> list[Table]:
        twins = {r.case.name: r for r in results if r.case.family == quantised.FLOAT}

        def float_cell(result: Result) -> str:
            twin = twins.get(result.case.name)
            return NOTHING if twin is None else report.cell(twin, twin.ours_name)

        def to_float(result: Result) -> str:
            twin = twins.get(result.case.name)
            own, other = result.min_ns(result.ours_name), twin.min_ns(twin.ours_name) if twin else None
            return ratio(own / other if own is not None and other is not None else None)

        extras = [("Gop/s", report.gigaflops), ("float32", float_cell), ("÷ float32", to_float)]
        quantities = [r for r in results if r.case.family == quantised.INTEGER]
        title = f"Quantised operators, {threads_text}"
        return [report.side_by_side(title, quantities, labels, extras, first="problem", with_family=False)]

    page = Page("Quantised operators", shared.command_line(context), ABOUT)
    plan = Plan(threads, systems, shared.pace_of(rounds, turn), database, trials)
    document = run(page, chosen, plan, tables, shared.say, shared.saver(output))
    shared.finish(document, output, as_json)


__all__ = ["command"]
