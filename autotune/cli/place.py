"""``autotune place``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from autotune.cli import completion
from autotune.cli.common import EPILOG_DATABASE, announce, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.long_job import long_job
from autotune.cli.options import model_argument, parse_devices, request_flags, seed_option
from autotune.compiler.request import ModelOptions
from autotune.errors import UsageError
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.tuning.placement.place import PlacementReport


@click.command(
    epilog=f"Example: autotune place zoo:inception_v1 --devices cpu,cpu:0,cpu:1. {EPILOG_DATABASE}"
)
@model_argument
@click.option(
    "--devices",
    required=True,
    metavar="A,B,...",
    shell_complete=completion.devices,
    help="Devices of `autotune devices`; all of the model on the first is what a placement has to beat.",
)
@click.option(
    "--aim",
    type=click.Choice(["latency", "throughput"]),
    default="latency",
    show_default=True,
    help="One run as short as possible, or as many requests a second as possible.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(2),
    metavar="N",
    help="Requests at a time, for throughput. [default: one more than devices]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the placement as JSON, too, for --place @FILE.",
)
@request_flags(ModelOptions, without=("target", "threads", "traffic", "most_buckets"))
@seed_option
@json_option
@long_job
def command(
    model: str,
    devices: str,
    aim: str,
    in_flight: int | None,
    output: Path | None,
    seed: int,
    as_json: bool,
    **options: Unpack[ModelOptions],
) -> None:
    """Search on which devices the parts of MODEL run.

    The model is measured on each device, placements are searched by the makespan that this promises, and the best of
    them are measured interleaved with all of the model on the first device. One is used only if it is significantly
    faster. It goes to the database: --devices of compile, run and explain finds it.
    """
    from autotune.tuning.placement.place import place

    report = place(
        model,
        parse_devices(devices),
        aim=aim,
        in_flight=in_flight,
        seed=seed,
        progress=announce,
        **options,
    )
    if output is not None:
        try:
            output.write_text(json.dumps(report.placement, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
    if as_json:
        print_json(report.to_json())
        return
    echo("\n".join(report_lines(report)))


def report_lines(report: PlacementReport) -> list[str]:
    """Return the lines about a search's result, and how to use it."""
    from autotune.tuning.report.units import nanoseconds

    def time(seconds: float | None) -> str:
        return nanoseconds(None if seconds is None else 1e9 * seconds)

    alone = ", ".join(f"{name} {time(seconds)}" for name, seconds in report.alone_seconds.items())
    lines = [f"{report.model}: {counted(report.units, 'part')}; expected of all on one device: {alone}"]
    if report.in_flight:
        lines.append(
            f"with {counted(report.in_flight, 'request')} in flight; times are from one result to the next"
        )
    if len(report.measured) == 1:
        lines.append(
            f"none of {counted(report.evaluated, 'placement')} is expected to be faster than {report.devices[0]}"
        )
    for number, each in enumerate(report.measured):
        off = "" if each.off is None else f", {abs(each.off):.0%} {'more' if each.off > 0 else 'less'}"
        gain = f"; {each.ratio}" if each.ratio is not None else ""
        after = "" if each.alone_seconds is None else f"; one after another {time(each.alone_seconds)}"
        used = " (used)" if number == report.accepted else ""
        lines.append(
            f"  on {', '.join(each.devices)}: expected {time(each.expected_seconds)}, "
            f"measured {time(each.measured_seconds)}{off}{gain}{after}{used}"
        )
    if report.accepted:
        lines += [f"--place '{pattern}={device}'" for pattern, device in report.placement.items()]
    else:
        lines.append(f"stays on {report.devices[0]}: nothing was significantly faster")
    return lines


__all__ = ["command", "report_lines"]
