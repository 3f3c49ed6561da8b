"""``python -m results.bench pipeline``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from autotune.cli import options_bench as shared

ABOUT = (
    "Models whose parts are stages on several devices, with several requests in flight: beside requests one at a time "
    "on the same stages, and beside the same model as one module of all cores. The stages are those that the search "
    "for a placement expects to be the best for throughput."
)
_MODELS = ("squeezenet", "inception_v1", "mobilenetv2", "encoder")


@click.command(epilog="Example: python -m results.bench pipeline squeezenet --devices cpu:0,cpu:1")
@click.argument("names", nargs=-1)
@click.option(
    "--devices",
    multiple=True,
    default=("cpu:0,cpu:1",),
    show_default=True,
    metavar="A,B,...",
    help="Devices of the stages; several times for several choices.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(2),
    metavar="N",
    help="Requests at a time. [default: one more than devices]",
)
@shared.number_option("--rounds", 12, "Turns of each.")
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    devices: Sequence[str],
    in_flight: int | None,
    rounds: int,
) -> None:
    """Stages on several devices with several requests in flight; NAMES are zoo models or ONNX files."""
    from autotune.bench.suites import models
    from results.bench import pipelines

    choices = [[name for name in each.split(",") if name] for each in devices]
    found = pipelines.measure(models.models(names or _MODELS), choices, in_flight, rounds, shared.say)
    data = [each if isinstance(each, str) else asdict(each) for each in found]
    output.finish(output.document("Pipelines", ABOUT, pipelines.tables(found), data))


__all__ = ["command"]
