"""``python -m results.bench placement``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import parse_devices, seed_option

ABOUT = (
    "Models on several devices. Their answers are compared with NumPy's for all of a model on each device, for nodes "
    "on the devices in turn, and for a placement that was searched. Then each device is made slower, and a placement "
    "is searched: does it leave that device, and does it take as long as was expected?"
)
_MODELS = ("squeezenet", "mlp", "encoder", "mobilenetv2")
_SLOWED = ("squeezenet", "mlp", "encoder", "inception_v1")


@click.command(
    epilog="Example: python -m results.bench placement --devices cpu:0,cpu:1,opencl:0 -o results/placement.md"
)
@click.option("--devices", required=True, metavar="A,B,...", help="Devices of `autotune devices`.")
@click.option(
    "--models", default=",".join(_MODELS), show_default=True, help="Zoo models whose answers are compared."
)
@click.option(
    "--slowed", default=",".join(_SLOWED), show_default=True, help="Zoo models that are placed again."
)
@click.option(
    "--factor", type=click.FloatRange(1, 1000), default=8.0, show_default=True, help="How much slower."
)
@seed_option
@shared.with_output
def command(output: shared.Output, devices: str, models: str, slowed: str, factor: float, seed: int) -> None:
    """Answers of models on several devices, and placements that leave a device which is made slower."""
    from autotune.tuning.placement_answer import checked_devices
    from autotune.tuning.placing import known_devices
    from results.bench import placements

    names = checked_devices(parse_devices(devices), known_devices())
    answers: list[placements.RightAnswer] = []
    moved: list[placements.Slowed] = []
    for model in _zoo(models):
        answers += placements.right_answers(model, names, seed, shared.say)
    for model in _zoo(slowed):
        moved += placements.slowed_devices(model, names, factor, shared.say)
    data = {"answers": [asdict(each) for each in answers], "slowed": [asdict(each) for each in moved]}
    output.finish(output.document("Placement", ABOUT, placements.tables(answers, moved, factor), data))


def _zoo(names: str) -> Sequence[str]:
    return [f"zoo:{name}" for name in names.split(",") if name]


__all__ = ["command"]
