"""``autotune models evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.bench import options
from autotune.cli.experiment import Output, say, with_output
from autotune.cli.options import runs_options
from autotune.errors import UsageError

ABOUT = (
    "Rankings of measured candidates, each by a model that has not seen the workload (in five folds) or the model. "
    "Pairwise: share of the pairs whose latencies differ by more than twice their noise that are in the right order. "
    "Top-k: best latency over the best of the first k that a job would try, which are not all alike. "
    "Regret: latency of the first over the best, less 1. Means over workloads, each counting alike, with 95 % "
    "bootstrap intervals over workloads. random: chance; analytic: the analytic model alone; knobs: trained on the "
    "values of the knobs only; the others are rankers by what they are trained for."
)


@click.command(
    "evaluate",
    params=[options.number("--rounds", 60, "Trees of each.")],
    epilog="Example: autotune models evaluate --recordings results/replay --html page.html",
)
@runs_options
@click.option(
    "--by",
    type=click.Choice(["alone", "inside"]),
    default="inside",
    show_default=True,
    help="Measurements of recordings: isolated ones, or in-model ones where there are any.",
)
@click.option(
    "--rankings",
    default="random,analytic,knobs,lambdarank",
    show_default=True,
    metavar="NAME,NAME",
    callback=lambda _context, _option, text: list(dict.fromkeys(part.strip() for part in text.split(","))),
    help="What is judged, also pairs, regression, fastest; the last one by family, model and target too.",
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.html", help="A page of plots."
)
@with_output
def command(
    output: Output,
    databases: Sequence[str],
    recordings: Sequence[Path],
    by: str,
    rankings: Sequence[str],
    rounds: int,
    html: Path | None,
) -> None:
    """Judge cost models on workloads and models that they have not seen; nothing is stored."""
    from autotune.bench import evaluation, evaluation_page
    from autotune.database.opening import default_database
    from cost_models.contenders import NAMES

    options.check_known(rankings, NAMES, "ranking")
    wanted = list(databases) if databases or recordings else [str(default_database())]
    data = evaluation.read(wanted, recordings, by == "inside")
    if len(set(data.workloads)) < 2:
        raise UsageError("nothing to judge: fewer than two workloads have runs; tune some more")
    found = evaluation.evaluate(data, rankings, say=say, rounds=rounds)
    tables = [one.table() for one in found] + found[0].tables_of(rankings[-1])
    numbers = [one.to_json() for one in found]
    document = output.document("Cost models on what they have not seen", ABOUT, tables, numbers)
    if html is not None:
        evaluation_page.write(html, document, found, rankings[-1], rounds)
    output.finish(document)


__all__ = ["command"]
