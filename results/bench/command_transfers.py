"""``python -m results.bench transfers``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from autotune.cli import options_bench as shared

ABOUT = (
    "What it takes to bring values to an OpenCL device that is a processor of this machine: copies to memory of its "
    "own, as a GPU needs them, and this process's memory used in place, as such a device has it. Models run their "
    "convolutions there and all else on a CPU device of one core, both ways in turns, with the same bits as answers."
)
_MODELS = ("zoo:tiny_cnn", "zoo:squeezenet", "zoo:mobilenetv2")
_PLACEMENT = {"Conv": "opencl:0", "*": "cpu:0"}


@click.command(epilog="Example: python -m results.bench transfers zoo:squeezenet -o results/transfers.md")
@click.argument("models", nargs=-1)
@shared.number_option("--rounds", 10, "Turns of each way.")
@shared.with_output
def command(output: shared.Output, models: Sequence[str], rounds: int) -> None:
    """Copies to a device against memory used in place; MODELS are ONNX files or zoo:NAME."""
    from results.bench import transfers

    moved = transfers.move(shared.say)
    found = []
    for name in models or _MODELS:
        shared.say(name)
        found.append(transfers.mixed(name, _PLACEMENT, rounds))
    data = [asdict(each) for each in moved] + [asdict(each) for each in found]
    output.finish(output.document("Transfers", ABOUT, transfers.tables(moved, found), data))


__all__ = ["command"]
