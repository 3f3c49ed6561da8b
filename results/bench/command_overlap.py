"""``python -m results.bench overlap``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from autotune.cli import options_bench as shared

ABOUT = (
    "What it gains that independent dispatches run beside each other, in an order that takes turns between branches: "
    "untuned models as they are compiled, beside the same in the model's own order with a barrier after each command. "
    "Both take turns in fresh processes."
)
_MODELS = (
    "inception_v1",
    "inception_v2",
    "encoder",
    "squeezenet",
    "shufflenet",
    "mobilenetv2",
    "densenet121",
    "mlp",
    "tiny_cnn",
)


@click.command(
    epilog="Example: python -m results.bench overlap inception_v1 squeezenet -o results/overlap.md"
)
@click.argument("names", nargs=-1)
@shared.number_option("--threads", 2, "Workers.")
@shared.number_option("--processes", 18, "Fresh processes.", least=6)
@shared.with_output
def command(output: shared.Output, names: Sequence[str], threads: int, processes: int) -> None:
    """Models with and without dispatches that run beside each other; NAMES are zoo models or ONNX files."""
    from autotune.hardware import check_threads
    from autotune.suggest import counted
    from results.bench import overlap

    check_threads(threads, allow_oversubscription=False)
    found = overlap.measure(names or _MODELS, threads, processes, shared.say)
    tables = [overlap.table(found, counted(threads, "thread"))]
    output.finish(
        output.document("Dispatches beside each other", ABOUT, tables, [asdict(each) for each in found])
    )


__all__ = ["command"]
