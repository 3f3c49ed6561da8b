"""``python -m results.bench math``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from autotune.cli import options_bench as shared

ABOUT = (
    "The vector functions that generated code uses for transcendentals, against the exact values in a wider "
    "type, and beside NumPy on one thread over arrays in the second-level cache."
)


@click.command(epilog="Example: python -m results.bench math exp tanh --count 10000000 -o results/math.md")
@click.argument("names", nargs=-1)
@shared.number_option("--count", 10_000_000, "Random values of each function and type.", least=4)
@shared.number_option("--rounds", 200, "Timed calls.")
@shared.with_output
def command(output: shared.Output, names: Sequence[str], count: int, rounds: int) -> None:
    """Error in ulp and speed of exp, log, tanh, erf, sigmoid, rsqrt, pow."""
    from autotune.bench.tables import Table, geometric_mean, ratio
    from autotune.target import Target
    from results.bench import functions

    shared.check_known(names, functions.FUNCTIONS, "function")
    target = Target.detect()
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
    data = functions.to_json(errors, speeds)
    output.finish(output.document("Vector functions", ABOUT, (table,), data))


__all__ = ["command"]
