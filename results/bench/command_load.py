"""``python -m results.bench load``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.cli.options_peers import with_onnxruntime

if TYPE_CHECKING:
    from autotune.bench.systems import System

ABOUT = (
    "What a compiled model costs before its first answer, beside ONNX Runtime's session of the same model: import, "
    "load, first run, processor time of the whole process and memory, each in fresh processes. ONNX Runtime optimizes "
    "a model when a session is made; in its second row that was done before, and the session is told to do nothing. "
    "Ours is loaded as by default, where all of it is read and checked; with constants mapped from the file; and "
    "compiled with --objective size --max-slowdown 1.2."
)
_MODELS = ("squeezenet", "mobilenetv2", "densenet121", "resnet50", "encoder", "encoder_base", "vgg19")


@click.command(
    epilog="Example: python -m results.bench load squeezenet resnet50 --rounds 9 -o results/load.md"
)
@click.argument("names", nargs=-1)
@shared.number_option("--threads", 2, "Workers.")
@shared.number_option("--rounds", 7, "Fresh processes of each.")
@with_onnxruntime()
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    threads: int,
    rounds: int,
    peers: Sequence[System],
) -> None:
    """Load time and memory of artifacts beside ONNX Runtime; NAMES are zoo models or ONNX files."""
    from autotune.bench.suites import models
    from autotune.hardware import check_threads
    from autotune.suggest import counted
    from results.bench import load_times

    check_threads(threads, allow_oversubscription=False)
    found = load_times.measure(models.models(names or _MODELS), peers, threads, rounds, shared.say)
    made = load_times.tables(found, counted(threads, "thread"))
    output.finish(output.document("Load time and memory", ABOUT, made, [asdict(each) for each in found]))


__all__ = ["command"]
