"""``python -m results.bench held-out``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.cli.options_peers import with_onnxruntime
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.bench.systems import System

ABOUT = (
    "Architectures that the compiler was not written for, of torchvision, timm and transformers and of blocks written "
    "here, with random weights, by both of PyTorch's exporters: compiled untuned, each in a process of its own, and "
    "compared with the peer, which takes turns with us."
)


@click.command(
    epilog="Example: python -m results.bench held-out mamba unet --folder exported --peer-python peers/bin/python"
)
@click.argument("names", nargs=-1)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("held-out"),
    show_default=True,
    metavar="FOLDER",
    help="Where the exported models are written, or were: what is there is not exported again.",
)
@click.option(
    "--exporters",
    default="dynamo,torchscript",
    show_default=True,
    metavar="NAMES",
    help="PyTorch's exporters: dynamo, torchscript.",
)
@shared.number_option("--threads", 2, "Workers.")
@shared.number_option("--rounds", 6, "Turns that each of both gets.")
@with_onnxruntime()
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    folder: Path,
    exporters: str,
    threads: int,
    rounds: int,
    peers: Sequence[System],
) -> None:
    """Export, compile and compare unseen architectures; NAMES are some of them (all by default)."""
    from autotune.bench.side_by_side import Pace
    from autotune.hardware import check_threads
    from autotune.suggest import counted
    from results.bench.held_out import measure, page
    from results.bench.held_out.architectures import EXPORTERS

    check_threads(threads, allow_oversubscription=False)
    wrong = measure.check_names(names)
    if wrong:
        raise UsageError(wrong)
    asked = tuple(exporters.split(","))
    shared.check_known(asked, EXPORTERS, "exporter")
    peer = next(iter(peers), None)
    architectures = measure.chosen(names)
    outcomes: list[measure.Outcome] = []
    document = output.document("Held-out models", ABOUT, data=[])
    pace = Pace(rounds, min(rounds, 2))
    for outcome in measure.measure(architectures, asked, folder, peer, threads, pace, shared.say):
        outcomes.append(outcome)
        made = page.tables(outcomes, counted(threads, "thread"))
        data = [{**asdict(each), "ratio": each.ratio, "right": each.right} for each in outcomes]
        document = output.document("Held-out models", ABOUT, made, data)
        output.save(document)
    output.finish(document)


__all__ = ["command"]
