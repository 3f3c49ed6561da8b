"""``autotune bench math``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option
from autotune.errors import UsageError
from autotune.suggest import listing

ABOUT = (
    "The vector functions that generated code uses for transcendentals, against the exact values in a wider "
    "type, and beside NumPy on one thread over arrays in the second-level cache."
)


@click.command(epilog="Example: autotune bench math exp tanh --count 10000000 -o results/math.md")
@click.argument("names", nargs=-1)
@click.option(
    "--count",
    type=click.IntRange(4),
    default=10_000_000,
    show_default=True,
    metavar="N",
    help="Random values of each function and type.",
)
@click.option(
    "--rounds", type=click.IntRange(1), default=200, show_default=True, metavar="N", help="Timed calls."
)
@shared.output_option
@json_option
@click.pass_context
def command(
    context: click.Context, names: Sequence[str], count: int, rounds: int, output: Path | None, as_json: bool
) -> None:
    """Error in ulp and speed of exp, log, tanh, erf, sigmoid, rsqrt, pow."""
    from autotune.bench import functions, machine
    from autotune.bench.tables import Document, Table, geometric_mean, ratio
    from autotune.target import Target

    unknown = sorted(set(names) - set(functions.FUNCTIONS))
    if unknown:
        raise UsageError(
            f"unknown function {unknown[0]!r}; there are: {listing(unknown[0], functions.FUNCTIONS)}"
        )
    facts, target = machine.facts(), Target.detect()
    errors, speeds = [], []
    for name in names or functions.FUNCTIONS:
        for dtype in functions.DTYPES:
            shared.say(f"{name}, {dtype}")
            errors.append(functions.accuracy(name, dtype, count, target.lanes(dtype)))
            speeds.append(functions.speed(name, dtype, target.lanes(dtype), rounds))
    rows = [
        (
            f"{error.name}, {error.dtype}",
            f"{error.ulp:.2f}",
            f"{error.numpy_ulp:.3g}",
            f"{error.wrong_specials} of {error.specials}",
            f"{speed.ours_ns:.3f}",
            f"{speed.numpy_ns:.3f}",
            f"{speed.numpy_ns / speed.ours_ns:.1f}×",
            speed.expression,
        )
        for error, speed in zip(errors, speeds, strict=True)
    ]
    mean = geometric_mean(speed.numpy_ns / speed.ours_ns for speed in speeds)
    rows.append(("geometric mean", "", "", "", "", "", f"{ratio(mean, 1)}×", ""))
    head = (
        "function",
        "max. ulp",
        "NumPy max. ulp",
        "wrong specials",
        "ns/element",
        "NumPy ns/element",
        "faster",
        "NumPy form",
    )
    note = f"{count} random values each: random bits, the working interval, around one and zero"
    table = Table("Vector functions", head, tuple(rows), (note,))
    document = Document(
        "Vector functions",
        shared.command_line(context),
        facts,
        (table,),
        functions.to_json(errors, speeds),
        ABOUT,
    )
    shared.finish(document, output, as_json)


__all__ = ["command"]
