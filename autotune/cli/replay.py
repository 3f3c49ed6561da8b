"""``autotune replay``: whole jobs and candidates of workloads, recorded and searched again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.bench import options
from autotune.bench.jobs.compare import EXPERIMENT as JOBS
from autotune.bench.replay.experiment import EXPERIMENT as SAMPLERS
from autotune.cli.echo import echo
from autotune.cli.experiment import command_of, say
from autotune.cli.groups import SuggestingGroup
from autotune.cli.options import FLAGS, model_argument, seed_option
from autotune.suggest import counted


def _output(help: str) -> click.Option:
    kind = click.Path(file_okay=False, path_type=Path)
    return click.Option(["-o", "--output"], type=kind, required=True, metavar="FOLDER", help=help)


@click.group(cls=SuggestingGroup, epilog="Example: autotune replay compare results/replay --jobs 20")
def command() -> None:
    """Do recorded tuning jobs again by any policy, and searches by any sampler, without measuring."""


@command.command(
    params=[_output("Gets a JSON file.")],
    epilog="Example: autotune replay record zoo:squeezenet --db tuning.db -o results/replay",
)
@model_argument
@FLAGS["database"]
@FLAGS["target"]
@FLAGS["threads"]
def record(model: str, database: str | None, output: Path, target: str, threads: int | None) -> None:
    """Record all that a tuning database knows of MODEL, its sites, options and candidates: jobs are simulated from it.

    For about a minute equal versions of the model are measured: the noise of the machine is part of the recording.
    """
    from autotune.bench.jobs.record import record as recorded
    from autotune.compiler.request import CompileRequest
    from autotune.database.opening import opened
    from autotune.tuning.api import runnable

    chosen = runnable(CompileRequest(model, target=target, threads=threads).one_target())
    with opened(database, read_only=True) as store:
        found = recorded(model, store, chosen, say)
    sites = counted(len(found.places), "site")
    candidates = counted(sum(len(w.candidates) for w in found.workloads), "candidate")
    echo(f"{found.write(output)}: {sites}, {counted(len(found.workloads), 'workload')}, {candidates}")


@command.command(
    params=[
        options.number("--candidates", 320, "Of each workload.", least=2),
        options.number("--turns", 3, "Of each one."),
        options.number("--processes", 2, "Of the measurements in the model."),
        _output("Gets a Parquet file a workload."),
    ],
    epilog="Example: autotune replay candidates zoo:encoder '00[147]*' --candidates 400 -o recordings",
)
@model_argument
@click.argument("names", nargs=-1)
@click.option(
    "--workloads",
    type=click.IntRange(1),
    metavar="N",
    help="Only so many, diverse ones by chance: their families in turn, with a choice and below 30 ms. [default: all]",
)
@click.option(
    "--inside",
    type=click.FloatRange(0, 1),
    default=1 / 3,
    show_default="a third",
    metavar="SHARE",
    help="The share of them, the fastest in isolation, that is measured in the model too.",
)
@FLAGS["target"]
@FLAGS["threads"]
@seed_option
def candidates(
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
    """Measure random candidates of MODEL's workloads interleaved with their defaults; NAMES are dispatches or patterns.

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
        for recording in measure(one, names, chosen, effort, say):
            echo(f"{recording.write(output)}: {counted(len(recording.table), 'candidate')}")


command.add_command(command_of(JOBS, "compare", "autotune replay compare"))
command.add_command(command_of(SAMPLERS, "samplers", "autotune replay samplers"))

__all__ = ["command"]
