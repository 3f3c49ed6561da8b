"""``autotune replay``: record and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.cli.echo import echo
from autotune.cli.groups import SuggestingGroup
from autotune.cli.options import FLAGS, model_argument, seed_option
from autotune.errors import UsageError
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.replay.compare import SearchComparison
    from autotune.bench.tables import Table
    from cost_models.interval import ConfidenceInterval

ABOUT = (
    "Recorded candidates of each workload, searched by the loop of a tuning job with the readings of the recording. "
    "Only recorded candidates exist: ours draws among them, those of Optuna's samplers are moved to the nearest one "
    "that was not proposed yet, and random ones are drawn. Regret: by how much slower than the best recorded candidate "
    "is what was found after so many trials, of which the default is the first; the geometric mean over the workloads, "
    "and its 95 % interval over seeds (bootstrap). Found ÷ first: what was found over what the first row found with "
    "the same seeds. Trials to 95 %: how many until one has 95 % of the speed of the best recorded candidate, of "
    "workloads whose default has not; the geometric mean, its interval over workloads; a search that never comes so "
    "far counts one more than it has. Saved: those of the first row over those of this one. Warm start: the search "
    "begins with the candidates nearest to what was fastest of other recorded workloads, of the same structure in "
    "other sizes and then of the same kind; saved by it: the trials without it over those with it."
)


@click.group(cls=SuggestingGroup, epilog="Example: autotune replay compare results/replay --seeds 20")
def command() -> None:
    """Search recorded spaces again, by any sampler and cost model, without measuring."""


@command.command(
    epilog="Example: autotune replay record zoo:encoder '00[147]*' --candidates 400 -o results/replay"
)
@model_argument
@click.argument("names", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Gets a Parquet file a workload.",
)
@click.option(
    "--workloads",
    type=click.IntRange(1),
    metavar="N",
    help="Only so many, diverse ones by chance: their families in turn, with a choice and below 30 ms. [default: all]",
)
@shared.number_option("--candidates", 320, "Of each workload.", least=2)
@shared.number_option("--turns", 3, "Of each one.")
@click.option(
    "--inside",
    type=click.FloatRange(0, 1),
    default=1 / 3,
    show_default="a third",
    metavar="SHARE",
    help="The share of them, the fastest in isolation, that is measured in the model too.",
)
@shared.number_option("--processes", 2, "Of the measurements in the model.")
@FLAGS["target"]
@FLAGS["threads"]
@seed_option
def record(
    model: str,
    names: Sequence[str],
    output: Path,
    workloads: int | None,
    candidates: int,
    turns: int,
    inside: float,
    processes: int,
    target: str,
    threads: int | None,
    seed: int,
) -> None:
    """Measure random candidates of MODEL's workloads in turns with their defaults; NAMES are dispatches or patterns.

    Names are those of `autotune explain MODEL`, with the algorithm where they are steps of one: 003_conv_add_relu,
    '003_conv_add_relu/winograd F(4x4)/*'. Without any all workloads are recorded. op:C2D in the place of MODEL are the
    operators of a family of `autotune bench operators`, op:GMM:1,512,512,512 is one of any size.
    """
    from autotune.bench.replay.choice import models
    from autotune.bench.replay.record import Effort
    from autotune.bench.replay.record import record as measure
    from autotune.compiler.request import CompileRequest
    from autotune.tuning.api import runnable

    effort = Effort(candidates, turns, inside, processes, seed, workloads)
    chosen = runnable(CompileRequest(model, target=target, threads=threads).one_target())
    for one in models(model):
        for recording in measure(one, names, chosen, effort, shared.say):
            echo(f"{recording.write(output)}: {counted(len(recording.table), 'candidate')}")


def _listed(_context: click.Context, _option: click.Parameter, text: str) -> list[str]:
    """Return the names of a list with commas."""
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


@command.command(
    epilog="Example: autotune replay compare results/replay --samplers guided,tpe -o results/replay.md"
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--samplers",
    default="guided,tpe,nsga2,random",
    show_default=True,
    metavar="NAME,NAME",
    callback=_listed,
    help="Those of `autotune tune --sampler`.",
)
@click.option(
    "--models",
    default="job,analytic,none",
    show_default=True,
    metavar="NAME,NAME",
    callback=_listed,
    help="Cost models that guide ours: a job's, which learns; the analytic one alone; none; prior, a job's that has "
    "learnt from the recordings of other models; reversed, the opposite of that.",
)
@click.option(
    "--warm-start",
    is_flag=True,
    help="Each of them once more, beginning with what was found for the nearest of the other workloads in FOLDER.",
)
@shared.number_option("--trials", 64, "Of each search.", least=2)
@shared.number_option("--seeds", 20, "Searches of each workload.")
@click.option(
    "--by",
    type=click.Choice(["alone", "inside"]),
    default="alone",
    show_default=True,
    help="Isolated measurements, or as a job scores them: in-model ones where there are any.",
)
@click.option("--processes", type=click.IntRange(1), metavar="N", help="That search. [default: one a core]")
@shared.with_output
def compare(
    output: shared.Output,
    folder: Path,
    samplers: Sequence[str],
    models: Sequence[str],
    warm_start: bool,
    trials: int,
    seeds: int,
    by: str,
    processes: int | None,
) -> None:
    """Search the recordings in FOLDER by samplers and cost models, many times each: how near the best do they end?

    Samplers of your own: autotune.bench.replay.compare in Python.
    """
    from autotune.bench.replay import compare as replay
    from autotune.bench.replay.recording import read_all
    from autotune.hardware import usable_cores
    from autotune.tuning.sampler import GUIDED
    from autotune.tuning.samplers import OPTUNA

    shared.check_known(samplers, (GUIDED, *OPTUNA), "sampler")
    shared.check_known(models, replay.MODELS, "model")
    recordings = read_all(folder)
    found = replay.compare(
        recordings,
        replay.methods_of(samplers, models, warm_start=warm_start),
        trials=trials,
        seeds=seeds,
        by=by,
        processes=processes or usable_cores(),
        say=shared.say,
    )
    if not found.titles:
        raise UsageError(f"no recording in {folder} has more than {trials} candidates")
    stops = sorted({min(16, trials), trials})
    machines = sorted({recording.facts.machine["processor"] for recording in recordings})
    notes = (f"recorded on: {'; '.join(machines)}", *_begun(found))
    tables = (_means(found, stops), _trials(found), _workloads(found, trials))
    output.finish(output.document("Searches of recorded spaces", ABOUT, tables, _data(found, stops), notes))


def _percent(estimate: ConfidenceInterval) -> str:
    return f"{100 * estimate.mean:.1f} % ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def _begun(found: SearchComparison) -> list[str]:
    """Return the number of workloads that have a warm start."""
    begun = sum(map(bool, found.near))
    many = counted(len(found.near), "workload")
    return [f"warm start: {begun} of {many} begin with candidates of others"] if found.near else []


def _means(found: SearchComparison, stops: Sequence[int]) -> Table:
    from autotune.bench.tables import Table

    rows = []
    for number, method in enumerate(found.methods):
        regrets = [_percent(found.regret(number, stop)) for stop in stops]
        against = found.ratio(number, 0, stops[-1])
        rows.append((method.name, *regrets, f"{against.mean:.3f} ({against.low:.3f} to {against.high:.3f})"))
    head = ("sampler", *(f"regret after {stop}" for stop in stops), "found ÷ first")
    title = f"{counted(len(found.titles), 'workload')}, {counted(found.curves.shape[2], 'seed')}"
    return Table(title, head, tuple(rows))


def _trials(found: SearchComparison) -> Table:
    """Return the trials until the searches are near the best."""
    import numpy as np

    from autotune.bench.tables import NOTHING, Table

    count = int((~np.isnan(found.trials(0)).all(axis=1)).sum())
    rows = []
    for number, method in enumerate(found.methods):
        against = [0, number - 1] if method.near else [0]  # the row before is the same without a warm start
        shown = [
            f"{found.trials_mean(number)}",
            *(f"{found.trials_mean(number, other)}" for other in against),
        ]
        shown = shown if count else [NOTHING] * len(shown)
        shown += [NOTHING] * (2 + bool(found.near) - len(shown))
        tried = found.trials(number)
        reached = np.mean(tried[~np.isnan(tried)] <= found.curves.shape[-1]) if count else np.nan
        rows.append((method.name, *shown, f"{100 * reached:.0f} %"))
    title = f"Trials to 95 % of the best, {counted(count, 'workload')} whose default is further from it"
    warm = ["saved by the warm start"] if found.near else []
    return Table(title, ("sampler", "trials", "saved", *warm, "searches that came there"), tuple(rows))


def _workloads(found: SearchComparison, trials: int) -> Table:
    from autotune.bench.tables import Table

    rows = tuple(
        (
            title,
            str(found.sizes[number]),
            f"{found.bests[number]:.2f}",
            *(f"{100 * found.regret_of(m, number, trials).mean:.1f} %" for m in range(len(found.methods))),
        )
        for number, title in enumerate(found.titles)
    )
    head = ("workload", "candidates", "best ÷ default", *(method.name for method in found.methods))
    return Table(f"Regret after {trials} trials", head, rows)


def _data(found: SearchComparison, stops: Sequence[int]) -> list[dict[str, object]]:
    """Return the means of the methods, and of each the regret by workload."""
    return [
        {
            "sampler": method.name,
            "regret": {str(stop): asdict(found.regret(number, stop)) for stop in stops},
            "workloads": {
                title: asdict(found.regret_of(number, w, stops[-1])) for w, title in enumerate(found.titles)
            },
        }
        for number, method in enumerate(found.methods)
    ]


__all__ = ["command"]
