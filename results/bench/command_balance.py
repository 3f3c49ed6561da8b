"""``python -m results.bench balance``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from autotune.cli import options_bench as shared
from autotune.errors import UsageError

ABOUT = (
    "One worker is made to spin after each chunk of tiles, so that it takes a number of times as long. Others steal "
    "from it either way; what it begins with is as much as the others', or follows how fast the workers were "
    "in the runs before, as it does in use. Both take turns in one process."
)
_MODELS = ("mlp", "encoder", "squeezenet", "shufflenet", "mobilenetv2")


def _factors(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[float, ...]:
    try:
        found = tuple(dict.fromkeys(float(part) for part in value.split(",")))
    except ValueError as error:
        raise UsageError(f"--factors {value!r} is no list of numbers such as 1,2.5") from error
    if not all(1 <= factor <= 1000 for factor in found):
        raise UsageError(f"--factors {value}: a worker can be made 1 to 1000 times as slow")
    return found


@click.command(
    epilog="Example: python -m results.bench balance squeezenet --factors 1,2,4 -o results/balance.md"
)
@click.argument("names", nargs=-1)
@shared.number_option("--threads", 2, "Workers, the last of which is slow.", least=2)
@shared.number_option("--rounds", 7, "Turns of each.")
@click.option(
    "--factors",
    default="1,1.5,2,3,4",
    show_default=True,
    metavar="X,X",
    callback=_factors,
    help="How many times as slow.",
)
@shared.with_output
def command(
    output: shared.Output, names: Sequence[str], threads: int, rounds: int, factors: tuple[float, ...]
) -> None:
    """A slow worker among others, with and without shares that follow; NAMES are zoo models or ONNX files."""
    from autotune.bench.suites import models
    from autotune.hardware import check_threads
    from results.bench import balance

    check_threads(threads, allow_oversubscription=False)
    found = balance.measure(models.models(names or _MODELS), factors, threads, rounds, shared.say)
    made = balance.tables(found, threads)
    output.finish(
        output.document("Balance of unequal workers", ABOUT, made, [asdict(each) for each in found])
    )


__all__ = ["command"]
